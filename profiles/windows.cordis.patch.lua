--- The twin of windows.cordis.patch.yml, to be given by --patch on any
-- platform: it acts on Windows alone and does nothing where the YAML patch
-- has already been applied.
return function(p)
  if p.platform ~= "windows" or p.row("pwsh-sandbox") then
    return
  end
  p.disable("bash-sandbox")
  p.insert({ id = "pwsh-sandbox", name = "dsh.shell_pwsh" },
    { after = "bash-sandbox" })
  p.disable("tool-bash")
  p.insert({ id = "tool-pwsh", name = "dsh.tool_pwsh" },
    { after = "tool-bash" })
end
