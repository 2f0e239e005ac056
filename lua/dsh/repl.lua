--- dsh.repl: `dshsh` without a verb: the prompt, -c, a script, or "-".
local core = require("dsh.core")
local text = require("dsh.repl_text")

local M = {}

local FAILURE, USAGE = 125, 125
local MODES = { ["read-only"] = true, ["workspace-write"] = true,
  ["danger-full-access"] = true }

-- Options with a value; "list" ones may be repeated.
local VALUES = { ["--mode"] = "mode", ["--workspace"] = "workspace",
  ["--backend"] = "backend", ["--profile"] = "profile", ["--patch"] = "patch",
  ["--set"] = "set", ["--preset"] = "preset", ["--resume"] = "resume",
  ["--json"] = "json", ["-c"] = "command" }
local LISTS = { patch = true, set = true }

--- Options, and what follows them: {…, command=, words = {…}}; or nil, why.
function M.parse(words)
  local args = { patch = {}, set = {}, words = {} }
  local i = 1
  while i <= #words do
    local word = words[i]
    local name, value = word:match("^(%-%-[%l%-]+)=(.*)$")
    local key = VALUES[name or word]
    if key then
      if not name then
        i = i + 1
        value = words[i]
      end
      if not value then
        return nil, ("option '%s' needs a value"):format(word)
      end
      if LISTS[key] then
        table.insert(args[key], value)
      else
        args[key] = value
      end
      if key == "command" then
        args.words = table.move(words, i + 1, #words, 1, {})
        break
      end
    elseif word ~= "-" and word:sub(1, 1) == "-" and word ~= "--" then
      return nil, ("unknown option '%s' (dshsh --help)"):format(word)
    else
      args.words = table.move(words, word == "--" and i + 1 or i, #words, 1,
        {})
      break
    end
    i = i + 1
  end
  if args.mode and not MODES[args.mode] then
    return nil, ("--mode: unknown mode '%s'"):format(args.mode)
  end
  return args
end

-- Rows that a script has no use for: what answers, edits or remembers.
local NOT_FOR_SCRIPTS = { "sessions", "approval", "permission", "fs-sandbox",
  "bash-sandbox", "pwsh-sandbox", "terminal", "tool-bash", "tool-pwsh",
  "tool-jobs", "tool-fs" }

-- The last of all layers: switches such rows off where they are.
local function trim(p)
  for _, id in ipairs(NOT_FOR_SCRIPTS) do
    if p.row(id) then
      p.disable(id)
    end
  end
end

-- As trim, for the prompt: rows whose module this installation lacks.
local function trim_missing(p)
  for _, id in ipairs(NOT_FOR_SCRIPTS) do
    local row = p.row(id)
    if row and not package.searchpath(row.name, package.path) then
      p.disable(id)
    end
  end
end

-- The context of a deployment: the base profile and the layers upon it.
local function open_context(args, interactive)
  local workspace, why = require("dsh.cli_open").workspace(args.workspace)
  if not workspace then
    return nil, why
  end
  local patches = table.move(args.patch, 1, #args.patch, 1, {})
  patches[#patches + 1] = interactive and trim_missing or trim
  local ctx, err = require("dsh").open({
    profile = args.profile or "base", patches = patches, set = args.set,
    mode = args.mode, workspace_root = workspace, backend = args.backend,
    user = true, warn = function(message)
      io.stderr:write("dshsh: ", text.visible(message), "\n")
    end,
  })
  if not ctx then
    return nil, err
  end
  return ctx, workspace
end

-- Events as JSON lines on a descriptor that the caller gave us.
local function event_writer(args)
  if not args.json then
    return function() end
  end
  local fd = tonumber(args.json)
  -- Opening a file anew would have an offset of its own, and "w" would empty
  -- what the caller wrote there before.
  local own = { [1] = io.stdout, [2] = io.stderr }
  local file = own[fd] or fd and io.open("/dev/fd/" .. fd, "a")
  if not file then
    return nil, ("--json: %s is not an open descriptor"):format(args.json)
  end
  file:setvbuf("line")
  local json, record = require("dsh.json"), require("dsh.record")
  return function(event)
    file:write(json.encode(record.plain(event, { "event" })), "\n")
  end
end

-- Where the mode comes from, in words.
local function origin(args, ctx)
  if args.mode then
    return "--mode"
  end
  local env = os.getenv("DSH_PERMISSION_MODE")
  if env and env ~= "" then
    return "$DSH_PERMISSION_MODE"
  end
  local _ = ctx
  return #args.patch > 0 and "profile and patches" or "base profile"
end

--- argv without the prompt: a bash script, from a word, a file or stdin.
local function script_argv(args)
  local bash = require("dsh.repl_shell").bash
  if not bash then
    return nil, "bash is not installed"
  end
  local argv = { bash }
  if args.command then
    argv[2], argv[3] = "-c", args.command
  elseif args.words[1] == "-" or not args.words[1] then
    argv[2] = "-s"
    if args.words[1] then
      argv[3] = "--"
    end
    table.move(args.words, 2, #args.words, #argv + 1, argv)
    return argv
  else
    argv[2] = "--"
  end
  return table.move(args.words, 1, #args.words, #argv + 1, argv)
end

-- Refusals of a script: said, and never asked about.
local function report_script(r, app)
  local s = r.sandbox or {}
  if not s.denied then
    return
  end
  local denials = s.denials or {}
  local failed = r.signal or r.exit_code ~= 0
  if failed and denials[1] then
    app.err("refused to %s under %s by %s; nobody is asked in a script",
      require("dsh.repl_ask").describe(denials[1]), s.mode, s.backend)
  elseif failed then
    app.err("something was refused under %s by %s; nobody is asked in a "
      .. "script", s.mode, s.backend)
  end
end

local function run_script(args, app, ctx, root, emit)
  local argv, why = script_argv(args)
  if not argv then
    return nil, why
  end
  local policy = ctx.sandbox_policy:resolve({})
  policy.workspace_root = policy.workspace_root or root
  emit({ event = "start", argv = argv, mode = policy.mode })
  local r, err = ctx.sandbox:run(argv, { policy = policy, stdio = "inherit",
    foreground = core.sys.isatty(0), timeout_ms = 0, env_mode = "terminal",
    cwd = core.sys.cwd() })
  if not r then
    emit({ event = "failed", error = { code = err.code,
      message = err.message } })
    return nil, err
  end
  emit({ event = "result", started = r.started, exit_code = r.exit_code,
    signal = r.signal, sandbox = r.sandbox })
  report_script(r, app)
  local status, line = require("dsh.record").status(r, argv)
  if line then
    app.err("%s", line)
  end
  return status
end

--- main(words, app): the exit status, or nil, err.
function M.main(words, app)
  local args, why = M.parse(words)
  if not args then
    app.err("%s", why)
    return USAGE
  end
  local emit
  emit, why = event_writer(args)
  if not emit then
    return nil, why
  end
  local interactive = not args.command and not args.words[1]
    and core.sys.isatty(0) and core.sys.isatty(1)
  local ctx, root = open_context(args, interactive)
  if not ctx then
    return nil, root
  end
  local code, err
  if interactive then
    code, err = require("dsh.repl_loop").run({ ctx = ctx, args = args,
      root = root, emit = emit, from = origin(args, ctx) })
  else
    code, err = run_script(args, app, ctx, root, emit)
  end
  ctx:close()
  if code == nil then
    return nil, err
  end
  return code
end

M.FAILURE = FAILURE
return M
