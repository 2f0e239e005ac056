--- dsh.runner: one confined argv, run to its end or in the background. What
-- ctx.sandbox:run, the shells and jobs share.
local core = require("dsh.core")
local environment = require("dsh.environment")
local errors = require("dsh.errors")

local M = {}

M.TIMEOUT_MS, M.TIMEOUT_CAP_MS = 120000, 600000

local STDIO = {
  capture = { "null", "capture", "capture" },
  inherit = { "inherit", "inherit", "inherit" },
}

local FIELDS = { mode = true, policy = true, session = true, cwd = true,
  stdio = true, stdin = true, env = true, env_mode = true, env_pass = true,
  timeout_ms = true, grace_ms = true, tail_bytes = true, spill_dir = true,
  pty = true, rows = true, cols = true, foreground = true, observe = true,
  no_keeper = true, pass_fds = true, timeout_cap_ms = true }

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
local function timeout(opts, captured)
  local ms = opts.timeout_ms
  if ms == nil then
    return captured and M.TIMEOUT_MS or 0
  end
  if math.type(ms) ~= "integer" then
    ms = type(ms) == "number" and math.tointeger(ms) or nil
  end
  if not ms or ms < 0 then
    misuse(5, "opts.timeout_ms: expected a number of milliseconds, got %s",
      tostring(opts.timeout_ms))
  end
  local cap = opts.timeout_cap_ms or M.TIMEOUT_CAP_MS
  if captured and opts.timeout_ms ~= 0 and ms > cap then
    ms = cap
  end
  return ms
end

local function spawn_options(opts)
  local stdio = opts.stdio or "capture"
  local captured = stdio == "capture" and not opts.pty
  local three = STDIO[stdio] or stdio
  local env, dropped = environment.build(opts.env_from or core.sys.environ(), {
    kind = opts.env_mode or (captured and "captured" or "terminal"),
    pass = opts.env_pass, set = opts.env })
  local out = {
    env = env, cwd = opts.cwd,
    stdin = three[1], stdout = three[2], stderr = three[3],
    timeout_ms = timeout(opts, captured), grace_ms = opts.grace_ms,
    tail_bytes = opts.tail_bytes, spill_dir = opts.spill_dir,
    pty = opts.pty, rows = opts.rows, cols = opts.cols,
    foreground = opts.foreground, no_keeper = opts.no_keeper,
    pass_fds = opts.pass_fds, observe = opts.observe ~= false,
  }
  if type(opts.stdin) == "string" and opts.stdin ~= "inherit" then
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
    aborted = outcome.aborted, sandbox = sandbox,
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

--- Starts it. -> handle {run, confined, dropped, finish()} | nil, err
function M.start(confined, opts)
  opts = opts or {}
  check(opts)
  local spawn, dropped = spawn_options(opts)
  local run, err = core.run.start(confined, spawn)
  if not run then
    if err.code == "SANDBOX_UNAVAILABLE" then
      err = errors.unavailable(confined.mode, err.message, err)
    end
    return nil, err
  end
  return { run = run, confined = confined, dropped = dropped,
    finish = function()
      return M.result(confined, run:outcome(), dropped)
    end }
end

--- Runs it to its end. -> result | nil, err
function M.run(confined, opts)
  local handle, err = M.start(confined, opts)
  if not handle then
    return nil, err
  end
  local run <close> = handle.run
  while run:wait() == "stopped" do
    if not (opts and opts.on_stop and opts.on_stop(run)) then
      run:signal(18) -- nobody here minds jobs: go on
    end
  end
  local result = handle.finish()
  local failed = M.failure(confined, result)
  if failed then
    return nil, failed
  end
  return result
end

return M
