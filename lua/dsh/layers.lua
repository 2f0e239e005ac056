--- dsh.layers: the layers of a composition, in order; later ones win.
-- Profile, platform patch, the user's patch, the patches asked for, --set,
-- then what dsh.open's own fields say.
local errors = require("dsh.errors")
local node = require("dsh.node")
local patch_lua = require("dsh.patch_lua")
local paths = require("dsh.paths")
local yaml = require("dsh.yaml")

local M = {}

-- Without a profile: confined commands and nothing that needs a home.
local DEFAULT = {
  { id = "sessions", name = "dsh.sessions" },
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

--- A file's list of rows or entries; nil, nil when absent and optional.
local function read_list(path, optional, what)
  local text, err = yaml.slurp(path, optional)
  if not text then
    return nil, err
  end
  local n
  n, err = yaml.parse(text, path)
  if n == nil then
    return nil, err
  elseif n == false then
    return errors.fail("CONFIG_INVALID", ("%s:1:1: %s is empty, not a list")
      :format(path, what), { path = path, line = 1, column = 1 })
  elseif n.kind ~= "list" then
    return node.fail(n, ("%s is a list, got a %s"):format(what, n.kind))
  end
  return n
end

-- A patch file as a layer; nil, nil when absent and optional.
local function patch_file(path, host, optional)
  if path:match("%.lua$") then
    local text, err = yaml.slurp(path, optional)
    local layer = text and patch_lua.layer(text, path, host)
    if layer then
      layer.file = path
    end
    return layer, err
  end
  local list, err = read_list(path, optional, "a patch")
  return list and { kind = "patch", name = path, file = path, list = list },
    err
end

local function profile_layer(opts)
  local at = { file = "dsh.open" }
  if opts.rows then
    return { kind = "profile", name = "dsh.open rows",
      list = node.from_lua(opts.rows, at, "rows") }
  elseif not opts.profile then
    return { kind = "profile", name = "the default composition",
      list = node.from_lua(DEFAULT, at, "rows") }
  end
  local path = opts.profile
  if not path:find("/", 1, true) and not path:find("%.ya?ml$") then
    path = paths.profiles .. "/" .. path .. ".cordis.yml"
  end
  local list, err = read_list(path, false, "a profile")
  return list and { kind = "profile", name = path, file = path,
    list = list }, err
end

-- What a profile from a file brings with it: the patch of the platform that
-- stands beside it, then the user's own, in YAML and in Lua.
local function standing_patches(profile, host, user)
  local out = {}
  local dir = profile.name:match("^(.*/)") or ""
  local wanted = { dir .. host.platform .. ".cordis.patch.yml" }
  if user and host.home then
    wanted[2] = host.home .. "/cordis.patch.yml"
    wanted[3] = host.home .. "/cordis.patch.lua"
  end
  for _, path in ipairs(wanted) do
    local layer, err = patch_file(path, host, true)
    if err then
      return nil, err
    end
    out[#out + 1] = layer
  end
  return out
end

local function given_patch(p, host)
  if type(p) == "string" then
    return patch_file(p, host, false)
  elseif type(p) == "function" then
    return patch_lua.function_layer(p, host)
  end
  local at = { file = "dsh.open patches" }
  return { kind = "patch", name = at.file,
    list = node.from_lua(p, at, "patch") }
end

-- "row.key=value", value in YAML, as a patch entry that merges.
local function set_entry(text)
  local path, value = text:match("^([^=]+)=(.*)$")
  local id, keys = (path or ""):match("^([^.]+)%.(.+)$")
  local at = { file = "--set " .. text }
  if not id then
    return node.fail(at, "expected row.key=value")
  end
  local n, err = yaml.parse(value, at.file)
  if n == nil then
    return nil, err
  end
  n = n or node.scalar("", false, at)
  local names = {}
  for key in keys:gmatch("[^.]+") do
    names[#names + 1] = key
  end
  for i = #names, 1, -1 do
    local map = node.map(at)
    node.set(map, names[i], n)
    n = map
  end
  local entry = node.map(at)
  node.set(entry, "id", node.scalar(id, false, at))
  node.set(entry, "merge", n)
  return entry
end

local function set_layer(set)
  local list = node.list({ file = "--set" })
  for _, text in ipairs(set) do
    local entry, err = set_entry(text)
    if not entry then
      return nil, err
    end
    list[#list + 1] = entry
  end
  return { kind = "patch", name = "--set", list = list }
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
  local entries = { __list = true }
  if next(policy) then
    entries[#entries + 1] = { id = "sandbox-policy", merge = policy }
  end
  if opts.backend or opts.runner then
    entries[#entries + 1] = { id = "sandbox",
      merge = { backend = opts.backend, runner = opts.runner } }
  end
  return { kind = "patch", name = "dsh.open",
    list = node.from_lua(entries, { file = "dsh.open" }, "options") }
end

-- Settings given to dsh.open: into the row `settings`, which is added when
-- the composition has none.
local function settings_layer(settings)
  local config = type(settings) == "string" and { path = settings }
    or { values = settings }
  return { kind = "script", name = "dsh.open settings",
    apply = function(comp, layer)
      local entry = comp.index.settings and { id = "settings", merge = config }
        or { insert = { { id = "settings", name = "dsh.settings",
          config = config } } }
      return require("dsh.patch").apply(comp, node.from_lua({ entry },
        { file = "dsh.open" }, "settings"), layer)
    end }
end

--- The layers for these options; or nil, err.
function M.of(opts, host)
  local profile, err = profile_layer(opts)
  if not profile then
    return nil, err
  end
  local list = { profile }
  if opts.profile then
    local standing
    standing, err = standing_patches(profile, host, opts.user ~= false)
    if not standing then
      return nil, err
    end
    table.move(standing, 1, #standing, 2, list)
  end
  for _, p in ipairs(opts.patches or {}) do
    list[#list + 1], err = given_patch(p, host)
    if err then
      return nil, err
    end
  end
  if opts.set and #opts.set > 0 then
    list[#list + 1], err = set_layer(opts.set)
    if err then
      return nil, err
    end
  end
  if opts.settings then
    list[#list + 1] = settings_layer(opts.settings)
  end
  list[#list + 1] = option_layer(opts, host)
  return list
end

return M
