--- dsh.executor: what the shells have in common. A shell says how a command
-- text becomes an argv; everything else is here, so that twins stay twins.
--
--   shell:run{command=, session?, workdir?, timeout_ms?, env?, stdin?,
--     policy?, mode?, abort?}  -> result | nil, err
--   shell:start{… the same, owner?}  -> job | nil, err   (see dsh.jobs)
--   shell:resolve{…}  -> {argv, policy, cwd}: what run would do; runs nothing
--
-- `policy` wins over `mode`, an explicit approved mode for trusted code.
-- Without either the session's standing mode counts.
local errors = require("dsh.errors")
local jobs = require("dsh.jobs")

local M = {}

local REQUEST = { command = "string", session = "table", workdir = "string",
  timeout_ms = "number", env = "table", stdin = "string", policy = "table",
  mode = "string", abort = "table", owner = "string" }

local shell = {}
shell.__index = shell

local function check(name, request)
  if type(request) ~= "table" then
    error(("%s: expected a table, got %s"):format(name, type(request)), 3)
  end
  for key, value in pairs(request) do
    local want = REQUEST[key]
    if not want then
      error(("%s: %s: unknown field"):format(name, tostring(key)), 3)
    elseif type(value) ~= want then
      error(("%s: %s: expected %s, got %s"):format(name, key, want,
        type(value)), 3)
    end
  end
  if request.command == nil then
    error(name .. ": command: expected string, got nil", 3)
  elseif request.command:find("\0", 1, true) then
    error(name .. ": command: contains a NUL byte", 3)
  end
end

-- A relative directory is meant from the root, as the command sees it.
local function directory(root, workdir)
  if not workdir or workdir == "" then
    return root
  elseif workdir:sub(1, 1) == "/" or workdir:match("^%a:[/\\]") then
    return workdir
  end
  return root .. "/" .. workdir
end

local function resolve(self, request)
  local policy = request.policy or self.policy:resolve({
    session = request.session, mode = request.mode })
  return { argv = self.argv(request.command), policy = policy,
    cwd = directory(policy.workspace_root, request.workdir) }
end

-- Words that the runner means something else by are text here.
local function input(text)
  if text == "inherit" or text == "pipe" or text == "null" then
    return { text }
  end
  return text
end

local function options(self, request, plan)
  return { policy = plan.policy, session = request.session, cwd = plan.cwd,
    timeout_ms = request.timeout_ms or self.timeout_ms,
    timeout_cap_ms = self.timeout_cap_ms, grace_ms = self.grace_ms,
    env = request.env, env_pass = self.env_pass,
    stdin = input(request.stdin), abort = request.abort }
end

--- What run would do with this request; nothing runs.
function shell:resolve(request)
  check("resolve", request)
  return resolve(self, request)
end

--- Runs a command text to its end.
function shell:run(request)
  check("run", request)
  local plan = resolve(self, request)
  return self.sandbox:run(plan.argv, options(self, request, plan))
end

--- Starts a job. At most max_jobs of one owner live at a time.
function shell:start(request)
  check("start", request)
  local owner = request.owner or request.session and request.session.id or ""
  if self.jobs:live(owner) >= self.max_jobs then
    return errors.fail("JOB_LIMIT", ("%d jobs are running already: wait for "
      .. "one or kill one"):format(self.max_jobs), { stage = "jobs" })
  end
  local plan = resolve(self, request)
  local handle, err = self.sandbox:start(plan.argv,
    options(self, request, plan))
  if not handle then
    return nil, err
  end
  if request.abort then
    request.abort.runs[handle] = true
    if request.abort.aborted then
      handle:abort()
    end
  end
  return self.jobs:add(owner, { command = request.command, cwd = plan.cwd,
    mode = plan.policy.mode }, handle)
end

--- Ends every job.
function shell:close()
  self.jobs:close()
end

--- The configuration that every shell has, with a shell's own keys added.
function M.schema(own)
  local schema = {
    timeout_ms = { type = "integer", min = 1 },
    timeout_cap_ms = { type = "integer", min = 1 },
    grace_ms = { type = "integer", min = 1 },
    max_jobs = { type = "integer", default = 10, min = 1, max = 1000 },
    -- Names that pass although they look like credentials.
    env_pass = { type = "list", items = { type = "string" } },
  }
  for key, value in pairs(own or {}) do
    schema[key] = value
  end
  return schema
end

--- The service; argv(command) makes the exact program and arguments.
function M.new(kind, deps, config, argv)
  return setmetatable({ kind = kind, argv = argv, sandbox = deps.sandbox,
    policy = deps.sandbox_policy, jobs = jobs.new(),
    timeout_ms = config.timeout_ms, timeout_cap_ms = config.timeout_cap_ms,
    grace_ms = config.grace_ms, max_jobs = config.max_jobs or 10,
    env_pass = config.env_pass }, shell)
end

return M
