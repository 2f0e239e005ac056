--- dsh.sandbox_policy: the one home of policy. Every consumer resolves here.
--
-- A call's mode is the explicit, approved one, else the session's last
-- sandbox/mode event, else the deployment's default. Its root is the
-- session's cwd, else the configured workspace root. Nothing changes a mode
-- but set_mode, and that is one event.
local core = require("dsh.core")
local errors = require("dsh.errors")
local json = require("dsh.json")

local MODES = { "read-only", "workspace-write", "danger-full-access" }
local KNOWN = {}
for _, mode in ipairs(MODES) do
  KNOWN[mode] = true
end

local M = {
  provides = "sandbox_policy",
  needs = { "host" },
  schema = {
    mode = { type = "string", default = "read-only", enum = MODES },
    workspace_root = { type = "path" },
    -- Absolute paths, or relative to the root, that stay read-only in it.
    protected = { type = "list", items = { type = "string" } },
    -- Further writable roots of every policy.
    extra_roots = { type = "list", items = { type = "path" } },
  },
}

local policy = {}
policy.__index = policy

local function expected(what, value)
  return ('%s: expected "read-only", "workspace-write" or '
    .. '"danger-full-access", got %s'):format(what,
    type(value) == "string" and ("%q"):format(value) or type(value))
end

--- The mode that a list of events {type, data} settles: the last one wins;
-- nil when there is none; nil, err for an unknown mode. Pure.
function M.effective_mode(events)
  local mode
  for _, event in ipairs(events) do
    if event.type == "sandbox/mode" then
      mode = event.data and event.data.mode
      if not KNOWN[mode] then
        return errors.fail("INVARIANT", expected("sandbox/mode event", mode),
          { stage = "policy" })
      end
    end
  end
  return mode
end

function policy.effective_mode(_, events)
  return M.effective_mode(events)
end

--- The session's own mode, nil when it never switched.
function policy.override_of(_, session)
  local last = session:last("sandbox/mode")
  return last and last.mode
end

local RESOLVE = { session = true, mode = true }

local function add_all(list, more)
  for _, item in ipairs(more or {}) do
    list[#list + 1] = item
  end
end

local function root_of(self, session)
  local cwd = session and session.cwd
  if not cwd then
    return self.workspace_root
  end
  return core.sys.realpath(cwd) or cwd
end

--- One complete policy for a call: {session?, mode?}. `mode` is explicit and
-- approved: for trusted code.
function policy:resolve(opts)
  opts = opts or {}
  for key in pairs(opts) do
    if not RESOLVE[key] then
      error(("resolve: %s: unknown field"):format(tostring(key)), 2)
    end
  end
  if opts.mode ~= nil and not KNOWN[opts.mode] then
    error(expected("resolve: mode", opts.mode), 2)
  end
  local session = opts.session
  local extra, protected = {}, {}
  add_all(extra, self.extra_roots)
  -- A grant is of the place that was shown when it was given: where a link
  -- leads elsewhere by now, it grants nothing.
  for _, grant in ipairs(session and session:grants() or {}) do
    if grant.access == "write"
      and core.sys.realpath(grant.path) == grant.path then
      extra[#extra + 1] = grant.path
    end
  end
  add_all(protected, self.protected)
  return {
    mode = opts.mode or session and self:override_of(session)
      or self.default_mode,
    workspace_root = root_of(self, session),
    session_id = session and session.id or nil,
    extra_roots = #extra > 0 and extra or nil,
    protected = #protected > 0 and protected or nil,
  }
end

--- Registers f(session, mode) → true, or nil, err, that every switch has to
-- pass; returns a function that removes it.
function policy:add_guard(f)
  if type(f) ~= "function" then
    error("guard: expected function, got " .. type(f), 2)
  end
  local entry = { f }
  self.guards[#self.guards + 1] = entry
  return function()
    for i, other in ipairs(self.guards) do
      if other == entry then
        table.remove(self.guards, i)
        return
      end
    end
  end
end

--- May the session switch to this mode now? True, or nil, err.
function policy:check_mode(session, mode)
  if not KNOWN[mode] then
    return errors.fail("INVARIANT", expected("mode", mode),
      { stage = "policy" })
  end
  for _, guard in ipairs(self.guards) do
    local ok, err = guard[1](session, mode)
    if not ok then
      return nil, err
    end
  end
  return true
end

--- Switches the session: exactly one event. Its seq, or nil, err.
function policy:set_mode(session, mode, source)
  local ok, err = self:check_mode(session, mode)
  if not ok then
    return nil, err
  end
  return session:append({ type = "sandbox/mode",
    data = { mode = mode, source = source } })
end

--- Pins on a child session what its parent is under: the parent's override
-- as one event, and no asking. In one frame.
function policy:delegate(parent, child)
  local events = {}
  local mode = self:override_of(parent)
  if mode then
    local ok, err = self:check_mode(child, mode)
    if not ok then
      return nil, err
    end
    events[1] = { type = "sandbox/mode",
      data = { mode = mode, source = "delegation" } }
  end
  events[#events + 1] = { type = "approval/policy",
    data = { policy = "never", source = "delegation" } }
  return child:append(events)
end

-- path grants ----------------------------------------------------------------

local function copy(list)
  return table.move(list, 1, #list, 1, {})
end

--- Adds a writable root to the session, as one event. Its id, or nil, err.
function policy.grant(_, session, path, id)
  if type(path) ~= "string" or path:sub(1, 1) ~= "/" then
    error("grant: path: expected an absolute path", 2)
  end
  path = core.sys.realpath(path) or path
  local grants = copy(session:grants())
  id = id or ("grant:%d"):format(core.sys.time_ms())
  while true do
    local taken
    for _, grant in ipairs(grants) do
      taken = taken or grant.id == id
    end
    if not taken then
      break
    end
    id = id .. "+"
  end
  grants[#grants + 1] = { id = id, path = path, access = "write" }
  local seq, err = session:append({ type = "sandbox/grant", ignorable = true,
    data = { id = id, path = path, access = "write",
      grants = json.array(grants) } })
  return seq and id, err
end

--- Takes a grant back; true, or nil, err. One that is not there is an error.
function policy.revoke(_, session, id)
  local grants = copy(session:grants())
  for i, grant in ipairs(grants) do
    if grant.id == id then
      table.remove(grants, i)
      local seq, err = session:append({ type = "sandbox/revoke",
        ignorable = true, data = { id = id, grants = json.array(grants) } })
      return seq and true, err
    end
  end
  return errors.fail("MISUSE", ("the session has no grant %s"):format(
    tostring(id)), { stage = "policy" })
end

-- what a model is told -------------------------------------------------------

local READ_ONLY = "Current DSH file policy: read-only. Any available operation "
  .. "enforced by the DSH file sandbox cannot modify files in the standing "
  .. "mode. Do not refuse a required modification from this policy alone: try "
  .. "an available tool normally and follow any denial and escalation "
  .. "guidance it returns."
local WORKSPACE = "Current DSH file policy: workspace-write. Available "
  .. "operations may modify files under the session workspace, %s; some "
  .. "temporary areas may be writable too."
local GRANTED = " Also writable by grant: %s."
local DANGER = "Current DSH file policy: danger-full-access. The sandbox does "
  .. "not restrict modifications."

--- The text for a policy record. Pure; the same policy, the same bytes.
function M.text(p)
  if p.mode == "danger-full-access" then
    return DANGER
  end
  local text = p.mode == "read-only" and READ_ONLY
    or (WORKSPACE:gsub("%%s", function()
      return json.encode(p.workspace_root)
    end))
  local roots = {}
  for i, root in ipairs(p.extra_roots or {}) do
    roots[i] = json.encode(root)
  end
  if #roots > 0 then
    text = text .. GRANTED:gsub("%%s", function()
      return table.concat(roots, ", ")
    end)
  end
  return text
end

--- The text for what `session` is under (nil: the deployment's default).
function policy:context_text(session)
  return M.text(self:resolve({ session = session }))
end

local SOURCE = "sandbox-policy"

local function last_snapshot(session)
  local found
  for event in session:events() do
    local source = event and event.type == "user/message"
      and event.data.source
    if type(source) == "table" and source.kind == SOURCE then
      found = event.data.content[1].text
    end
  end
  return found
end

--- Logs the text as a sourced user/message when it is not the last one
-- logged. True when it wrote, false when it stood; nil, err.
function policy:context_snapshot(session)
  local text = self:context_text(session)
  if session.snapshot == nil then
    local ok, found = pcall(last_snapshot, session)
    if not ok then
      return nil, errors.wrap(found, "IO")
    end
    session.snapshot = found or false
  end
  if session.snapshot == text then
    return false
  end
  local seq, err = session:append({ type = "user/message", data = json.object({
    content = { { type = "text", text = text } },
    source = { kind = SOURCE, form = "snapshot" }, role = "user" },
    { "content", "source", "role" }) })
  if not seq then
    return nil, err
  end
  session.snapshot = text
  return true
end

function M.start(deps, config)
  local root = config.workspace_root or deps.host and deps.host.cwd
    or core.sys.cwd()
  if not KNOWN[config.mode] then
    return errors.fail("CONFIG_INVALID", expected("mode", config.mode),
      { stage = "policy" })
  end
  return setmetatable({ default_mode = config.mode,
    workspace_root = core.sys.realpath(root) or root,
    protected = config.protected, extra_roots = config.extra_roots,
    guards = {} }, policy)
end

return M
