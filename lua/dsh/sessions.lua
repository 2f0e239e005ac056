--- dsh.sessions: session logs, made, found and resumed.
--
--   local s = assert(ctx.sessions:create{ cwd = "/work" })  -- writes nothing
--   assert(s:append{ type = "sandbox/mode", data = { mode = "read-only" } })
--   s:close()
--   local again = assert(ctx.sessions:open(s.id))    -- locked and verified
--
-- A session is under one writer at a time: SESSION_LOCKED for a second.
local core = require("dsh.core")
local errors = require("dsh.errors")
local json = require("dsh.json")
local names = require("dsh.session_names")

local M = {
  provides = "sessions",
  needs = { "host" },
  schema = {
    -- Where the logs lie; $DSH_HOME/sessions unless given.
    root = { type = "path" },
  },
}

local HEADER_ORDER = { "type", "version", "id", "createdAt", "cwd",
  "parentSession", "seedLength", "origin", "delegationDepth", "agentPreset" }

-- one session --------------------------------------------------------------

local session = {}
session.__index = session

-- The types that the core folds, and so judges when they are not verified.
local FOLDED = {
  ["sandbox/mode"] = function(state)
    return state.mode and { mode = state.mode }
  end,
  ["permission/preset"] = function(state)
    return state.preset and { preset = state.preset }
  end,
  ["approval/policy"] = function(state)
    return state.approval and { policy = state.approval }
  end,
}

local function is_list(events)
  return events.type == nil and #events > 0
end

local function prepare(events)
  if type(events) ~= "table" then
    error("events: expected a table, got " .. type(events), 3)
  end
  local list = {}
  for i, event in ipairs(is_list(events) and events or { events }) do
    if type(event.type) ~= "string" or type(event.data) ~= "table" then
      error(("events[%d]: expected {type = string, data = table}"):format(i),
        3)
    end
    list[i] = { type = event.type, data = json.encode(event.data),
      ignorable = event.ignorable }
  end
  return list
end

local function note(self, list)
  for _, event in ipairs(list) do
    local data = json.decode(event.data)
    self.latest[event.type] = data
    if event.type == "sandbox/mode" then
      self.state.mode = data.mode
    elseif event.type == "permission/preset" then
      self.state.preset = data.preset
    elseif event.type == "approval/policy" then
      self.state.approval = data.policy
    elseif event.type == "sandbox/grant" or event.type == "sandbox/revoke" then
      self.granted = data.grants
    end
  end
end

-- Is dir `tree` itself or beneath it? Both as they are in the file system.
local function beneath(dir, tree)
  tree = tree and core.sys.realpath(tree)
  return tree and (dir .. "/"):sub(1, #tree + 1) == tree .. "/" and tree
end

-- A log is never writable from inside a sandbox. The state directory is
-- guarded as a whole (by the sandbox); a root elsewhere, or the directory of
-- a log that lies under neither, here.
local function guard(path, home, root)
  local dir = core.sys.realpath(path:match("^(.*)/") or ".")
  if not dir or beneath(dir, home) then
    return true
  end
  return core.confine.control_add(beneath(dir, root) or dir)
end

--- Appends one event {type, data, ignorable?}, or a list of them, as one
-- frame: all or none. The first one's seq, or nil, err.
function session:append(events)
  if not self.writer then
    return errors.fail("IO", "the session is closed", { stage = "log" })
  end
  local list = prepare(events)
  local seq, err = self.writer:append(list)
  if not seq then
    return nil, err
  end
  note(self, list)
  if not self.written then
    self.written = true
    local ok
    ok, err = guard(self.path, self.home, self.root)
    if not ok then
      return nil, err
    end
  end
  return seq
end

-- The newest event of a type that nobody folds: read for, once.
local function search(self, kind)
  local log <close> = core.replay.open(self.path)
  local found
  while log do
    local rec, err = log:next()
    if not rec then
      return found, err
    end
    if rec.type == kind then
      found = rec.text
    end
  end
end

--- The data of the newest event of this type, or nil.
function session:last(kind)
  local folded = FOLDED[kind]
  if folded then
    return self.latest[kind] or folded(self.state)
  end
  if self.latest[kind] == nil and self.resumed then
    local text = search(self, kind)
    local event = text and json.decode(text)
    self.latest[kind] = event and event.data or false
  end
  return self.latest[kind] or nil
end

--- The path grants that stand: {{id, path, access}, …}.
function session:grants()
  return self.granted
end

--- The mode that the log says, or nil: no switch.
function session:mode()
  return self.state.mode
end

--- Iterates over the log's events: for event, record in session:events().
-- An error raises.
function session:events()
  local log = self.written and assert(core.replay.open(self.path))
  return function()
    while log do
      local rec, err = log:next()
      if not rec then
        log:close()
        log = nil
        if err then
          error(err, 0)
        end
      elseif rec.seq >= 0 then
        return json.decode(rec.text), rec
      end
    end
  end
end

--- Lets the log go. Idempotent.
function session:close()
  if self.writer then
    self.writer:close()
    self.writer = nil
  end
end
session.__close = session.close
session.__gc = session.close

local function new_session(fields)
  fields.latest = {}
  fields.state = fields.state or {}
  fields.granted = fields.state.grants and json.decode(fields.state.grants)
    or {}
  return setmetatable(fields, session)
end

-- all of them --------------------------------------------------------------

local sessions = {}
sessions.__index = sessions

local function uuid()
  local f = assert(io.open("/dev/urandom", "rb"))
  local b = { f:read(16):byte(1, 16) }
  f:close()
  b[7] = b[7] & 0x0F | 0x40
  b[9] = b[9] & 0x3F | 0x80
  local x = ("%02x"):rep(2)
  return table.concat({ x, x, "-", x, "-", x, "-", x, "-", x, x, x })
    :format(table.unpack(b))
end

local CREATE = { id = "string", cwd = "string", parent = "string",
  origin = "any", delegation_depth = "number", agent_preset = "string",
  seed_length = "number" }

local function check_create(opts)
  for key, value in pairs(opts) do
    local want = CREATE[key]
    if not want then
      error(("sessions: create: %s: unknown field"):format(tostring(key)), 3)
    elseif want ~= "any" and type(value) ~= want then
      error(("sessions: create: %s: expected %s, got %s"):format(key, want,
        type(value)), 3)
    end
  end
end

local function no_root()
  return errors.fail("CONFIG_INVALID", "there is no place for session logs: "
    .. "set DSH_HOME, or HOME", { stage = "sessions" })
end

local function header_of(id, cwd, opts)
  return json.encode(json.object({ type = "session", version = 0, id = id,
    createdAt = core.sys.time_ms(), cwd = cwd, parentSession = opts.parent,
    seedLength = opts.seed_length, origin = opts.origin,
    delegationDepth = opts.delegation_depth or 0,
    agentPreset = opts.agent_preset }, HEADER_ORDER))
end

--- A new session {id?, cwd?, parent?, delegation_depth?, origin?,
-- agent_preset?, seed_length?}; its file appears with the first append.
function sessions:create(opts)
  opts = opts or {}
  check_create(opts)
  if not self.root then
    return no_root()
  end
  local id = opts.id or uuid()
  local name, why = names.session(id)
  if not name then
    error("sessions: create: id: " .. why, 2)
  end
  local cwd, err
  if opts.cwd then
    cwd, err = core.sys.realpath(opts.cwd)
    if not cwd then
      return nil, err
    end
  end
  local path = ("%s/%s/%s/%s"):format(self.root, names.project(cwd), name,
    names.file)
  if core.sys.kind(path) then
    return errors.fail("IO", ("session %s exists already"):format(id),
      { stage = "sessions", path = path })
  end
  local header = header_of(id, cwd, opts)
  local writer
  writer, err = core.logwrite.create(path, header)
  if not writer then
    return nil, err
  end
  return new_session({ id = id, cwd = cwd, path = path, writer = writer,
    home = self.home, root = self.root, header = json.decode(header) })
end

--- A session that this one delegates to; sandbox_policy:delegate pins what
-- it may do. opts as for create.
function sessions:child(parent, opts)
  local given = {}
  for key, value in pairs(opts or {}) do
    given[key] = value
  end
  given.parent = parent.id
  given.cwd = given.cwd or parent.cwd
  given.delegation_depth = (parent.header.delegationDepth or 0) + 1
  return self:create(given)
end

local function log_in(dir)
  for _, file in ipairs({ names.file, names.raw_file }) do
    if core.sys.kind(dir .. "/" .. file) == "file" then
      return dir .. "/" .. file
    end
  end
end

local function list_dir(dir)
  local found = {}
  for _, name in ipairs(core.sys.list(dir) or {}) do
    if name ~= "." and name ~= ".." then
      found[#found + 1] = name
    end
  end
  table.sort(found)
  return found
end

--- The file of a session, by its id; nil, err when there is none, or more
-- than one.
function sessions:find(id)
  if type(id) ~= "string" then
    error("session id: expected string, got " .. type(id), 2)
  end
  if not self.root then
    return no_root()
  end
  local name = names.session(id)
  local found
  for _, project in ipairs(name and list_dir(self.root) or {}) do
    local path = log_in(self.root .. "/" .. project .. "/" .. name)
    if path and found then
      return errors.fail("SESSION_NOT_FOUND", ("session %s is in more than "
        .. "one project: give its file"):format(id), { stage = "sessions" })
    end
    found = found or path
  end
  if not found then
    return errors.fail("SESSION_NOT_FOUND", ("there is no session %s under %s")
      :format(id, self.root), { stage = "sessions" })
  end
  return found
end

-- The header's fields, if the header is this id's (nil: any).
local function read_header(path, id)
  local text, err = core.replay.header(path)
  if not text then
    return nil, err
  end
  local header
  header, err = json.decode(text)
  if not header then
    return nil, err
  end
  if id and header.id ~= id then
    return errors.fail("SESSION_CORRUPT", ("the header says session %s, the "
      .. "directory %s"):format(tostring(header.id), id),
      { stage = "sessions", path = path })
  end
  return header
end

--- Resumes a session by its id, or by its file (anything with a "/" that
-- is one): locked, verified in full. nil, err: SESSION_NOT_FOUND,
-- SESSION_LOCKED, SESSION_CORRUPT, INVARIANT, …
function sessions:open(id)
  local path, err
  if id:find("/", 1, true) and core.sys.kind(id) == "file" then
    path, id = id, nil
  else
    path, err = self:find(id)
    if not path then
      return nil, err
    end
  end
  local writer, state = core.logwrite.resume(path)
  if not writer then
    return nil, state
  end
  local header
  header, err = read_header(path, id)
  local guarded = header
  if header then
    guarded, err = guard(path, self.home, self.root)
  end
  if not guarded then
    writer:close()
    return nil, err
  end
  if state.tail.torn and self.warn then
    self.warn(("session %s: incomplete bytes at %d were left by an append "
      .. "that never finished"):format(header.id, state.tail.at))
  end
  return new_session({ id = header.id, cwd = header.cwd, path = path,
    writer = writer, header = header, state = state, resumed = true,
    written = true })
end
sessions.resume = sessions.open

local function entry(self, project, dir)
  local path = log_in(("%s/%s/%s"):format(self.root, project, dir))
  if not path then
    return nil
  end
  local header, err = read_header(path)
  if header and names.session(header.id) ~= dir then
    header, err = errors.fail("SESSION_CORRUPT", ("the header says session "
      .. "%s, the directory %s"):format(header.id, dir), { path = path,
      stage = "sessions" })
  end
  header = header or {}
  return { id = header.id or dir, project = project, path = path,
    cwd = header.cwd, created_at = header.createdAt,
    parent = header.parentSession, error = err }
end

--- Every session under the root, read no further than its header; one that
-- cannot be read has `error`, and the others are there all the same.
function sessions:list()
  local out = {}
  if not self.root then
    return no_root()
  end
  for _, project in ipairs(list_dir(self.root)) do
    for _, dir in ipairs(list_dir(self.root .. "/" .. project)) do
      out[#out + 1] = entry(self, project, dir)
    end
  end
  return out
end

function M.start(deps, config)
  local home = deps.host and deps.host.home
  return setmetatable({ root = config.root or home and home .. "/sessions",
    home = home,
    warn = deps.host and deps.host.warn }, sessions)
end

return M
