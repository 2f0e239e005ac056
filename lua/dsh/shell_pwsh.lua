--- dsh.shell_pwsh: command texts for PowerShell, confined. The twin of
-- dsh.shell_bash, call for call. Nothing is added to the command.
--
-- The program is the configured path, else the first of the known places
-- that is there, else `pwsh` by the command's own PATH.
local core = require("dsh.core")
local errors = require("dsh.errors")
local executor = require("dsh.executor")

local M = {
  provides = "shell",
  needs = { "sandbox", "sandbox_policy", "host" },
  schema = executor.schema({ path = { type = "path" } }),
}

M.PLACES = {
  linux = { "/opt/microsoft/powershell/7/pwsh", "/usr/bin/pwsh",
    "/usr/local/bin/pwsh", "/snap/bin/pwsh" },
  macos = { "/usr/local/microsoft/powershell/7/pwsh",
    "/usr/local/bin/pwsh", "/opt/homebrew/bin/pwsh" },
  windows = { "C:\\Program Files\\PowerShell\\7\\pwsh.exe" },
}

--- The exact argv of a command text.
function M.argv(command, program)
  return { program or "pwsh", "-NoLogo", "-NoProfile", "-NonInteractive",
    "-Command", command }
end

--- The configured program, else one in a known place, else nil (PATH).
function M.find(configured, places)
  if configured then
    return configured
  end
  for _, path in ipairs(places) do
    if core.sys.executable(path) then
      return path
    end
  end
end

function M.start(deps, config)
  local host = deps.host or {}
  if config.path and not core.sys.executable(config.path) then
    return errors.fail("CONFIG_INVALID", ("path: %s is not an executable "
      .. "file"):format(config.path), { stage = "shell", path = config.path })
  end
  local program = M.find(config.path, M.PLACES[host.platform] or {})
  return executor.new("pwsh", deps, config, function(command)
    return M.argv(command, program)
  end)
end

return M
