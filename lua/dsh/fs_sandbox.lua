--- dsh.fs_sandbox: files under the same policy as commands. A policy check in
-- trusted code, not a kernel boundary: confine what you do not trust.
local files = require("dsh.fs_files")

local M = {
  provides = "fs",
  needs = { "sandbox_policy" },
  schema = {
    allowHardLinks = { type = "boolean", default = false },
  },
}

function M.start(deps, config)
  local service = deps.sandbox_policy
  local function policy(opts)
    return opts.policy
      or service:resolve({ session = opts.session, mode = opts.mode })
  end
  local fs = files.new(policy, function(opts)
    return policy(opts).workspace_root
  end)
  local write, edit = fs.write_text, fs.edit_text
  if config.allowHardLinks then
    local function allow(opts)
      local copy = { allow_hard_links = true }
      for k, v in pairs(opts or {}) do
        copy[k] = v
      end
      return copy
    end
    function fs:write_text(path, text, opts)
      return write(self, path, text, allow(opts))
    end
    function fs:edit_text(path, old, new, opts)
      return edit(self, path, old, new, allow(opts))
    end
  end
  return fs
end

return M
