--- dsh.journal: what approvals, presets and escalation write to a session's
-- log and read from it. lua/dsh/README.md says what a session offers.
local errors = require("dsh.errors")

local M = {}

--- Appends events ({type=, data=}, …) in one frame; true or nil, err.
function M.append(session, events)
  for _, event in ipairs(events) do
    if event.data.grants then -- a list, also when it is empty
      event.data.grants = require("dsh.json").array(event.data.grants)
    end
  end
  local ok, result, err = pcall(session.append, session, events)
  if not ok then
    return nil, errors.wrap(result, "IO")
  elseif not result then
    return nil, errors.wrap(err or "the session log cannot be written", "IO")
  end
  return true
end

--- The data of the newest event of this type, or nil.
function M.last(session, kind)
  return session:last(kind)
end

local function newest_turn(session)
  local started = session:last("turn/start")
  local ended = session:last("turn/end")
  local n = started and tonumber(started.turn) or 0
  return n, started ~= nil and (ended == nil or ended.turn ~= started.turn)
end

--- Appends events that have to lie inside a turn. Where none is open, one is
-- opened before `open` and closed after `close`, and the number is given
-- back for the closing call.
function M.append_in_turn(session, events, turn)
  if turn then
    events[#events + 1] = { type = "turn/end",
      data = { turn = turn, reason = { kind = "completed" } } }
    return M.append(session, events)
  end
  local n, open = newest_turn(session)
  if open then
    return M.append(session, events)
  end
  table.insert(events, 1, { type = "turn/start", data = { turn = n + 1 } })
  local ok, err = M.append(session, events)
  return ok and n + 1, err
end

--- The session's grants: {{id, path, access}, …}.
function M.grants(session)
  return session:grants() or {}
end

return M
