--- dsh.runner: one confined argv, run to its end or in the background. What
-- ctx.sandbox:run, the shells and jobs share.
local core = require("dsh.core")
local environment = require("dsh.environment")
local errors = require("dsh.errors")

local M = {}

M.TIMEOUT_MS, M.TIMEOUT_CAP_MS = 120000, 600000
local ABORT_STEP_MS = 50

local STDIO = {
  capture = { "null", "capture", "capture" },
  inherit = { "inherit", "inherit", "inherit" },
}

local FIELDS = { mode = true, policy = true, session = true, cwd = true,
  stdio = true, stdin = true, env = true, env_mode = true, env_pass = true,
  timeout_ms = true, grace_ms = true, tail_bytes = true, spill_dir = true,
  pty = true, rows = true, cols = true, foreground = true, observe = true,
  no_keeper = true, pass_fds = true, timeout_cap_ms = true, abort = true }

local function misuse(level, text, ...)
  error(text:format(...), level + 1)
end

local function check(opts)
  for key in pairs(opts) do
    if not FIELDS[key] then
      misuse(4, "opts.%s: unknown field", tostring(key))
    end
  end
  if opts.env ~= nil then
    environment.check(opts.env, "opts.env")
  end
  local stdio = opts.stdio
  if stdio and not STDIO[stdio] and not (type(stdio) == "table"
    and #stdio == 3) then
    misuse(4, 'opts.stdio: expected "capture", "inherit" or three '
      .. "descriptors, got %q", tostring(stdio))
  end
end

-- A deadline of 0 is none; captured runs have one unless they say so.
local function timeout(opts, captured, dflt)
  local ms = opts.timeout_ms
  if ms == nil then
    return captured and (dflt.timeout_ms or M.TIMEOUT_MS) or 0
  end
  if math.type(ms) ~= "integer" then
    ms = type(ms) == "number" and math.tointeger(ms) or nil
  end
  if not ms or ms < 0 then
    misuse(5, "opts.timeout_ms: expected a number of milliseconds, got %s",
      tostring(opts.timeout_ms))
  end
  local cap = opts.timeout_cap_ms or dflt.timeout_cap_ms or M.TIMEOUT_CAP_MS
  if captured and opts.timeout_ms ~= 0 and ms > cap then
    ms = cap
  end
  return ms
end

local function spawn_options(opts, defaults)
  local stdio = opts.stdio or "capture"
  local pty = opts.pty == true and {} or opts.pty or nil
  local captured = stdio == "capture" and not pty
  local three = STDIO[stdio] or stdio
  local env, dropped = environment.build(defaults.env_from
    or core.sys.environ(), {
    kind = opts.env_mode or (captured and "captured" or "terminal"),
    pass = opts.env_pass, set = opts.env })
  local out = {
    env = env, cwd = opts.cwd,
    stdin = three[1], stdout = three[2], stderr = three[3],
    timeout_ms = timeout(opts, captured, defaults),
    grace_ms = opts.grace_ms, tail_bytes = opts.tail_bytes,
    spill_dir = opts.spill_dir or captured and defaults.spill_dir or nil,
    pty = pty and true, rows = pty and pty.rows or opts.rows,
    cols = pty and pty.cols or opts.cols,
    foreground = opts.foreground, no_keeper = opts.no_keeper,
    pass_fds = opts.pass_fds, observe = opts.observe ~= false,
  }
  if opts.stdin == "inherit" or opts.stdin == "pipe" then
    out.stdin = opts.stdin
  elseif type(opts.stdin) == "table" then
    out.input = opts.stdin[1] -- these very bytes, whatever they spell
  elseif type(opts.stdin) == "string" then
    out.input = opts.stdin
  elseif opts.stdin ~= nil then
    out.stdin = opts.stdin
  end
  return out, dropped
end

-- A denial record says itself that permissions alone would refuse: then it is
-- no word of the sandbox.
local function sandbox_denials(list)
  local out = {}
  for _, d in ipairs(list) do
    if not d.also_permissions then
      out[#out + 1] = d
    end
  end
  return out
end

--- The result record (contract, "Running commands") from a confined record
-- and what a run's outcome says.
function M.result(confined, outcome, dropped)
  local sandbox = { mode = confined.mode, denied = false }
  local result = {
    v = 1, started = outcome.started, stage = outcome.stage,
    errno = outcome.errno, errno_name = outcome.errno_name,
    detail = outcome.detail, exit_code = outcome.exit_code,
    signal = outcome.signal, timed_out = outcome.timed_out,
    aborted = outcome.aborted, status_lost = outcome.status_lost,
    sandbox = sandbox,
    stdout = outcome.stdout, stderr = outcome.stderr,
    wall_ms = outcome.wall_ms, user_us = outcome.user_us,
    system_us = outcome.system_us, max_rss_kb = outcome.max_rss_kb,
    env_dropped = dropped,
  }
  if not confined.confined then
    return result
  end
  sandbox.backend = confined.backend
  sandbox.enforcement = confined.enforcement
  sandbox.gaps = confined.gaps
  sandbox.limits = confined.limits
  sandbox.refused_roots = confined.refused_roots
  local denials = sandbox_denials(outcome.denials or {})
  local verdict = core.confine.classify(confined, {
    started = outcome.started, exit_code = outcome.exit_code,
    signal = outcome.signal, stderr = outcome.stderr.text,
    runner_failed = outcome.runner_failed, denials = #denials,
    denials_known = outcome.denials_known })
  if confined.classify and outcome.started == "unknown" then
    local ok, mine = pcall(confined.classify, verdict, {
      started = outcome.started, exit_code = outcome.exit_code,
      signal = outcome.signal, stderr = outcome.stderr.text })
    verdict = ok and type(mine) == "table" and mine or verdict
  end
  sandbox.runner_failed = verdict.runner_failed or nil
  sandbox.runner_detail = verdict.detail
  sandbox.denied = verdict.denied
  sandbox.evidence = verdict.denied and verdict.evidence or nil
  sandbox.denials_listener = outcome.listener
  sandbox.denials_dropped = outcome.denials_dropped
  if #(outcome.denials or {}) > 0 then
    sandbox.denials = outcome.denials
  end
  return result
end

--- SANDBOX_UNAVAILABLE with the runner's own words, for a run that its runner
-- failed; nil for any other.
function M.failure(confined, result)
  if not result.sandbox.runner_failed then
    return nil
  end
  local detail = result.sandbox.runner_detail
  if not detail or detail == "" then
    detail = ("stage %s%s%s"):format(result.stage or "unknown",
      result.detail and ", " .. result.detail or "",
      result.errno_name and ": " .. result.errno_name or "")
  end
  local err = errors.unavailable(confined.mode, detail)
  err.stage, err.errno = result.stage, result.errno
  return err
end

-- a run in progress ---------------------------------------------------------

local SIGCONT <const> = 18

local handle = {}
handle.__index = handle

--- The result when it is over; nil when it is not, after at most ms
-- milliseconds (none: for ever); nil, err when its runner failed.
function handle:wait(ms)
  local deadline = ms and core.sys.now() + ms
  while true do
    local left = deadline and math.max(0, deadline - core.sys.now())
    local state = self.run:wait(left and math.ceil(left))
    if state == "finished" then
      break
    elseif state == nil then
      return nil
    end
    self.run:signal(SIGCONT) -- nobody here minds jobs: go on
    if left == 0 then
      return nil
    end
  end
  local result = self.finish()
  local failed = M.failure(self.confined, result)
  if failed then
    return nil, failed
  end
  return result
end

--- The typed records after the first n, while it runs or later.
function handle:denials(n)
  if not self.result then
    local heard = self.heard
    table.move(self.run:denials(), 1, 256, #heard + 1, heard)
  end
  return table.move(self.heard, (n or 0) + 1, #self.heard, 1, {})
end

--- Bytes of stream 1 or 2 since the last read, how many are lost before them.
function handle:read(stream, max)
  return self.run:read(stream or 1, max)
end

function handle:write(bytes)
  return self.run:write(bytes)
end

function handle:close_input()
  return self.run:close_input()
end

function handle:resize(rows, cols)
  return self.run:resize(rows, cols)
end

function handle:signal(number)
  return self.run:signal(number)
end

--- TERM to the whole tree, after the grace KILL.
function handle:abort()
  return self.run:abort()
end

--- Ends what still runs, at once. The result stays.
function handle:close()
  return self.run:close()
end
handle.__close = handle.close

-- The result, made once.
local function finish(self, run, on_result)
  if self.result then
    return self.result
  end
  local outcome = run:outcome()
  if not outcome then
    return nil
  end
  table.move(outcome.denials, 1, #outcome.denials, #self.heard + 1,
    self.heard)
  outcome.denials = self.heard
  self.result = M.result(self.confined, outcome, self.dropped)
  if on_result then
    on_result(self.result)
  end
  return self.result
end

--- Starts it. -> a handle (above; also its fields run, confined, dropped and
-- the function finish() -> result once it is over) | nil, err
-- defaults (optional): spill_dir, keeper (a launcher's path), env_from,
-- timeout_cap_ms, on_result = function(result).
function M.start(confined, opts, defaults)
  opts, defaults = opts or {}, defaults or {}
  check(opts)
  local spawn, dropped = spawn_options(opts, defaults)
  if not confined.launcher and not opts.no_keeper then
    spawn.keeper = core.run.keeper(defaults.keeper)
  end
  local run, err = core.run.start(confined, spawn)
  if not run then
    if err.code == "SANDBOX_UNAVAILABLE" then
      err = errors.unavailable(confined.mode, err.message, err)
    end
    return nil, err
  end
  local self = setmetatable({ run = run, confined = confined,
    dropped = dropped, heard = {} }, handle)
  self.finish = function()
    return finish(self, run, defaults.on_result)
  end
  return self
end

--- Runs it to its end. -> result | nil, err. opts.abort (see M.abort_handle)
-- can end it from a hook or another coroutine.
function M.run(confined, opts, defaults)
  local self, err = M.start(confined, opts, defaults)
  if not self then
    return nil, err
  end
  local run <close> = self.run -- luacheck: ignore
  local abort = opts and opts.abort
  if not abort then
    return self:wait()
  end
  abort.runs[self] = true
  if abort.aborted then
    self:abort()
  end
  local result
  repeat
    result, err = self:wait(ABORT_STEP_MS)
    if abort.poll and not abort.aborted and abort.poll() then
      abort:abort()
    end
  until result or err
  abort.runs[self] = nil
  return result, err
end

local abort_handle = {}
abort_handle.__index = abort_handle

--- Ends every run that was given this handle, and those given it later.
function abort_handle:abort()
  self.aborted = true
  for run in pairs(self.runs) do
    run:abort()
  end
end

--- A handle to abort runs with: pass it as `abort`. poll (optional) is asked
-- every 50 ms while one runs; true aborts.
function M.abort_handle(poll)
  return setmetatable({ aborted = false, runs = {}, poll = poll },
    abort_handle)
end

return M
