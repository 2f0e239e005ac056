--- dsh.cli_session: what `dshsh run --session ID` adds to a run: the policy
-- of a session's log, and the denials written to it. (Not a verb.)
local escalation = require("dsh.escalation")
local paths = require("dsh.paths")
local record = require("dsh.record")
local sessions = require("dsh.sessions")

local M = {}

function M.option(cmd)
  cmd:option("--session", "Run under the policy of this session, and log "
    .. "denials to it."):argname("<id>")
end

--- Opens the session that --session names, before anything runs:
-- {session, policy, from}; nil, err (SESSION_LOCKED, …). A session's mode is
-- what its log says: --mode may narrow it, and never widens it.
function M.open(args, app, ctx, mode, from)
  if args.workspace then
    return nil, "--session: the session has a directory of its own, "
      .. "without --workspace"
  end
  local all = ctx.sessions
    or sessions.start({ host = { home = paths.home(), warn = function(m)
      app.err("%s", m)
    end } }, {})
  local session, err = all:open(args.session)
  if not session then
    return nil, err
  end
  local own = session:mode()
  if own and args.mode and escalation.is_wider(own, args.mode) then
    app.err("--mode %s is wider than the session's %s, which stands",
      args.mode, own)
    args.mode = nil
  end
  if own and not args.mode then
    mode, from = own, "session"
  end
  return { session = session, from = from,
    policy = ctx.sandbox_policy:resolve({ session = session, mode = mode }) }
end

-- The errno that a refusal's words stand for, where there is no record.
local function errno_of(result)
  local text = result.stderr and result.stderr.text or ""
  return text:lower():find("read-only file system", 1, true) and "EROFS"
    or "EACCES"
end

local function event(result, denial)
  local box = result.sandbox
  return { type = "sandbox/denied", ignorable = true, data = {
    op = denial.op, path = denial.path and record.utf8(denial.path),
    errno = denial.errno_name or denial.errno, mode = box.mode,
    backend = box.backend, evidence = box.evidence or "records" } }
end

--- Writes the denials of a result to the session, one event each, in one
-- frame. True, or nil, err.
function M.log(session, result)
  local events = {}
  for i, denial in ipairs(result.sandbox.denials or {}) do
    events[i] = event(result, denial)
  end
  if #events == 0 and result.sandbox.denied then
    events[1] = event(result, { errno = errno_of(result) })
  end
  if #events == 0 then
    return true
  end
  return session:append(events)
end

return M
