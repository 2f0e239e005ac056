--- dshsh mode, verify, replay, sessions: session logs, looked at. None of
-- these writes to a log.
local core = require("dsh.core")
local json = require("dsh.json")
local paths = require("dsh.paths")
local sessions = require("dsh.sessions")

local FINDING = 1
local LONG = 8 << 20 -- bytes of a log from which on progress is shown
local STEP = 4096 -- lines between two looks at the progress

local function service(root)
  return sessions.start({ host = { home = paths.home() } }, { root = root })
end

-- A file, or the id of a session under $DSH_HOME.
local function find(word)
  if word:find("/", 1, true) or core.sys.kind(word) then
    return word
  end
  return service():find(word)
end

local function log_argument(cmd)
  return cmd:argument("log", "A session log, or a session's id.")
    :argname("<log>")
end

local function tail_words(tail)
  if tail.torn then
    return (", incomplete from byte %d on"):format(tail.at)
  elseif tail.unterminated then
    return ", the last line lacks its newline"
  end
  return ""
end

-- mode -----------------------------------------------------------------------

local function mode(args)
  local path, err = find(args.log)
  local state
  if path then
    state, err = core.replay.fold(path, "mode")
  end
  if not state then
    return nil, err
  end
  io.stdout:write(state.mode or "none", "\n")
  return 0
end

-- verify ---------------------------------------------------------------------

local ORDER = { "log", "ok", "events", "mode", "frames", "lines", "size",
  "unverified", "torn", "tornAt", "error" }

local function plain(word, state, err)
  local out = json.object({ log = word, ok = state ~= nil }, ORDER)
  if not state then
    out.error = json.object({ code = err.code, message = err.message,
      at = err.at, line = err.line }, { "code", "message", "at", "line" })
    return out
  end
  for _, key in ipairs({ "events", "mode", "frames", "lines", "size",
    "unverified" }) do
    out[key] = state[key]
  end
  out.torn = state.tail.torn
  out.tornAt = state.tail.torn and state.tail.at or nil
  out.ok = not state.tail.torn
  return out
end

local function verdict(word, state, err)
  if not state then
    return ("%s: %s"):format(word, tostring(err))
  end
  local note = state.unverified > 0
    and (", %d lines without a checksum"):format(state.unverified) or ""
  return ("%s: %s, %d events in %d frames, mode %s%s%s"):format(word,
    state.tail.torn and "torn" or "ok", state.events, state.frames,
    state.mode or "none", note, tail_words(state.tail))
end

local function verify(args)
  local status = 0
  for _, word in ipairs(args.log) do
    local path, err = find(word)
    local state
    if path then
      state, err = core.replay.verify(path, { threads = 2 })
    end
    if not state or state.tail.torn then
      status = FINDING
    end
    io.stdout:write(args.json and json.encode(plain(word, state, err))
      or verdict(word, state, err), "\n")
  end
  return status
end

-- replay ---------------------------------------------------------------------

local function bar(done, size)
  local width = (core.sys.winsize(2) or 80) - 8
  local full = size > 0 and math.floor(width * done / size) or width
  io.stderr:write(("\r[%s%s] %3d%%"):format(("#"):rep(full),
    ("."):rep(width - full), size > 0 and 100 * done // size or 100))
end

local function clear()
  io.stderr:write("\r\27[K")
end

-- Whether to show progress: a person waits, and the events go elsewhere.
local function shows_progress(log)
  local _, size = log:progress()
  return size > LONG and core.sys.isatty(2) and not core.sys.isatty(1)
end

local function wanted(rec, args)
  return rec.seq >= 0 and (not args.type or rec.type == args.type)
    and (not args.since or rec.seq + rec.count > args.since)
end

-- Writes what there is; true, or nil, err.
local function drain(log, args, show)
  local n = 0
  while true do
    local rec, err = log:next()
    if not rec then
      return not err or nil, err
    end
    if wanted(rec, args) then
      local ok, why = io.stdout:write(rec.text, "\n")
      if not ok then
        return nil, "cannot write the output: " .. why
      end
    end
    n = n + 1
    if show and n % STEP == 0 then
      bar(log:progress())
    end
  end
end

local function follow(log, args)
  while true do
    local ok, err = drain(log, args)
    if not ok then
      return nil, err
    end
    io.stdout:flush()
    local more
    more, err = log:poll(1000)
    if more == nil then
      return nil, err
    end
  end
end

local function replay(args, app)
  local path, err = find(args.log)
  local log
  if path then
    log, err = core.replay.open(path, { follow = args.follow })
  end
  if not log then
    return nil, err
  end
  local closing <close> = log
  if args.follow then
    return follow(closing, args)
  end
  io.stdout:setvbuf("full")
  local show = shows_progress(log)
  local ok
  ok, err = drain(log, args, show)
  if show then
    clear()
  end
  if not ok then
    return nil, err
  end
  local tail = log:tail()
  if tail.torn or tail.unterminated then
    app.err("%s%s", args.log, tail_words(tail))
  end
  return 0
end

-- sessions -------------------------------------------------------------------

-- What a file says of itself is shown without control characters.
local function shown(text)
  return (tostring(text):gsub("%c", "?"))
end

local function listed(entry)
  if entry.error then
    return ("%-36s  %s"):format(shown(entry.id), shown(entry.error))
  end
  local at = math.type(entry.created_at) == "integer"
    and os.date("!%Y-%m-%d %H:%M", entry.created_at // 1000) or "-"
  return ("%-36s  %-16s  %s"):format(shown(entry.id), at,
    shown(entry.cwd or "-"))
end

local LIST_ORDER = { "id", "createdAt", "cwd", "parentSession", "project",
  "path", "error" }

local function list_sessions(args)
  local list, err = service(args.root):list()
  if not list then
    return nil, err
  end
  local status = 0
  for _, entry in ipairs(list) do
    if entry.error then
      status = FINDING
    end
    local line = args.json and json.encode(json.object({ id = entry.id,
      createdAt = entry.created_at, cwd = entry.cwd, path = entry.path,
      project = entry.project, parentSession = entry.parent,
      error = entry.error and tostring(entry.error) }, LIST_ORDER))
      or listed(entry)
    io.stdout:write(line, "\n")
  end
  return status
end

local function natural(text)
  local n = math.tointeger(tonumber(text))
  if not n or n < 0 then
    return nil, "--since: expected a number of an event, got '" .. text .. "'"
  end
  return n
end

return {
  { name = "mode", summary = "print the mode that a session log says",
    setup = log_argument, run = mode },
  { name = "verify", summary = "check session logs in full",
    setup = function(cmd)
      log_argument(cmd):args("+")
      cmd:flag("--json", "Print JSON, a line for each log.")
    end, run = verify },
  { name = "replay", summary = "print the events of a session log",
    setup = function(cmd)
      log_argument(cmd)
      cmd:option("--type", "Only events of this type."):argname("<type>")
      cmd:option("--since", "Only events from this number on.")
        :argname("<seq>"):convert(natural)
      cmd:flag("--follow", "Go on as the log grows, until interrupted.")
    end, run = replay },
  { name = "sessions", summary = "list the sessions under a root",
    setup = function(cmd)
      cmd:argument("root", "The sessions root; $DSH_HOME/sessions by default.")
        :args("?"):argname("<root>")
      cmd:flag("--json", "Print JSON, a line for each session.")
    end, run = list_sessions },
}
