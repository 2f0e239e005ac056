--- dsh.tool_jobs: background jobs as a tool for a model: list, read, wait and
-- kill what the shell's tool started. A session sees its own jobs alone.
local errors = require("dsh.errors")
local render = require("dsh.tool_text")

local M = {
  provides = "tool_jobs",
  needs = { "shell", "approval?" },
  schema = {
    -- The longest that one call waits, in milliseconds.
    wait_cap_ms = { type = "integer", default = 60000, min = 0 },
  },
}

local ACTIONS = { list = true, read = true, wait = true, kill = true }
local ARGS = { action = "string", id = "string", timeoutMs = "number" }
local WAIT_MS <const> = 10000

local tool = {}
tool.__index = tool

M.PARAMETERS = { type = "object", additionalProperties = false,
  required = { "action" }, properties = {
    action = { type = "string", enum = { "list", "read", "wait", "kill" },
      description = "list: all jobs. read: what a job wrote since the last "
        .. "look. wait: the same, but first until it ends or the time is "
        .. "over. kill: end it and all that it started." },
    id = { type = "string", description = "The job, for all but list." },
    timeoutMs = { type = "integer", minimum = 0,
      description = "For wait: at most so many milliseconds." },
  } }

local function failure(message)
  local err = errors.new("MISUSE", message, { stage = "tool" })
  return { text = render.failure(err), is_error = true, error = err }
end

local function check(args)
  if type(args) ~= "table" then
    return "arguments: expected an object"
  end
  for key, value in pairs(args) do
    if not ARGS[key] then
      return ("%s: unknown argument"):format(tostring(key))
    elseif type(value) ~= ARGS[key] then
      return ("%s: expected %s, got %s"):format(key, ARGS[key], type(value))
    end
  end
  if not ACTIONS[args.action] then
    return "action: expected list, read, wait or kill"
  elseif args.action ~= "list" and not args.id then
    return "id: which job?"
  end
end

local function list(jobs)
  local lines = {}
  for i, job in ipairs(jobs) do
    local state = job:status()
    lines[i] = ("%s %s %s: %s"):format(job.id, state, job.mode,
      job.command:match("^[^\n]*"))
  end
  return { text = #lines > 0 and table.concat(lines, "\n") or "[no jobs]",
    is_error = false, jobs = jobs }
end

local function look(self, job, call)
  local parts = {}
  for stream = 1, 2 do
    local text, lost = job:read(stream)
    parts[stream] = { text = text, lost = lost }
  end
  local approval = self.approval and (not call.session
    or self.approval:policy(call.session) ~= "never")
  return { text = render.job(job, parts[1], parts[2], { approval = approval,
    exists = self.exists }), is_error = job.error ~= nil, job = job,
    result = job.result }
end

--- One call: {action, id?, timeoutMs?}; see dsh.tool_shell for the rest.
function tool:call(args, call)
  call = call or {}
  local wrong = check(args)
  if wrong then
    return failure(wrong)
  end
  local owner = call.owner or call.session and call.session.id or ""
  local jobs = self.shell.jobs
  if args.action == "list" then
    return list(jobs:of(owner))
  end
  local job = jobs:get(owner, args.id)
  if not job then
    return failure(("id: there is no job %q"):format(args.id))
  end
  if args.action == "kill" then
    job:kill()
    job:wait(self.wait_cap_ms)
  elseif args.action == "wait" then
    local ms = args.timeoutMs or WAIT_MS
    job:wait(math.max(0, math.min(ms, self.wait_cap_ms)))
  end
  return look(self, job, call)
end

function M.start(deps, config)
  return setmetatable({ name = "jobs", shell = deps.shell,
    approval = deps.approval, wait_cap_ms = config.wait_cap_ms,
    parameters = M.PARAMETERS, exists = require("dsh.core").sys.kind,
    description = "Looks after commands that were started in the "
      .. "background." }, tool)
end

return M
