--- dsh.terminal: persistent shells on pseudo-terminals.
--
-- ctx.terminal:open{session=, mode=, policy=, workdir=, env=, rows=, cols=}
-- runs one bash under the policy resolved at that moment; it keeps that
-- policy until it ends. While one is open, its session cannot switch to
-- another mode. term:run{command=} runs a line in it and waits; send() and
-- read() are for programs that talk to a terminal themselves.
local errors = require("dsh.errors")
local runner = require("dsh.runner")

local M = {
  provides = "terminal",
  needs = { "sandbox", "sandbox_policy" },
  schema = {
    shell = { type = "path", default = "/bin/bash" },
    max_open = { type = "integer", default = 10, min = 1, max = 1000 },
  },
}

local TAIL_BYTES = 64000  -- of a command's output, as captured runs keep
local START_MS = 10000    -- for the shell's first answer
local STEP_MS = 10        -- between two looks at the output, at most
local INTERRUPT_MS = 3000 -- for a command to go after Ctrl-C
local HANGUP, HANGUP_MS = 1, 500
local REPLY = 60          -- the shell's own number for its terminal
local WRITE_BYTES = 2048   -- at once: a terminal holds 4096
local PIECE_BYTES = 800   -- of a line: a terminal takes 4095, quoted

-- one terminal ----------------------------------------------------------------

local term = {}
term.__index = term

local now = function()
  return require("dsh.core").sys.now()
end

local function nonce()
  local f = assert(io.open("/dev/urandom", "rb"))
  local bytes = f:read(12)
  f:close()
  return (bytes:gsub(".", function(c)
    return ("%02x"):format(c:byte())
  end))
end

-- One word for bash without any byte that a terminal would act upon.
local function quote(text)
  return "$'" .. text:gsub("[%c'\\]", function(c)
    return ("\\x%02x"):format(c:byte())
  end) .. "'"
end

local function closed()
  return errors.fail("IO", "the terminal is closed", { stage = "terminal" })
end

local function has_ended(run)
  return run:wait(0) == "finished"
end

--- Sends bytes to the terminal, as typed. True, or nil, err.
function term:send(bytes)
  if not self.live then
    return closed()
  end
  local at = 1
  while at <= #bytes do
    local n, err = self.live:write(bytes:sub(at, at + WRITE_BYTES - 1))
    if not n and err.errno_name ~= "EAGAIN" then
      return nil, err
    end
    at = at + (n or 0)
    if (n or 0) == 0 and self.live:wait(STEP_MS) == "finished" then
      return errors.fail("IO", "the shell has ended", { stage = "terminal" })
    end
  end
  return true
end

--- What was written to the terminal since the last read; waits at most ms
-- milliseconds for the first byte. "" when there is none.
function term:read(ms)
  if not self.live then
    return closed()
  end
  local deadline = now() + (ms or 0)
  if self.buffer ~= "" then
    local bytes = self.buffer
    self.buffer = ""
    return bytes
  end
  while true do
    local bytes = self.live:read(1)
    if bytes and bytes ~= "" then
      return bytes
    elseif now() >= deadline or has_ended(self.live) then
      return self.live:read(1) or ""
    end
    self.live:wait(STEP_MS)
  end
end

--- Is the shell still there?
function term:alive()
  return self.live ~= nil and not has_ended(self.live)
end

--- Tells the terminal its new size. True, or nil, err.
function term:resize(rows, cols)
  if not self.live then
    return closed()
  end
  return self.live:resize(rows, cols)
end

--- The shell's result record, once it has ended; nil before.
function term:result()
  if self.live and has_ended(self.live) then
    return self.finish()
  end
end

-- Reads until the marker; keeps the tail of what comes before it. The status
-- word, or nil, "timeout" or "ended". A timeout leaves self.pending set, so
-- that a later call can still find the marker.
local function await(self, wait, timeout_ms)
  local deadline = timeout_ms and now() + timeout_ms
  local step = 1
  while true do
    local text = self.buffer
    local from, to, status = text:find("\30" .. wait.marker .. " (%d+)\30")
    if from then
      wait.text = wait.text .. text:sub(1, from - 1)
      self.buffer = text:sub(to + 1)
      return tonumber(status)
    end
    -- What cannot be the marker's beginning any more is output.
    local keep = #wait.marker + 8
    if #text > keep then
      wait.text = wait.text .. text:sub(1, -keep - 1)
      self.buffer = text:sub(-keep)
      if #wait.text > 4 * TAIL_BYTES then
        wait.text, wait.truncated = wait.text:sub(-TAIL_BYTES), true
      end
    end
    local bytes = self.live:read(1)
    if bytes and bytes ~= "" then
      self.buffer, step = self.buffer .. bytes, 1
    elseif has_ended(self.live) then
      bytes = self.live:read(1)
      if not bytes or bytes == "" then
        wait.text, self.buffer = wait.text .. self.buffer, ""
        return nil, "ended"
      end
      self.buffer = self.buffer .. bytes
    elseif deadline and now() >= deadline then
      return nil, "timeout"
    else
      self.live:wait(step)
      step = math.min(step + 1, STEP_MS)
    end
  end
end

-- The last bytes, cut at a character.
local function tail(wait, rest)
  local text = wait.text .. rest
  if #text > TAIL_BYTES then
    text, wait.truncated = text:sub(-TAIL_BYTES), true
    local skip = 1
    while skip <= 4 and (text:byte(skip) or 0) & 0xC0 == 0x80 do
      skip = skip + 1
    end
    text = text:sub(skip)
  end
  return { text = text, truncated = wait.truncated or false }
end

-- The sandbox's facts of one command: those of the opening, and the denials
-- that the command added.
local function facts(self)
  local c = self.confined
  local out = { mode = self.mode, denied = false }
  if not c.confined then
    return out
  end
  for _, key in ipairs({ "backend", "enforcement", "gaps", "limits" }) do
    out[key] = c[key]
  end
  local new = self.live:denials()
  for _, d in ipairs(new) do
    out.denied = out.denied or not d.also_permissions
  end
  if #new > 0 then
    out.denials, out.evidence = new, out.denied and "records" or nil
  end
  return out
end

local function interrupt(self, wait)
  self:send("\3")
  local status, why = await(self, wait, INTERRUPT_MS)
  self.pending = not status and why == "timeout" and wait or nil
end

local function submit(self, command, marker)
  local lines = { "__dsh_c=" }
  for at = 1, #command, PIECE_BYTES do
    lines[#lines + 1] = "__dsh_c+="
      .. quote(command:sub(at, at + PIECE_BYTES - 1))
  end
  lines[#lines + 1] = ("__dsh_m=%s; __dsh_status %d; eval \"$__dsh_c\" %d>&-")
    :format(marker, self.status, REPLY)
  return self:send(table.concat(lines, "\n") .. "\n")
end

-- Is the last command, that had timed out, over by now?
local function settle(self)
  if self.pending then
    local status, why = await(self, self.pending, 0)
    if not status and why == "timeout" then
      return errors.fail("SESSION_BUSY", "the terminal's last command is "
        .. "still running", { stage = "terminal" })
    end
    self.pending = nil
  end
  return true
end

--- Runs one command in the shell and waits: {command=, timeout_ms=}, without
-- a deadline unless one is given. {exit_code?, ended?, timed_out, output =
-- {text, truncated}, sandbox = {mode, backend, …, denied}}; or nil, err.
function term:run(opts)
  if type(opts) ~= "table" or type(opts.command) ~= "string" then
    error("terminal run: command: expected string", 2)
  elseif opts.command:find("\0", 1, true) then
    error("terminal run: command: contains a NUL byte", 2)
  elseif not self.live then
    return closed()
  end
  local ok, err = settle(self)
  if not ok then
    return nil, err
  end
  local wait = { marker = nonce(), text = "" }
  self.buffer = ""
  self.live:read(1) -- what nobody asked for is nobody's
  ok, err = submit(self, opts.command, wait.marker)
  if not ok then
    return nil, err
  end
  local status, why = await(self, wait, opts.timeout_ms)
  if why == "timeout" then
    interrupt(self, wait)
  end
  self.status = status or 130
  return { exit_code = status, ended = why == "ended", aborted = false,
    timed_out = why == "timeout", output = tail(wait,
      self.pending and self.buffer or ""),
    sandbox = facts(self) }
end

--- Ends the shell and all that it started. Idempotent.
function term:close()
  local run = self.live
  self.live = nil
  if run then
    self.service.open_terms[self] = nil
    run:signal(HANGUP) -- an interactive shell minds no TERM
    if run:wait(HANGUP_MS) ~= "finished" then
      run:abort()
      run:wait(5000)
    end
    run:close()
  end
end
term.__close = term.close
term.__gc = term.close

-- the service ----------------------------------------------------------------

local terminal = {}
terminal.__index = terminal

local OPEN = { session = "table", mode = "string", policy = "table",
  workdir = "string", env = "table", rows = "number", cols = "number" }

local function check_open(opts)
  for key, value in pairs(opts) do
    if not OPEN[key] then
      error(("terminal open: %s: unknown field"):format(tostring(key)), 3)
    elseif type(value) ~= OPEN[key] then
      error(("terminal open: %s: expected %s, got %s"):format(key, OPEN[key],
        type(value)), 3)
    end
  end
end

--- How many shells are open, of one session or of all.
function terminal:count(session)
  local n = 0
  for t in pairs(self.open_terms) do
    if t:alive() and (session == nil or t.session_id == session.id) then
      n = n + 1
    end
  end
  return n
end

-- The terminal does not echo and does not turn \n into \r\n. The reply comes
-- before bash would prompt, also after Ctrl-C, and through a descriptor that
-- commands do not have, so that `exec >file` loses none.
local SETUP = ([[
stty -echo -onlcr; exec @>&1; PS1= PS2=; unset HISTFILE; set +o history +H
__dsh_status() { return "$1"; }
__dsh_reply() { local s=$?; if [ -n "$__dsh_m" ]; then builtin printf ]]
  .. [['\036%s %d\036' "$__dsh_m" "$s" >&@; __dsh_m=; fi; }
PROMPT_COMMAND=__dsh_reply
]]):gsub("@", REPLY)

local function await_shell(t)
  local wait = { marker = nonce(), text = "" }
  local ok, err = t:send(SETUP .. "__dsh_m=" .. wait.marker .. "\n")
  local status, why
  if ok then
    status, why = await(t, wait, START_MS)
  end
  if status then
    return true
  end
  local result = t:result()
  t:close()
  local failure = result and runner.failure(t.confined, result)
  if failure then
    return nil, failure
  elseif result and result.started == "no" then
    return errors.fail("SPAWN_FAILED", ("the shell was not started (stage %s)")
      :format(result.stage or "unknown"), { stage = result.stage,
      errno = result.errno })
  end
  return errors.fail("SPAWN_FAILED", "the shell does not answer: "
    .. tostring(why or err), { stage = "terminal" })
end

--- Opens a shell; see the top of this file. The terminal, or nil, err.
function terminal:open(opts)
  opts = opts or {}
  check_open(opts)
  if self:count() >= self.max_open then
    return errors.fail("JOB_LIMIT", ("%d terminals are open already"):format(
      self.max_open), { stage = "terminal" })
  end
  local policy = opts.policy or self.policy:resolve({ session = opts.session,
    mode = opts.mode })
  local argv = { self.shell, "--noprofile", "--norc", "--noediting", "-i" }
  local handle, err = self.sandbox:start(argv, { policy = policy,
    cwd = opts.workdir or policy.workspace_root, env = opts.env,
    env_mode = "terminal", timeout_ms = 0, observe = true, pty = true,
    rows = opts.rows, cols = opts.cols })
  if not handle then
    return nil, err
  end
  local t = setmetatable({ live = handle.run, finish = handle.finish,
    confined = handle.confined, service = self, policy = policy,
    mode = policy.mode, buffer = "", status = 0,
    session_id = opts.session and opts.session.id }, term)
  self.open_terms[t] = true
  local ok
  ok, err = await_shell(t)
  if not ok then
    return nil, err
  end
  return t
end

-- A session whose shell runs under one mode does not switch to another.
local function guard(self, session, mode)
  for t in pairs(self.open_terms) do
    if t.session_id == session.id and t.mode ~= mode and t:alive() then
      return errors.fail("SESSION_BUSY", ("a terminal of this session is "
        .. "open under %s: close it before switching to %s"):format(t.mode,
        mode), { stage = "terminal" })
    end
  end
  return true
end

function terminal:close()
  self.remove_guard()
  local list = {}
  for t in pairs(self.open_terms) do
    list[#list + 1] = t
  end
  for _, t in ipairs(list) do
    t:close()
  end
end

function M.start(deps, config)
  local self = setmetatable({ sandbox = deps.sandbox,
    policy = deps.sandbox_policy, shell = config.shell,
    max_open = config.max_open, open_terms = {} }, terminal)
  self.remove_guard = deps.sandbox_policy:add_guard(function(session, mode)
    return guard(self, session, mode)
  end)
  return self
end

return M
