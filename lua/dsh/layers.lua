--- dsh.layers: the layers of a composition, in order; later ones win.
-- Profile, platform patch, the user's patch, the patches asked for, then
-- what dsh.open's own fields or --set say.
local node = require("dsh.node")

local M = {}

-- Without a profile: confined commands and nothing that needs a home.
local DEFAULT = {
  { id = "sandbox", name = "dsh.sandbox_local" },
  { id = "sandbox-policy", name = "dsh.sandbox_policy",
    config = { mode = "read-only" } },
  { id = "fs-sandbox", name = "dsh.fs_sandbox" },
  { id = "bash-sandbox", name = "dsh.shell_bash",
    disabled_on = { "windows" } },
  { id = "pwsh-sandbox", name = "dsh.shell_pwsh", only_on = { "windows" } },
  { id = "approval", name = "dsh.approval" },
  { id = "terminal", name = "dsh.terminal" },
}

-- Rows whose module this installation does not have are left out.
local function installed(rows)
  local out = { __list = true }
  for _, row in ipairs(rows) do
    if package.loaded[row.name]
      or package.searchpath(row.name, package.path) then
      out[#out + 1] = row
    end
  end
  return out
end

local function profile_layer(opts)
  local at = { file = "dsh.open" }
  if opts.rows then
    return { kind = "profile", name = "dsh.open rows",
      list = node.from_lua(opts.rows, at, "rows") }
  end
  return { kind = "profile", name = "the default composition",
    list = node.from_lua(installed(DEFAULT), at, "rows") }
end

local function absolute(path, host)
  if path:sub(1, 1) == "/" or path:match("^%a:[/\\]") then
    return path
  end
  return host.cwd .. "/" .. path
end

-- dsh.open's own fields, as a last patch.
local function option_layer(opts, host)
  local policy = { mode = opts.mode,
    workspaceRoot = opts.workspace_root
      and absolute(opts.workspace_root, host) }
  local entries = {}
  if next(policy) then
    entries[#entries + 1] = { id = "sandbox-policy", merge = policy }
  end
  if opts.backend then
    entries[#entries + 1] = { id = "sandbox",
      merge = { backend = opts.backend } }
  end
  return #entries > 0 and { kind = "patch", name = "dsh.open",
    list = node.from_lua(entries, { file = "dsh.open" }, "options") } or nil
end

--- The layers for these options; or nil, err.
function M.of(opts, host)
  local list = { profile_layer(opts) }
  list[#list + 1] = option_layer(opts, host)
  return list
end

return M
