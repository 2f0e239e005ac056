--- dsh.fs_local: files without a fence. What fs_sandbox replaces.
local core = require("dsh.core")
local files = require("dsh.fs_files")

return {
  provides = "fs",
  needs = { "host?" },
  schema = {},
  start = function(deps)
    local cwd = deps.host and deps.host.cwd or core.sys.cwd()
    return files.new(function() end, function()
      return cwd
    end)
  end,
}
