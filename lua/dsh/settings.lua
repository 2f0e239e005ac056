--- dsh.settings: $DSH_HOME/settings.yaml, a map of sections.
-- A bad file at start is an error; at reload the last good one stays, with a
-- warning. Writing changes one leaf, keeps comments and order, and excludes
-- other writers; the file is 0600.
local conf = require("dsh.core").conf
local edit = require("dsh.settings_edit")
local errors = require("dsh.errors")
local node = require("dsh.node")
local schema = require("dsh.schema")
local yaml = require("dsh.yaml")

local M = {
  provides = "settings",
  needs = { "host" },
  schema = {
    path = { type = "path" },  -- default: settings.yaml in DSH_HOME
    values = { type = "any" }, -- settings given instead of a file
  },
}

local settings = {}
settings.__index = settings

-- A map of maps, as a node; an empty text is an empty map.
local function check(root, file)
  if root == false then
    return node.map({ file = file, line = 1, column = 1 })
  elseif root.kind ~= "map" then
    return node.fail(root, "settings are a map of sections",
      "SETTINGS_INVALID")
  end
  for _, name in ipairs(root.keys) do
    local section = root.values[name]
    if section.kind ~= "map" and not node.is_null(section) then
      return node.fail(section, ("section '%s': expected a map"):format(name),
        "SETTINGS_INVALID")
    end
  end
  return root
end

local function load(path)
  local text, err = yaml.slurp(path, true)
  if err then
    return nil, err
  end
  local root
  root, err = yaml.parse(text or "", path)
  if root == nil then
    return nil, err
  end
  root, err = check(root, path)
  return root, err, text or ""
end

local function split(path)
  local keys = {}
  for key in path:gmatch("[^.]+") do
    keys[#keys + 1] = key
  end
  if #keys < 2 or table.concat(keys, ".") ~= path then
    error(("setting %q: expected section.key"):format(path), 3)
  end
  return keys
end

--- The node at "section.key" (with its place in the file), or nil.
function settings:node(path)
  local n = self.root
  for _, key in ipairs(split(path)) do
    n = n and n.kind == "map" and n.values[key] or nil
  end
  return n
end

--- The value at "section.key" (strings stay strings), or the default.
function settings:get(path, default)
  local n = self:node(path)
  if n == nil or node.is_null(n) then
    return default
  end
  return node.to_lua(n)
end

--- The value at "section.key" typed by a schema {type = "boolean", default =
-- true, …}; nil, err with file, line and column when it does not fit.
function settings:typed(path, spec)
  local n = self:node(path)
  if n == nil or node.is_null(n) then
    return spec.default
  end
  return schema.value(n, spec, path, self.host)
end

--- Reads the file again. On failure the last good settings stay, a warning
-- is given, and nil, err returned.
function settings:reload()
  if not self.path then
    return true
  end
  local root, err = load(self.path)
  if not root then
    self.host.warn("settings keep their last good state: " .. err.message)
    return nil, err
  end
  self.root = root
  return true
end

--- Changes one leaf in the file (nil takes it out); true, or nil, err.
function settings:set(path, value)
  local keys = split(path)
  if not self.path then
    return errors.fail("SETTINGS_INVALID", "these settings have no file",
      { stage = "settings" })
  end
  local ok, err = conf.mkdir(self.path:match("^(.*)/[^/]*$") or ".")
  if not ok then
    return nil, err
  end
  local lock <close>, why = conf.lock(self.path)
  if not lock then
    return nil, why
  end
  local root, failure, text = load(self.path)
  if not root then
    return nil, failure
  end
  local new
  new, err = edit.set(text, keys, value, self.path)
  if not new then
    return nil, err
  elseif new ~= text then
    ok, err = conf.replace(self.path, new)
    if not ok then
      return nil, err
    end
  end
  return self:reload()
end

function M.start(deps, config)
  local self = setmetatable({ host = deps.host }, settings)
  local err
  if config.values ~= nil then
    self.root, err = check(node.from_lua(config.values,
      { file = "dsh.open" }, "settings"), "dsh.open")
    return self.root and self, err
  end
  self.path = config.path
    or deps.host.home and deps.host.home .. "/settings.yaml"
  if not self.path then
    self.root = node.map({ file = "settings" })
    return self
  end
  local ok
  ok, err = deps.host.protect(self.path)
  if not ok then
    return nil, err
  end
  self.root, err = load(self.path)
  return self.root and self, err
end

return M
