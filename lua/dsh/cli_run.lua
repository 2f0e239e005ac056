--- dshsh run: one command, confined; its status is ours.
local json = require("dsh.json")
local open = require("dsh.cli_open")
local record = require("dsh.record")
local with_session = require("dsh.cli_session")
local sys = require("dsh.core").sys

local FAILURE = 125

local function setup(cmd)
  open.options(cmd)
  with_session.option(cmd)
  cmd:option("--timeout", "Seconds until the command is ended.")
    :argname("<s>"):convert(function(text)
      local n = tonumber(text)
      if not n or n <= 0 or n ~= n or n > 1e9 then
        return nil, "--timeout: expected a number of seconds above 0, got '"
          .. text .. "'"
      end
      return n
    end)
  cmd:option("--env", "Pass this variable although it looks like a credential.")
    :argname("<name>"):count("*")
  cmd:mutex(
    cmd:flag("--json", "Capture, and print the result record as JSON."),
    cmd:option("--report", "Write the result record to a file.")
      :argname("<file>"))
  cmd:epilog("The command and its arguments follow a '--'.")
end

-- Opened before anything runs, so that a bad place costs no lost record.
local function open_report(path)
  if not path then
    return nil
  end
  local file, why = io.open(path, "wb")
  if not file then
    return nil, "--report: " .. why
  end
  return file
end

local function deliver(args, report, text)
  local to = args.json and io.stdout or report
  if to then
    if not (to:write(text, "\n") and to:flush()) then
      return nil
    end
  end
  return true
end

local function failure(err)
  local plain = { v = 1, started = "no" }
  if type(err) == "table" then
    plain.error = { code = err.code, message = err.message, stage = err.stage }
  else
    plain.error = { code = "MISUSE", message = tostring(err) }
  end
  return json.encode(record.result(plain))
end

local function options(args, mode, from)
  local opts = {
    mode = mode,
    stdio = args.json and "capture" or "inherit",
    foreground = not args.json and sys.isatty(0) or nil,
    timeout_ms = args.timeout and math.ceil(args.timeout * 1000) or 0,
    env_mode = args.json and "captured" or "terminal",
    env_pass = #args.env > 0 and args.env or nil,
    cwd = sys.cwd(),
  }
  if from ~= "--mode" and not args.json and sys.isatty(2) then
    io.stderr:write(("dshsh: mode %s (%s)\n"):format(mode, from))
  end
  return opts
end

-- What was refused goes to the session's log; the command is over, so a
-- failure to write changes nothing but is said.
local function finish(session, result, app)
  local ok, err = true, nil
  if result then
    ok, err = with_session.log(session, result)
  end
  session:close()
  if not ok then
    app.err("the denials were not logged: %s", tostring(err))
  end
end

local function run(args, app)
  local argv = app.command
  if #argv == 0 then
    app.err("run: no command after '--'")
    return FAILURE
  elseif argv[1] == "" then
    app.err("run: the command after '--' is an empty string")
    return FAILURE
  end
  local ctx, mode, from = open.open(args)
  if not ctx then
    return nil, mode
  end
  local held, err
  if args.session then
    held, err = with_session.open(args, app, ctx, mode, from)
    if not held then
      return nil, err
    end
    mode, from = held.policy.mode, held.from
  end
  local report, why = open_report(args.report)
  if why then
    return nil, why
  end
  local opts = options(args, mode, from)
  if held then
    opts.mode, opts.policy = nil, held.policy
  end
  local r
  r, err = ctx.sandbox:run(argv, opts)
  ctx:close()
  if held then
    finish(held.session, r, app)
  end
  if not r then
    deliver(args, report, failure(err))
    return nil, err
  end
  r.sandbox.mode_from = from
  if not deliver(args, report, json.encode(record.result(r), 2)) then
    return nil, "cannot write the record"
  end
  local status, line = record.status(r, argv)
  if line and not args.json then
    app.err("%s", line)
  end
  return status
end

return {
  name = "run",
  summary = "run a command, confined",
  usage_status = FAILURE,
  command = true,
  setup = setup,
  run = run,
}
