--- transcript.lua: a short session at the prompt, as README.md shows it.
-- Run as a script (make transcript) it prints the text; the spec compares.
local screen = require("screen")
local h = require("helpers")

local M = {}

local function asks(text)
  return text:find("Choice %[%d%]:\n$")
end

local function prompts(text)
  return select(2, text:gsub("%][#$]", ""))
end

--- The session's text, with the scratch home as /home/me.
function M.make()
  local d = h.scratch()
  os.execute(("mkdir %s/project %s/other"):format(d.base, d.base))
  local s = screen.start({ h.dshsh_path, "--mode", "workspace-write",
    "--backend", "bwrap" }, { cwd = d.base .. "/project", cols = 160,
    rows = 60, env = { HOME = d.base, DSH_HOME = d.base .. "/.dsh",
      TERM = "screen", LC_ALL = "C.UTF-8" } })
  s:wait("%][#$]\n$")
  local function line(text, ready)
    local before = prompts(s:text())
    s:line(text)
    return s:wait(ready or function(now)
      return prompts(now) > before and now:find("%][#$]\n$")
    end)
  end
  line("echo hello > notes; cat notes")
  line("echo hello > ~/other/notes", asks)
  line("2")
  line("/mode read-only")
  line("rm -f notes", asks)
  line("4")
  line("/why notes")
  s:line("exit")
  local text = s:wait("%[ended %d+%]")
  s:close()
  h.clean()
  text = text:gsub("\n%[ended %d+%].*$", "\n"):gsub("\nexit\n$", "\n")
  return (text:gsub(d.base:gsub("%p", "%%%0"), "/home/me")
    :gsub("%]#", "]$"))
end

if arg and arg[0] and arg[0]:match("transcript%.lua$") then
  io.stdout:write(M.make())
end

return M
