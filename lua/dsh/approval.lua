--- dsh.approval: who may allow an action that the policy does not.
--
-- A request is data: what would run, from which mode, to what, and why. It
-- is answered by rules first, then by answerers in the order in which they
-- were added; the first that answers decides. Outcomes: allowed-once,
-- allowed-session (path grants only), rejected, cancelled, unavailable.
-- Every request leaves an asked/decided pair in the session's log; what
-- cannot be written there is not granted.
local errors = require("dsh.errors")
local journal = require("dsh.journal")

local M = {
  provides = "approval",
  schema = {
    policy = { type = "string", enum = { "ask", "never" }, default = "ask" },
    -- {argv = {"git", "push", "**"}, outcome = "allowed-once"}: "*" is one
    -- word, a last "**" any number of them. Words are never split or joined.
    rules = { type = "list", default = {}, items = { type = "map", fields = {
      argv = { type = "list", items = { type = "string" }, required = true,
        min = 1 },
      outcome = { type = "string", required = true,
        enum = { "allowed-once", "rejected" } },
    } } },
  },
}

local OUTCOMES = { ["allowed-once"] = true, ["allowed-session"] = true,
  rejected = true, cancelled = true, unavailable = true }

local approval = {}
approval.__index = approval

--- The session's policy: its last approval/policy event, else the row's.
function approval:policy(session)
  local data = session and journal.last(session, "approval/policy")
  local policy = data and data.policy
  if policy == "never" or policy == "ask" then
    return policy
  end
  return data and "never" or self.default
end

--- Writes one approval/policy event; nothing when it stands already.
function approval:set_policy(session, policy, source)
  if policy ~= "ask" and policy ~= "never" then
    error("approval policy: expected \"ask\" or \"never\", got "
      .. tostring(policy), 2)
  end
  if self:policy(session) == policy then
    return true
  end
  return journal.append(session, { { type = "approval/policy",
    data = { policy = policy, source = source } } })
end

--- Adds an answerer: f(request) returns an outcome, or nil to pass. Returns
-- a function that removes it.
function approval:add_answerer(f)
  if type(f) ~= "function" then
    error("answerer: expected function, got " .. type(f), 2)
  end
  local list = self.answerers
  local item = { f = f }
  list[#list + 1] = item
  return function()
    for i, other in ipairs(list) do
      if other == item then
        table.remove(list, i)
        return
      end
    end
  end
end

--- Would anyone be asked? (A rule may still answer without anyone.)
function approval:has_answerer()
  return #self.answerers > 0
end

-- Does the pattern, a list of words, match argv, a list of words?
function M.matches(pattern, argv)
  for i, word in ipairs(pattern) do
    if word == "**" and i == #pattern then
      return true
    elseif argv[i] == nil or (word ~= "*" and word ~= argv[i]) then
      return false
    end
  end
  return #argv == #pattern
end

local function by_rule(rules, request)
  local argv = request.action.argv
  for _, rule in ipairs(argv and rules or {}) do
    if M.matches(rule.argv, argv) then
      return rule.outcome
    end
  end
end

-- An answer that makes sense for this request; anything else is none.
local function valid(request, outcome)
  return OUTCOMES[outcome] and (outcome ~= "allowed-session"
    or request.to.path ~= nil)
end

-- The outcome, and why it is no answer, if it is none.
local function decide(self, request, policy)
  if policy == "never" then
    return "rejected", "the approval policy is never"
  end
  local outcome = by_rule(self.rules, request)
  if outcome then
    return outcome
  end
  for _, item in ipairs(table.move(self.answerers, 1, #self.answerers, 1,
    {})) do
    local ok, answer = pcall(item.f, request)
    if not ok then
      return "unavailable", "an answerer failed: " .. tostring(answer)
    elseif answer ~= nil then
      if valid(request, answer) then
        return answer
      end
      return "unavailable", "an answerer gave an unknown answer"
    end
  end
  return "unavailable", "nobody is there to answer"
end

local function check_request(r)
  local function want(kind, value, what)
    if type(value) ~= kind then
      error(("request.%s: expected %s, got %s"):format(what, kind,
        type(value)), 4)
    end
  end
  want("table", r.action, "action")
  want("table", r.to, "to")
  want("string", r.tool, "tool")
  want("string", r.reason, "reason")
  if (r.to.mode == nil) == (r.to.path == nil) then
    error("request.to: expected either mode or path", 4)
  end
end

local function asked_event(request)
  return { type = "approval/asked", data = { id = request.id,
    toolName = request.tool, callId = request.call_id,
    reason = request.reason } }
end

local function unwritten(err)
  return { outcome = "unavailable", why = "the session log cannot be "
    .. "written: " .. err.message, error = err }
end

--- Asks: {session, tool, action = {argv|path}, from_mode, to = {mode} or
-- {path, access}, reason, call_id?} → {outcome, id, why?}. Never raises for
-- what an answerer does.
function approval:request(r)
  check_request(r)
  local request = { id = self.next_id(), tool = r.tool, action = r.action,
    from_mode = r.from_mode, to = r.to, reason = r.reason,
    call_id = r.call_id, session_id = r.session and r.session.id }
  if not r.session then
    return unwritten({ message = "no session" })
  end
  local turn, err = journal.append_in_turn(r.session,
    { asked_event(request) })
  if not turn then
    return unwritten(err)
  end
  local outcome, why = decide(self, request, self:policy(r.session))
  local decided = { { type = "approval/decided",
    data = { id = request.id, outcome = outcome } } }
  local ok
  if turn == true then
    ok, err = journal.append(r.session, decided)
  else
    ok, err = journal.append_in_turn(r.session, decided, turn)
  end
  if not ok then
    return unwritten(err)
  end
  return { outcome = outcome, id = request.id, why = why }
end

local CODES = { rejected = "APPROVAL_REJECTED",
  cancelled = "APPROVAL_CANCELLED", unavailable = "APPROVAL_UNAVAILABLE" }

--- The error that a request's answer stands for, or nil when allowed.
function M.error_of(answer)
  local code = CODES[answer.outcome]
  return code and errors.new(code, "approval " .. answer.outcome
    .. (answer.why and ": " .. answer.why or ""),
    { stage = "approval", id = answer.id, cause = answer.error })
end

-- Ids that do not repeat within a log, whichever process wrote it.
local function id_maker()
  local sys = require("dsh.core").sys
  local base, n = ("%x-%x"):format(sys.time_ms(), sys.pid()), 0
  return function()
    n = n + 1
    return ("ap-%s-%d"):format(base, n)
  end
end

function M.start(_, config)
  return setmetatable({ default = config.policy, rules = config.rules or {},
    answerers = {}, next_id = id_maker() }, approval)
end

return M
