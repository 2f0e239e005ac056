--- dsh.sandbox_local: the sandbox of this host, over the C backends; or, with
-- `runner`, over a runner of the operator's that speaks its own dialect:
--
--   runner = {
--     command = { "/opt/nsjail" },
--     args = function(policy) return { ... } end,
--     failure_rules = { { allowed_exit_codes = {255},
--                         fatal_signatures = {"[F]"} } },
--     denial_signatures = { "read-only file system" },
--     classify = function(verdict, evidence) return verdict end,
--   }
local core = require("dsh.core")
local errors = require("dsh.errors")
local paths = require("dsh.paths")
local runner = require("dsh.runner")

local M = {
  provides = "sandbox",
  needs = { "sandbox_policy", "host" },
  schema = {
    backend = { type = "string" },
    runnerCommand = { type = "list", items = { type = "string" } },
    runnerFailureSignatures = { type = "list", items = { type = "string" } },
    probeRunner = { type = "boolean", default = false },
    probeTimeoutMs = { type = "number", min = 1, max = 1e9 },
    launcher = { type = "path" },
    runner = { type = "table" },
  },
}

local sandbox = {}
sandbox.__index = sandbox

-- A runner with its own dialect ----------------------------------------------

local function string_list(value, what)
  if type(value) ~= "table" or #value == 0 then
    error(what .. ": expected a list of strings", 0)
  end
  for i, word in ipairs(value) do
    if type(word) ~= "string" or word:find("%z") then
      error(("%s[%d]: expected a string"):format(what, i), 0)
    end
  end
end

local RUNNER_FIELDS = { command = "table", args = "function",
  failure_rules = "table", denial_signatures = "table", classify = "function" }

local function check_runner(r)
  for key, value in pairs(r) do
    if not RUNNER_FIELDS[key] then
      error(("runner.%s: unknown field"):format(tostring(key)), 0)
    elseif type(value) ~= RUNNER_FIELDS[key] then
      error(("runner.%s: expected %s, got %s"):format(key, RUNNER_FIELDS[key],
        type(value)), 0)
    end
  end
  string_list(r.command, "runner.command")
  if r.command[1]:sub(1, 1) ~= "/" then
    error("runner.command: expected an absolute path", 0)
  end
  if not r.failure_rules or #r.failure_rules == 0 then
    error("runner.failure_rules: at least one rule is needed", 0)
  end
  for i, rule in ipairs(r.failure_rules) do
    local what = ("runner.failure_rules[%d].fatal_signatures"):format(i)
    string_list(rule.fatal_signatures, what)
    for _, text in ipairs(rule.fatal_signatures) do
      if not text:find("%S") or text:find("[\r\n]") then
        error(what .. ": a signature is blank or has more than one line", 0)
      end
    end
  end
end

-- The C core checks argv and policy by planning without any backend.
local function confine_by_runner(self, argv, policy)
  local plain = {}
  for k, v in pairs(policy) do
    plain[k] = v
  end
  plain.mode = "danger-full-access"
  local checked, err = self.provider:confine(argv, plain)
  if not checked then
    return nil, err
  end
  checked, err = core.confine.roots(policy) -- raises for misuse
  if not checked then
    return nil, err
  end
  local r, words = self.runner, {}
  table.move(r.command, 1, #r.command, 1, words)
  local args = r.args and r.args(policy) or {}
  if type(args) ~= "table" or #args > 0 then
    string_list(args, "runner.args")
  end
  table.move(args, 1, #args, #words + 1, words)
  words[#words + 1] = "--"
  local at = #words
  table.move(argv, 1, #argv, at + 1, words)
  return {
    argv = words, argv_at = at, confined = true, launcher = false,
    mode = policy.mode, backend = "custom", enforcement = "partial",
    gaps = { { effect = "all", reason = "asserted by the operator" } },
    limits = {}, denial_signatures = r.denial_signatures
      or { "read-only file system", "permission denied" },
    runner_failure_rules = r.failure_rules, classify = r.classify,
  }
end

-- The service ----------------------------------------------------------------

-- A root that was left out is said, by name and once.
local function tell_refused(self, list)
  for _, text in ipairs(list) do
    if self.warn and not self.told[text] then
      self.told[text] = true
      self.warn("not writable: " .. text)
    end
  end
end

--- argv under a complete policy -> record | nil, err. Raises for misuse.
function sandbox:confine(argv, policy)
  if self.runner and type(policy) == "table"
    and policy.mode ~= "danger-full-access" then
    return confine_by_runner(self, argv, policy)
  end
  local confined, err = self.provider:confine(argv, policy)
  if confined and confined.refused_roots then
    tell_refused(self, confined.refused_roots)
  end
  return confined, err
end

local function policy_of(self, opts)
  return opts.policy or self.policy:resolve({ session = opts.session,
    mode = opts.mode })
end

local function log_denials(opts, result)
  local session = opts.session
  if not (session and result.sandbox.denied and session.append) then
    return
  end
  local events = {}
  for _, d in ipairs(result.sandbox.denials or {}) do
    if #events < 32 and not d.also_permissions then
      events[#events + 1] = { type = "sandbox/denied", ignorable = true,
        data = { op = d.op, path = d.path, errno = d.errno,
          mode = result.sandbox.mode, backend = result.sandbox.backend,
          evidence = result.sandbox.evidence } }
    end
  end
  if #events > 0 then
    session:append(events)
  end
end

local function defaults(self, opts)
  return { spill_dir = self.spill_dir, keeper = self.keeper,
    env_from = self.env, on_result = function(result)
      log_denials(opts, result)
    end }
end

--- Starts an argv without waiting. -> handle of dsh.runner | nil, err
function sandbox:start(argv, opts)
  opts = opts or {}
  local confined, err = self:confine(argv, policy_of(self, opts))
  if not confined then
    return nil, err
  end
  return runner.start(confined, opts, defaults(self, opts))
end

--- Runs an argv without a shell. -> result | nil, err
-- opts: policy | mode, session, cwd, stdin = bytes, env, timeout_ms, … (see
-- dsh.runner).
function sandbox:run(argv, opts)
  opts = opts or {}
  local confined, err = self:confine(argv, policy_of(self, opts))
  if not confined then
    return nil, err
  end
  return runner.run(confined, opts, defaults(self, opts))
end

function sandbox:probe()
  return self.provider:probe()
end

function sandbox:reprobe()
  self.provider:reprobe()
end

function sandbox:close()
  self.provider:close()
end

-- The state directory, absolute; nil without a home.
local function state_directory(host)
  local home = host and host.home
  if home and home:sub(1, 1) ~= "/" then
    home = (host.cwd or "/") .. "/" .. home
  end
  return home
end

-- Our own files are never writable from inside (design: control files). The
-- state directory is made before the first run: a name that is not there yet
-- could be taken by a command, and what does not exist cannot be mounted over.
local function guard_own_files(host)
  local home = state_directory(host)
  local own = paths.control()
  if home then
    core.sys.mkdir(home)
    own[#own + 1] = home
  end
  for _, path in ipairs(own) do
    local ok, err = core.confine.control_add(path)
    if not ok then
      return nil, err
    end
  end
  return true
end

-- Where verdicts are kept across processes; a home is made for them.
local function verdict_dir(host)
  local home = host and host.home
  if not home or not core.sys.mkdir(home) then
    return nil
  end
  return home .. "/verdicts"
end

function M.start(deps, config)
  if config.runner then
    local ok, why = pcall(check_runner, config.runner)
    if not ok then
      return errors.fail("CONFIG_INVALID", why, { stage = "sandbox" })
    end
  end
  local ok, provider, err = pcall(core.confine.provider, {
    backend = config.backend, launcher = config.launcher,
    runner_command = config.runnerCommand,
    failure_signatures = config.runnerFailureSignatures,
    probe_runner = config.probeRunner,
    probe_timeout_ms = config.probeTimeoutMs
      and math.ceil(config.probeTimeoutMs),
    verdict_dir = verdict_dir(deps.host) })
  if not ok then
    return errors.fail("CONFIG_INVALID", tostring(provider),
      { stage = "sandbox" })
  elseif not provider then
    return nil, err
  end
  ok, err = guard_own_files(deps.host)
  if not ok then
    provider:close()
    return nil, err
  end
  local host = deps.host
  return setmetatable({ provider = provider, runner = config.runner,
    policy = deps.sandbox_policy, keeper = config.launcher,
    env = host and host.env, warn = host and host.warn, told = {},
    spill_dir = host and host.home and host.home .. "/spill" }, sandbox)
end

return M
