--- dsh.repl_loop: the prompt itself: read, run, explain, ask.
local ask = require("dsh.repl_ask")
local core = require("dsh.core")
local escalation = require("dsh.escalation")
local history = require("dsh.repl_history")
local paths = require("dsh.paths")
local shell = require("dsh.repl_shell")
local text = require("dsh.repl_text")

local M = {}
local app = {}
app.__index = app

local MORE = "> " -- the prompt of a continuation line

-- policy and facts -----------------------------------------------------------

--- The complete policy of this session, now.
function app:policy()
  local policy = self.ctx.sandbox_policy:resolve({ session = self.session })
  policy.workspace_root = policy.workspace_root or self.root
  return policy
end

--- {mode, backend, enforcement, gaps, limits} of a command under `policy`.
function app:facts(policy)
  policy = policy or self:policy()
  local plan, err = self.ctx.sandbox:confine({ shell.bash }, policy)
  if not plan then
    return nil, err
  end
  return { mode = policy.mode, backend = plan.backend, env = self.env,
    enforcement = plan.enforcement, gaps = plan.gaps or {},
    limits = plan.limits or {}, cwd = self.shell and self.shell.cwd
      or core.sys.cwd() }
end

function app:approval_policy()
  local approval = self.ctx.approval
  return approval and approval:policy(self.session) or "never"
end

-- the shell -------------------------------------------------------------------

--- A shell under the policy of this moment; takes over `state` when given.
-- The list of what could not be taken over; or nil, err.
function app:open_shell(state)
  local policy = self:policy()
  local function start(argv, opts)
    opts.policy = policy
    return self.ctx.sandbox:start(argv, opts)
  end
  local cwd = state and core.sys.kind(state.cwd) and state.cwd
    or core.sys.cwd() or "/"
  local new, err = shell.open(start, { cwd = cwd })
  if not new then
    return nil, err
  end
  if self.shell then
    self.shell:close()
  end
  self.shell, self.mode = new, policy.mode
  return state and new:restore(state) or {}
end

--- The same shell state under the policy as it is now; says what was lost.
function app:reopen()
  local state = self.shell:state()
  if not state then
    return nil, "the shell does not answer; its state cannot be carried over"
  end
  local lost, err = self:open_shell(state)
  if not lost then
    return nil, err
  end
  if #lost > 0 then
    text.say("not carried over: " .. table.concat(lost, ", "), "dim")
  end
  return true
end

--- Would a new confinement end jobs, and is that all right?
function app:may_reopen()
  local state = self.shell:state()
  if not state or state.jobs == 0 then
    return true
  end
  return ask.confirm(("This ends %d background job%s. Go on?"):format(
    state.jobs, state.jobs == 1 and "" or "s"))
end

-- one command ---------------------------------------------------------------

-- Once more under a policy that was just granted; with the environment that
-- dshsh was started with, so that no alias, function or PATH of a confined
-- line takes part.
function app:run_again(line, policy)
  local r, err = self.ctx.sandbox:run({ shell.bash, "--noprofile", "--norc",
    "-c", line }, { policy = policy, cwd = self.shell.cwd, timeout_ms = 0,
    stdio = "inherit", foreground = true, env_mode = "terminal" })
  if not r then
    text.say(tostring(err), "bad")
    return
  end
  self.emit({ event = "again", mode = policy.mode, exit_code = r.exit_code,
    signal = r.signal, sandbox = r.sandbox })
  local status = r.signal and 128 + r.signal or r.exit_code or 125
  self.shell.status = status
  self.shell:query("", 0) -- so that $? is this run's
  if status ~= 0 then
    text.say(("status %d"):format(status), "dim")
  end
end

-- The question after a refusal, if there is anybody and anything to ask.
function app:offer(line, denials, facts)
  if self:approval_policy() ~= "ask" then
    text.say("  approval is never: not asked, not run again", "dim")
    return
  end
  local choice = ask.ask(line, denials, facts)
  if not choice then
    self:record_refusal(line, denials)
    return
  end
  self.answer = choice[2]
  local policy, err = escalation.ask(self.ctx.approval, {
    policy = self:policy(), to = choice[3], session = self.session,
    reason = "the line was refused: " .. ask.describe(denials[1]),
    tool = "prompt", action = { argv = { shell.bash, "-c", line } } })
  self.answer = nil
  if not policy then
    text.say(tostring(err), "bad")
    return
  end
  self:run_again(line, policy)
  if choice[2] == "allowed-session" then
    self:try(self:reopen())
  end
end

-- A "no" leaves its asked/decided pair in the log, like every answer.
function app:record_refusal(line, denials)
  if not self.ctx.approval then
    return
  end
  local to = escalation.proposal(denials[1], core.sys.kind)
  self.answer = "rejected"
  if to then
    escalation.ask(self.ctx.approval, { policy = self:policy(), to = to,
      session = self.session, reason = "the line was refused",
      tool = "prompt", action = { argv = { shell.bash, "-c", line } } })
  end
  self.answer = nil
end

--- Says why something did not work; passes its arguments on.
function app.try(_, ok, err)
  if not ok then
    text.say(text.visible(tostring(err)), "bad")
  end
  return ok, err
end

-- File permissions alone would refuse it: a wider mode changes nothing.
local function only_permissions(denials)
  for _, d in ipairs(denials) do
    if not d.also_permissions then
      return false
    end
  end
  return true
end

function app:log_denials(denials, facts)
  if not self.session then
    return
  end
  local events = {}
  for i = 1, math.min(#denials, 20) do
    local d = denials[i]
    events[i] = { type = "sandbox/denied", ignorable = true, data = {
      op = d.op, path = d.path and text.visible(d.path),
      errno = tostring(d.errno), mode = facts.mode,
      backend = facts.backend,
      evidence = d.certainty } }
  end
  if #events > 0 then
    self:try(self.session:append(events))
  end
end

-- What there is to say after a command: status, refusals, a question. True
-- when there was a question.
function app:after(line)
  local status = self.shell.status
  local denials = self.shell:denials()
  self.emit({ event = "command", line = line, status = status,
    cwd = self.shell.cwd, mode = self.mode, denials = denials })
  local word = ask.wants_rights(line)
  if word and status ~= 0 and self.mode ~= "danger-full-access" then
    text.say(("%s cannot gain rights here: a confined command and all it "
      .. "starts have none to gain. /mode danger-full-access lifts that, "
      .. "or leave dshsh."):format(word), "dim")
    return
  end
  if #denials == 0 then
    return
  end
  local facts = self:facts() or { mode = self.mode, env = self.env }
  facts.cwd = self.shell.cwd
  self.refused = { line = line, denials = denials, facts = facts,
    status = status }
  self:log_denials(denials, facts)
  if status == 0 then
    text.say(("(refused on the way, and not missed: %s%s)"):format(
      ask.describe(denials[1]), #denials > 1
        and (" and %d more"):format(#denials - 1) or ""), "dim")
  elseif status ~= 130 and status ~= 148 then
    ask.explain(denials, facts)
    if not only_permissions(denials) then
      self:offer(line, denials, facts)
      return true
    end
  end
end

--- Runs one complete line of shell text. Line editing is ours, not bash's.
function app:command(line)
  local keys = line:match("^%s*set%s+%-o%s+(%a+)%s*$")
  if keys == "vi" or keys == "emacs" then
    self.editor:mode(keys)
    return true
  end
  if not self.shell:command(line) then
    return false
  end
  core.term.write(text.RESET)
  self.shell.term:sane()
  local ahead = self.shell.term:typed_ahead()
  if not self:after(line) and ahead and ahead ~= "" then
    self.editor:push(ahead)
  end
  return true
end

-- reading ---------------------------------------------------------------------

-- Text that may well be unfinished; only then is bash asked.
local function suspicious(line)
  return line:find("['\"`({\\|&<]")
    or line:find("%f[%w](%a+)%f[%W]") and (
      line:find("%f[%w]if%f[%W]") or line:find("%f[%w]for%f[%W]")
      or line:find("%f[%w]while%f[%W]") or line:find("%f[%w]until%f[%W]")
      or line:find("%f[%w]case%f[%W]") or line:find("%f[%w]select%f[%W]"))
end

--- Is the text unfinished? bash reads it (-n: it executes nothing), under
-- read-only all the same.
function app:unfinished(line)
  if line:sub(-1) == "\\" and line:match("(\\*)$"):len() % 2 == 1 then
    return true
  elseif not suspicious(line) then
    return false
  end
  local r = self.ctx.sandbox:run({ shell.bash, "--norc", "-O", "extglob",
    "-n", "-c", line }, { mode = "read-only", timeout_ms = 2000,
    env = { LC_ALL = "C" } })
  local said = r and r.stderr and r.stderr.text or ""
  return said:find("unexpected end of file", 1, true) ~= nil
    or said:find("unexpected EOF", 1, true) ~= nil
    or said:find("delimited by end-of-file", 1, true) ~= nil
end

--- One complete input: text, or nil and "eof" or "interrupt".
function app:read()
  self.prompt_state = { cwd = self.shell.cwd, mode = self.mode,
    outside = not self:inside(self.shell.cwd) }
  local line, why = self.editor:read(text.prompt(self.prompt_state),
    self.shell.term)
  if not line then
    return nil, why
  end
  while not self:slash_word(line) and self:unfinished(line) do
    local more
    more, why = self.editor:read(MORE, self.shell.term)
    if not more then
      if why == "interrupt" then
        return nil, why
      end
      break
    end
    line = line .. "\n" .. more
  end
  return line
end

--- Is the directory in the workspace?
function app:inside(dir)
  local root = core.sys.realpath(self.root) or self.root
  local at = core.sys.realpath(dir) or dir
  return at == root or at:sub(1, #root + 1) == root .. "/" or root == "/"
end

--- The slash command that the line is, if it is one: name, rest.
function app.slash_word(_, line)
  local word, rest = line:match("^%s*(/[%w?_-]+)%s*(.*)$")
  if line:match("^%s*=%S") or line:match("^%s*=%s") then
    return "lua", line:match("^%s*=(.*)$")
  end
  if not word or line:match("^%s*/[%w?_-]+/") or core.sys.kind(word) then
    return nil
  end
  return word:sub(2), rest
end

-- the life of a session -----------------------------------------------------

local function banner(self)
  local facts, err = self:facts()
  local columns = math.min(text.columns(), 80) - 1
  local function line(label, value)
    io.stdout:write(text.wrap(("%-10s %s"):format(label, value), columns),
      "\n")
  end
  line("dshsh " .. core.version, "  " .. text.directory(self.root))
  if not facts then
    text.say(tostring(err), "bad")
    return false
  end
  io.stdout:write("mode ", text.paint(facts.mode, facts.mode), " (", self.from,
    ")", facts.backend and (", by %s: %s"):format(facts.backend,
      facts.enforcement) or ", nothing confines", "\n")
  for _, gap in ipairs(facts.gaps) do
    line("  gap", gap.effect .. ": " .. gap.reason)
  end
  if facts.backend then
    text.say("not limited in any mode: network, reads, and more (/policy). "
      .. "/help helps.", "dim")
  end
  return true
end

local function start_history(self)
  local home = paths.home()
  if home then
    core.sys.mkdir(home)
  end
  history.load(function(line)
    self.editor:remember(line)
  end)
end

local function source_rc(self)
  local home = paths.home()
  local rc = home and home .. "/rc.sh"
  if rc and core.sys.kind(rc) == "file" then
    self.shell:command(". " .. shell.quote(rc))
  end
end

-- The session whose log the prompt writes; a resumed one decides the mode.
local function open_session(self)
  local sessions = self.ctx.sessions
  if not sessions then
    return true
  end
  local err
  if self.args.resume then
    self.session, err = sessions:open(self.args.resume)
    self.from = "resumed session"
  else
    self.session, err = sessions:create({ cwd = self.root })
  end
  if not self.session then
    return nil, err
  end
  return true
end

local function begin(self)
  local permission = self.ctx.permission
  if permission and self.session and not self.args.resume
    and not self.args.mode then
    local ok, err = permission:begin(self.session, nil)
    if not ok then
      return nil, err
    end
  end
  if self.args.preset then
    if not permission then
      return nil, "--preset: this composition has no presets"
    end
    local ok, err = permission:set(self.session, self.args.preset)
    if not ok then
      return nil, err
    end
    self.from = "--preset"
  end
  if self.ctx.approval then
    self.ctx.approval:add_answerer(function()
      return self.answer
    end)
  end
  return true
end

local function handle(self, line)
  if not line:find("%S") then
    return true
  end
  self.editor:remember(line)
  history.add(line)
  local name, rest = self:slash_word(line)
  if name then
    return require("dsh.repl_slash").run(self, name, rest)
  end
  return self:command(line)
end

-- bash ended: by exit, or by something else. Its status is ours.
local function ended(self)
  local r = self.shell:result()
  if r and r.exit_code then
    return r.exit_code
  end
  text.say("the shell ended" .. (r and r.signal and " by signal " .. r.signal
    or "") .. ".", "bad")
  return r and r.signal and 128 + r.signal or 125
end

local function loop(self)
  while true do
    local line, why = self:read()
    if why == "eof" then
      io.stdout:write("\n")
      return self.shell.status
    elseif why == "interrupt" then
      io.stdout:write("^C\n")
    else
      local go = handle(self, line)
      if self.shell.ended then
        return ended(self)
      elseif not go or self.quit then
        return self.quit or self.shell.status
      end
    end
  end
end

--- run{ctx, args, root, emit, from}: the exit status, or nil, err.
function M.run(given)
  local self = setmetatable(given, app)
  self.env = core.sys.environ()
  local ok, err = open_session(self)
  if not ok then
    return nil, err
  end
  ok, err = begin(self)
  if not ok then
    return nil, err
  end
  if not banner(self) then
    return 125
  end
  ok, err = self:open_shell()
  if not ok then
    return nil, err
  end
  self.editor = core.edit.open(function(line, cursor)
    return require("dsh.repl_complete").complete(self, line, cursor)
  end)
  start_history(self)
  source_rc(self)
  local status = self.shell.ended and ended(self) or loop(self)
  self.shell:close()
  if self.session and self.session.close then
    self.session:close()
  end
  return status
end

M.app = app
return M
