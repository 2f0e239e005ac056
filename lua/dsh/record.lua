--- dsh.record: a result of Lua as the JSON record, and as an exit status.
-- Names are camelCase in JSON. Bytes that are not UTF-8 appear as text with
-- U+FFFD in their place and, exactly, as base64 beside it.
local json = require("dsh.json")

local M = {}

local ORDER = { "v", "started", "stage", "errno", "exitCode", "signal",
  "timedOut", "aborted", "stdout", "stderr", "sandbox" }
local SANDBOX_ORDER = { "mode", "modeFrom", "backend", "enforcement", "gaps",
  "limits", "denied", "evidence", "denials", "runnerFailed" }
local LISTS = { gaps = true, limits = true, denials = true, envDropped = true,
  denialSignatures = true, runnerFailureRules = true, argv = true,
  allowedExitCodes = true, fatalSignatures = true, informationalLines = true }

local DIGITS =
  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

function M.base64(bytes)
  local out = {}
  for i = 1, #bytes, 3 do
    local a, b, c = bytes:byte(i, i + 2)
    local n = a << 16 | (b or 0) << 8 | (c or 0)
    for k = 0, 3 do
      local d = n >> (18 - 6 * k) & 63
      out[#out + 1] = (k == 2 and not b or k == 3 and not c) and "="
        or DIGITS:sub(d + 1, d + 1)
    end
  end
  return table.concat(out)
end

--- The text with each byte that is not part of UTF-8 as U+FFFD.
function M.utf8(bytes)
  local out, at = {}, 1
  while at <= #bytes do
    local _, bad = utf8.len(bytes, at)
    if not bad then
      out[#out + 1] = bytes:sub(at)
      break
    end
    out[#out + 1] = bytes:sub(at, bad - 1)
    out[#out + 1] = "\u{FFFD}"
    at = bad + 1
  end
  return table.concat(out)
end

local function camel(name)
  return (name:gsub("_(%l)", string.upper))
end

local convert

-- A string value goes into t[key], and as base64 beside it where needed.
local function put(t, key, value)
  if type(value) == "string" and not utf8.len(value) then
    t[key] = M.utf8(value)
    t[key .. "Base64"] = M.base64(value)
  elseif type(value) == "table" then
    t[key] = convert(value, LISTS[key])
  elseif type(value) ~= "function" and type(value) ~= "userdata" then
    t[key] = value
  end
end

function convert(value, list)
  local out = {}
  if list or #value > 0 then
    for i, item in ipairs(value) do
      if type(item) == "table" then
        out[i] = convert(item)
      else
        out[i] = type(item) == "string" and M.utf8(item) or item
      end
    end
    return json.array(out)
  end
  for key, item in pairs(value) do
    if type(key) == "string" then
      put(out, camel(key), item)
    end
  end
  return json.object(out)
end

--- A run's result as a table ready for json.encode.
function M.result(r)
  local out = convert(r)
  setmetatable(out, { __order = ORDER })
  if out.sandbox then
    setmetatable(out.sandbox, { __order = SANDBOX_ORDER })
  end
  return out
end

--- Any record with snake_case keys, likewise.
function M.plain(r, order)
  local out = convert(r)
  return order and setmetatable(out, { __order = order }) or out
end

--- The exit status of `dshsh` for a result, and a line to say, or nil.
function M.status(r, argv)
  if r.timed_out then
    return 124, "timed out"
  end
  if r.started == "no" then
    local word = argv and argv[1] or "the command"
    local why = r.errno_name or r.errno and ("errno %d"):format(r.errno)
      or "unknown reason"
    if r.stage == "exec" then
      return r.errno == 2 and 127 or 126,
        ("%s: cannot be executed: %s"):format(word, why)
    end
    return 125, ("the command was not started (stage %s: %s)"):format(
      r.stage or "unknown", why)
  end
  if r.signal then
    return 128 + r.signal
  end
  return r.exit_code or 125
end

return M
