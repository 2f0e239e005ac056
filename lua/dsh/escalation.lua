--- dsh.escalation: one call under a wider policy than the session's, if
-- somebody allows it. The same for commands and for files.
--
--   local policy, err = escalation.ask(approval, {
--     policy = resolved,               -- what the call has now
--     to = {mode = "workspace-write"}  -- or {path = "/x", access = "write"}
--     reason = "…", tool = "bash", action = {argv = {…}}, session = s })
--
-- Order: is it wider at all, is there somebody to ask, ask, and only then a
-- new policy. The policy serves the one call that it is given to; nothing
-- has run before.
local approval_module = require("dsh.approval")
local errors = require("dsh.errors")
local journal = require("dsh.journal")

local M = {}

local WIDTH = { ["read-only"] = 1, ["workspace-write"] = 2,
  ["danger-full-access"] = 3 }

local function invalid(message)
  return errors.fail("ESCALATION_INVALID", message, { stage = "escalation" })
end

--- Is mode b strictly wider than mode a? Unknown modes never widen.
function M.is_wider(a, b)
  return WIDTH[a] ~= nil and WIDTH[b] ~= nil and WIDTH[b] > WIDTH[a]
end

--- The canonical path of what is there, or nil. What is asked, shown and
-- granted is always this: a link that a confined command planted would lead a
-- grant elsewhere than the person saw.
function M.realpath(path)
  return (require("dsh.core").sys.realpath(path))
end

local function within(path, dir)
  return path == dir or dir == "/" or path:sub(1, #dir + 1) == dir .. "/"
end

-- Does the policy already carry this path among its roots?
local function covered(policy, path)
  if policy.mode == "danger-full-access" then
    return true
  elseif policy.mode == "workspace-write"
    and within(path, policy.workspace_root) then
    return true
  end
  for _, root in ipairs(policy.extra_roots or {}) do
    if within(path, root) then
      return true
    end
  end
  return false
end

local function has_dots(path)
  return (path .. "/"):find("/%.%.?/") ~= nil
end

local function check_mode(r)
  if not WIDTH[r.to.mode] then
    return invalid(("unknown mode '%s'"):format(tostring(r.to.mode)))
  elseif not M.is_wider(r.policy.mode, r.to.mode) then
    return invalid(("%s is not wider than %s"):format(r.to.mode,
      r.policy.mode))
  end
  return { mode = r.to.mode }
end

local function check_path(r)
  local path = r.to.path
  if type(path) ~= "string" or path:sub(1, 1) ~= "/" or has_dots(path)
    or path:find("\0", 1, true) then
    return invalid("a path grant needs an absolute path without '..'")
  end
  local real = M.realpath(path)
  if not real then
    return invalid(("%s does not exist: ask for the directory that it would "
      .. "be in"):format(path))
  elseif real == "/" then
    return invalid("the root directory is not a path grant")
  elseif covered(r.policy, real) then
    return invalid(("%s is already writable under this policy"):format(real))
  end
  return { path = real, access = r.to.access or "write" }
end

-- What may be put to somebody: `to` with a canonical path; or nil, err.
local function check(r)
  if type(r.reason) ~= "string" or not r.reason:find("%S") then
    return invalid("a reason is required and must not be blank")
  elseif r.to.mode ~= nil and r.to.path ~= nil then
    return invalid("either a mode or a path, not both")
  elseif r.to.mode ~= nil then
    return check_mode(r)
  end
  return check_path(r)
end

--- The policy with the mode or the root added; the given one is unchanged.
function M.widen(policy, to)
  local out = {}
  for k, v in pairs(policy) do
    out[k] = v
  end
  if to.mode then
    out.mode = to.mode
    return out
  end
  out.extra_roots = table.move(policy.extra_roots or {}, 1,
    #(policy.extra_roots or {}), 1, {})
  out.extra_roots[#out.extra_roots + 1] = to.path
  return out
end

-- A grant for the session is its event; the id is the request's.
local function record_grant(session, id, to)
  local grants = table.move(journal.grants(session), 1,
    #journal.grants(session), 1, {})
  grants[#grants + 1] = { id = id, path = to.path, access = to.access }
  return journal.append(session, { { type = "sandbox/grant", ignorable = true,
    data = { id = id, path = to.path, access = to.access,
      grants = grants } } })
end

--- Asks for one call's wider policy: policy, answer; or nil, err, answer?.
function M.ask(approval, r)
  local to, err = check(r)
  if not to then
    return nil, err
  elseif not approval then
    return errors.fail("APPROVAL_UNAVAILABLE", "this composition has no "
      .. "approval service", { stage = "approval" })
  end
  local answer = approval:request({ session = r.session, tool = r.tool,
    action = r.action, from_mode = r.policy.mode, to = to,
    reason = r.reason, call_id = r.call_id })
  err = approval_module.error_of(answer)
  if err then
    return nil, err, answer
  end
  if answer.outcome == "allowed-session" then
    local ok
    ok, err = record_grant(r.session, answer.id, to)
    if not ok then
      return nil, errors.new("APPROVAL_UNAVAILABLE", "the grant cannot be "
        .. "written to the session log: " .. err.message,
        { stage = "approval", cause = err }), answer
    end
  end
  return M.widen(r.policy, to), answer
end

--- Asks, and then makes the one call that the grant serves: call(policy,
-- answer); its results. nil, err, answer? when it was not allowed.
function M.call(approval, r, call)
  local policy, err, answer = M.ask(approval, r)
  if not policy then
    return nil, err, answer
  end
  return call(policy, err)
end

--- Takes back a session's grant by its id; true, or nil, err.
function M.revoke(session, id)
  local kept, found = {}, false
  for _, grant in ipairs(journal.grants(session)) do
    if grant.id == id then
      found = true
    else
      kept[#kept + 1] = grant
    end
  end
  if not found then
    return invalid(("there is no grant '%s'"):format(tostring(id)))
  end
  return journal.append(session, { { type = "sandbox/revoke",
    ignorable = true, data = { id = id, grants = kept } } })
end

--- The smallest grant that would have served a denied operation, as `to` of
-- a request: the file itself where it exists, else the directory in which
-- something would be made. exists(path) tells which.
function M.proposal(denial, exists)
  local path = denial.path
  if type(path) ~= "string" or path:sub(1, 1) ~= "/" then
    return nil
  end
  local renames = denial.op == "rename" or denial.op == "unlink"
    or denial.op == "rmdir" or denial.op == "link"
  while path ~= "/" and (renames or not exists(path)) do
    renames = false
    path = path:match("^(.+)/[^/]+/*$") or "/"
  end
  path = M.realpath(path)
  if not path or path == "/" then
    return nil
  end
  return { path = path, access = "write" }
end

return M
