--- dsh.permission: presets, a name for a mode, an approval policy and grants.
--
-- A preset selects; the sandbox executes. Switching writes the events of one
-- preset together or none of them. "custom" is what a session is under when
-- no preset matches.
local core = require("dsh.core")
local errors = require("dsh.errors")
local journal = require("dsh.journal")
local yaml = require("dsh.yaml")

local MODES = { "read-only", "workspace-write", "danger-full-access" }

local PRESET = {
  sandbox = { type = "string", required = true, enum = MODES },
  approval = { type = "string", required = true, enum = { "ask", "never" } },
  grants = { type = "list", items = { type = "path" } },
}

local M = {
  provides = "permission",
  needs = { "sandbox_policy", "approval", "settings?", "host" },
  schema = {
    presets = { type = "map", values = { type = "map", fields = PRESET },
      default = {} },
    -- A Lua file that returns {presets = …, select = function(facts) … end}.
    presets_file = { type = "path" },
    default = { type = "string" },
  },
}

-- Runs in the script's own state: its presets, and what select() chose.
local PRELUDE = [[
local chunk, arg = ...
local found = chunk()
if type(found) ~= "table" then
  error(arg.name .. ":1: a presets file returns {presets=, select=}", 0)
end
for key in pairs(found) do
  if key ~= "presets" and key ~= "select" then
    error(arg.name .. ":1: unknown key '" .. tostring(key) .. "'", 0)
  end
end
local chosen
if found.select and arg.facts then
  chosen = found.select(arg.facts)
  if type(chosen) ~= "string" then
    error(arg.name .. ":1: select returned a " .. type(chosen)
      .. ", not the name of a preset", 0)
  end
end
return { presets = found.presets, chosen = chosen,
  selects = found.select ~= nil }
]]

local function run_file(path, facts)
  local text, err = yaml.slurp(path)
  if not text then
    return nil, err
  end
  return core.script.run(text, "@" .. path, PRELUDE, function() end,
    { arg = { name = path, facts = facts } })
end

local function bad(message, path)
  return errors.fail("CONFIG_INVALID", message, { stage = "permission",
    path = path })
end

local function one_of(list, value)
  for _, v in ipairs(list) do
    if v == value then
      return true
    end
  end
  return false
end

-- A preset that a Lua file gave, checked as the schema checks YAML's.
local function check_preset(name, p, path)
  if type(name) ~= "string" or type(p) ~= "table" then
    return bad(path .. ": presets are a map from a name to a table", path)
  end
  for key in pairs(p) do
    if not PRESET[key] then
      return bad(("%s: preset '%s': unknown key '%s'"):format(path, name,
        tostring(key)), path)
    end
  end
  if not one_of(MODES, p.sandbox)
    or not one_of({ "ask", "never" }, p.approval) then
    return bad(("%s: preset '%s': sandbox or approval is not one of the "
      .. "known words"):format(path, name), path)
  end
  for _, grant in ipairs(p.grants or {}) do
    if type(grant) ~= "string" or grant:sub(1, 1) ~= "/" then
      return bad(("%s: preset '%s': grants are absolute paths"):format(path,
        name), path)
    end
  end
  return true
end

local permission = {}
permission.__index = permission

--- The presets' names, sorted.
function permission:names()
  local names = {}
  for name in pairs(self.presets) do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

--- The preset {sandbox, approval, grants?}, or nil.
function permission:get(name)
  return self.presets[name]
end

local function unknown(self, name)
  return errors.fail("PRESET_UNKNOWN", ("there is no preset '%s' (known: %s)")
    :format(tostring(name), table.concat(self:names(), ", ")),
    { stage = "permission" })
end

-- Does the session stand under exactly what this preset says?
local function stands(self, session, preset)
  if self.policy:resolve({ session = session }).mode ~= preset.sandbox
    or self.approval:policy(session) ~= preset.approval then
    return false
  end
  local have, n = {}, 0
  for _, grant in ipairs(journal.grants(session)) do
    have[grant.path] = true
    n = n + (grant.id:find("^preset:") and 1 or 0)
  end
  for _, path in ipairs(preset.grants or {}) do
    if not have[core.sys.realpath(path) or path] then
      return false
    end
  end
  return n == #(preset.grants or {})
end

--- The name of the preset the session is under, or "custom".
function permission:current(session)
  local last = journal.last(session, "permission/preset")
  local name = last and last.preset
  if name and self.presets[name] and stands(self, session,
    self.presets[name]) then
    return name
  end
  for _, other in ipairs(self:names()) do
    if stands(self, session, self.presets[other]) then
      return other
    end
  end
  return "custom"
end

-- The events that take the session's grants from what they are to the
-- preset's own; grants that a person gave stay.
local function grant_events(session, preset, name, events)
  local kept = {}
  local function list()
    return table.move(kept, 1, #kept, 1, {})
  end
  local gone = {}
  for _, grant in ipairs(journal.grants(session)) do
    local from_preset = grant.id:find("^preset:") ~= nil
    kept[#kept + 1] = grant
    gone[#gone + 1] = from_preset and grant or nil
  end
  for _, grant in ipairs(gone) do
    for i, other in ipairs(kept) do
      if other == grant then
        table.remove(kept, i)
        break
      end
    end
    events[#events + 1] = { type = "sandbox/revoke", ignorable = true,
      data = { id = grant.id, grants = list() } }
  end
  for i, given in ipairs(preset.grants or {}) do
    local path = core.sys.realpath(given) or given
    local grant = { id = ("preset:%s:%d"):format(name, i), path = path,
      access = "write" }
    kept[#kept + 1] = grant
    events[#events + 1] = { type = "sandbox/grant", ignorable = true,
      data = { id = grant.id, path = path, access = "write",
        grants = list() } }
  end
end

--- Puts the session under a preset: every check first, then its events in
-- one frame. The preset that stands already writes nothing. True or nil, err.
function permission:set(session, name)
  local preset = self.presets[name]
  if not preset then
    return unknown(self, name)
  end
  local last = journal.last(session, "permission/preset")
  if last and last.preset == name and stands(self, session, preset) then
    return true
  end
  if self.policy.check_mode then
    local ok, err = self.policy:check_mode(session, preset.sandbox)
    if not ok then
      return nil, err
    end
  end
  local events = {
    { type = "permission/preset", data = { preset = name } },
    { type = "sandbox/mode", data = { mode = preset.sandbox } },
    { type = "approval/policy", data = { policy = preset.approval } },
  }
  grant_events(session, preset, name, events)
  return journal.append(session, events)
end

-- The nearest directory at or above `dir` that holds a .git, or nil.
local function repository(dir)
  while dir do
    if core.sys.kind((dir == "/" and "" or dir) .. "/.git") then
      return dir
    end
    dir = dir ~= "/" and (dir:match("^(.+)/[^/]*$") or "/") or nil
  end
end

--- What select() of a presets file is told. Nothing of it is read from files
-- that a confined command could write; that a repository is there is.
function permission:facts(session)
  local host = self.host
  return { platform = host.platform, hostname = host.hostname(),
    cwd = session and session.cwd or host.cwd, env = host.env,
    repository = repository(session and session.cwd or host.cwd),
    ci = (host.env.CI or "") ~= "" and host.env.CI ~= "false" }
end

--- The preset for a new session: what select() says, else the setting
-- permission.defaultPreset, else the row's `default`; nil when nothing does.
-- nil, err when select() fails or the name is none.
function permission:select(facts)
  local name
  if self.selects then
    local found, err = run_file(self.file, facts or self:facts())
    if not found then
      return nil, err
    end
    name = found.chosen
  else
    name = self.settings and self.settings:get("permission.defaultPreset")
      or self.default
  end
  if name ~= nil and not self.presets[name] then
    return unknown(self, name)
  end
  return name
end

--- Pins the default preset on a session that has just been made; one that
-- has a preset or a mode already keeps what it has. True or nil, err: then
-- the session is not to be used.
function permission:begin(session, facts)
  if journal.last(session, "permission/preset")
    or journal.last(session, "sandbox/mode") then
    return true
  end
  local name, err = self:select(facts or self:facts(session))
  if err then
    return nil, err
  elseif name then
    return self:set(session, name)
  end
  return true
end

local function load_file(self, path)
  local found, err = run_file(path)
  if not found then
    return nil, err
  elseif type(found.presets or {}) ~= "table" then
    return bad(path .. ": presets are a map from a name to a table", path)
  end
  for name, preset in pairs(found.presets or {}) do
    local ok
    ok, err = check_preset(name, preset, path)
    if not ok then
      return nil, err
    end
    self.presets[name] = preset
  end
  self.file, self.selects = path, found.selects
  return true
end

function M.start(deps, config)
  local self = setmetatable({ policy = deps.sandbox_policy,
    approval = deps.approval, settings = deps.settings, host = deps.host,
    presets = {}, default = config.default }, permission)
  for name, preset in pairs(config.presets) do
    self.presets[name] = preset
  end
  if config.presets_file then
    local ok, err = self.host.protect(config.presets_file)
    if ok then
      ok, err = load_file(self, config.presets_file)
    end
    if not ok then
      return nil, err
    end
  end
  if self.presets.custom then
    return bad("a preset cannot be called 'custom': that is what none is")
  end
  local name = self.settings and self.settings:get("permission.defaultPreset")
    or self.default
  if name ~= nil and not self.presets[name] then
    return unknown(self, name)
  end
  return self
end

return M
