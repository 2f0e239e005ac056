--- dsh.shell_bash: command texts for bash, confined. See dsh.executor.
local executor = require("dsh.executor")

local M = {
  provides = "shell",
  needs = { "sandbox", "sandbox_policy" },
  schema = executor.schema(),
}

--- The exact argv of a command text.
function M.argv(command)
  return { "bash", "-c", command }
end

function M.start(deps, config)
  return executor.new("bash", deps, config, M.argv)
end

return M
