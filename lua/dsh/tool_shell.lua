--- dsh.tool_shell: a shell as a tool for a model. tool_bash and tool_pwsh are
-- this with another name.
--
--   tool.name, tool.description, tool.parameters (a JSON schema)
--   tool:call(args, {session?, call_id?, owner?, abort?})
--     -> {text =, is_error =, result? | job? | error?}
--
-- It never raises for what a model passes: that is an error text. A call may
-- ask for a wider policy, for itself alone; nothing has run before somebody
-- granted it.
local errors = require("dsh.errors")
local escalation = require("dsh.escalation")
local render = require("dsh.tool_text")

local M = {}

local tool = {}
tool.__index = tool

local ARGS = { command = "string", workdir = "string", timeoutMs = "number",
  stdin = "string", background = "boolean", escalateMode = "string",
  grantPath = "string", reason = "string" }

--- The arguments as JSON schema.
function M.parameters(shell)
  local function text(description, more)
    local p = { type = "string", description = description }
    for k, v in pairs(more or {}) do
      p[k] = v
    end
    return p
  end
  return { type = "object", additionalProperties = false,
    required = { "command" }, properties = {
      command = text("The command text for " .. shell .. "."),
      workdir = text("Directory to start in; relative to the workspace."),
      timeoutMs = { type = "integer", minimum = 1,
        description = "Milliseconds until the command is ended." },
      stdin = text("Text for the command's standard input."),
      background = { type = "boolean",
        description = "Start it as a job and return its id at once." },
      escalateMode = text("Ask for this wider file policy, for this one "
        .. "call.", { enum = { "workspace-write", "danger-full-access" } }),
      grantPath = text("Ask to make this one absolute path writable, and "
        .. "nothing else."),
      reason = text("Why the wider policy is needed. Required with "
        .. "escalateMode or grantPath; shown to the person who decides."),
    } }
end

local function invalid(message)
  return errors.new("MISUSE", message, { stage = "tool" })
end

-- nil, or the error for arguments that cannot be meant.
local function check(args)
  if type(args) ~= "table" then
    return invalid("arguments: expected an object")
  end
  for key, value in pairs(args) do
    local want = ARGS[key]
    if not want then
      return invalid(("%s: unknown argument"):format(tostring(key)))
    elseif type(value) ~= want then
      return invalid(("%s: expected %s, got %s"):format(key, want,
        type(value)))
    end
  end
  local command, ms = args.command, args.timeoutMs
  if not command or not command:find("%S") then
    return invalid("command: must not be empty")
  elseif command:find("\0", 1, true)
    or (args.workdir or ""):find("\0", 1, true) then
    return invalid("command, workdir: must not contain a NUL byte")
  elseif ms and (ms < 1 or ms ~= ms or ms > 1e12) then
    return invalid("timeoutMs: expected a positive number")
  elseif args.escalateMode and args.grantPath then
    return invalid("escalateMode, grantPath: only one of them")
  elseif args.reason and not (args.escalateMode or args.grantPath) then
    return invalid("reason: goes with escalateMode or grantPath")
  end
end

-- The policy of this call: the standing one, or a wider one that somebody
-- granted; nil, err otherwise.
local function policy_of(self, args, call, request)
  local plan = self.shell:resolve(request)
  if not (args.escalateMode or args.grantPath) then
    return plan.policy
  end
  local to = args.escalateMode and { mode = args.escalateMode }
    or { path = args.grantPath, access = "write" }
  return escalation.ask(self.approval, { policy = plan.policy, to = to,
    reason = args.reason, tool = self.name, action = { argv = plan.argv },
    session = call.session, call_id = call.call_id })
end

local function failure(err)
  return { text = render.failure(err), is_error = true, error = err }
end

local function hints(self, call)
  return { approval = self.approval and (not call.session
    or self.approval:policy(call.session) ~= "never"), exists = self.exists }
end

local function start(self, args, request)
  local job, err = self.shell:start(request)
  if not job then
    return failure(err)
  end
  return { text = render.started(job, args.command), is_error = false,
    job = job }
end

--- One call; see the top of this file.
function tool:call(args, call)
  call = call or {}
  local err = check(args)
  if err then
    return failure(err)
  end
  local request = { command = args.command, workdir = args.workdir,
    timeout_ms = args.timeoutMs and math.ceil(args.timeoutMs),
    stdin = args.stdin, session = call.session, owner = call.owner,
    abort = call.abort }
  request.policy, err = policy_of(self, args, call, request)
  if not request.policy then
    return failure(err)
  end
  if args.background then
    return start(self, args, request)
  end
  if request.owner then
    request.owner = nil
  end
  local result
  result, err = self.shell:run(request)
  if not result then
    return failure(err)
  end
  return { text = render.result(result, hints(self, call)),
    is_error = result.started == "no" or (result.exit_code or 1) ~= 0,
    result = result }
end

--- The service module of one shell's tool.
function M.module(name, shell)
  return {
    provides = "tool_" .. name,
    needs = { "shell", "approval?" },
    schema = {},
    start = function(deps)
      return setmetatable({ name = name, shell = deps.shell,
        approval = deps.approval, parameters = M.parameters(shell),
        description = ("Runs a command with %s under the session's file "
          .. "policy and returns its output and exit status."):format(shell),
        exists = require("dsh.core").sys.kind }, tool)
    end,
  }
end

return M
