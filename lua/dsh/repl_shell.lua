--- dsh.repl_shell: one persistent bash under one confinement.
--
-- The shell is interactive, so that job control is bash's own, but it reads
-- its commands from a pipe and not from its terminal: one line is
--
--   eval '<what the person typed>' 0<&TTY TTY<&- REPLY>&-
--
-- so a command has the terminal as standard input and neither of our pipes.
-- Before bash would prompt, PROMPT_COMMAND replies with the status and the
-- directory; $? survives that. The terminal is a pseudo-terminal of ours
-- (src/lua_term.c).
local core = require("dsh.core")
local runner = require("dsh.runner")

local M = {}
local shell = {}
shell.__index = shell

local START_MS = 10000 -- for the first reply
local QUERY_MS = 5000  -- for an answer of an idle shell
local END_MS = 5000    -- for its end
local STATE_FIELDS = 9

--- One word for bash.
function M.quote(text)
  return "'" .. text:gsub("'", [['\'']]) .. "'"
end

local function bash_path()
  for _, path in ipairs({ "/bin/bash", "/usr/bin/bash",
    "/usr/local/bin/bash" }) do
    if core.sys.kind(path) then
      return path
    end
  end
end
M.bash = bash_path()

local SETUP = [[
PS1= PS2= HISTFILE=; set +o history +H; export -n PS1 PS2 HISTFILE; unset ]]
  .. [[HISTFILE; __dsh_reply() { builtin printf '%s\0%s\0' "$?" "$PWD" ]]
  .. [[>&@REPLY@; }; __dsh_st() { return "$1"; }; PROMPT_COMMAND=__dsh_reply
]]

-- The shell's own numbers for its terminal and for the reply pipe: above
-- those that people use, and above those that bash takes for itself (10-20).
local TTY, REPLY = 60, 61

-- setsid makes its standard input the controlling terminal; only then does
-- the pipe of commands take that place.
local function argv(command, reply)
  return { "/usr/bin/setsid", "-c", "-w", M.bash, "--noprofile", "--norc",
    "-c", ("exec %d<&0 %d>&%d 0<&%d %d<&- %d>&-; "):format(TTY, REPLY, reply,
      command, command, reply)
      .. "exec " .. M.bash .. " --noprofile --norc --noediting -i" }
end

--- Starts a shell. start(argv, opts) gives a handle or nil, err (it is
-- ctx.sandbox:start with a policy bound); opts {cwd, env}. shell, or nil, err.
function M.open(start, opts)
  local term, err = core.term.session()
  if not term then
    return nil, err
  end
  local slave, command, reply = term:fds()
  local handle
  local env = { PS1 = "", PS2 = "" }
  for name, value in pairs(opts.env or {}) do
    env[name] = value
  end
  handle, err = start(argv(command, reply), { cwd = opts.cwd, env = env,
    env_mode = "terminal", stdio = { slave, slave, slave },
    pass_fds = { command, reply }, timeout_ms = 0, observe = true })
  if not handle then
    term:close()
    return nil, err
  end
  term:started()
  local self = setmetatable({ term = term, handle = handle, run = handle.run,
    tty = TTY, reply = REPLY, status = 0, cwd = opts.cwd }, shell)
  term:silence(true)
  term:send((SETUP:gsub("@REPLY@", REPLY)))
  local text, why = self:await(2, START_MS)
  term:silence(false)
  if not text then
    return self:failed(why)
  end
  return self
end

-- The shell did not come up: what the run says about it.
function shell:failed(why)
  local result = self:result()
  local err = result and runner.failure(self.handle.confined, result)
  self:close()
  if err then
    return nil, err
  elseif result and result.started == "no" then
    return nil, ("the shell was not started (stage %s)"):format(
      result.stage or "unknown")
  end
  return nil, "the shell did not start: " .. why
end

local function fields(text)
  local list = {}
  for field in text:gmatch("([^%z]*)%z") do
    list[#list + 1] = field
  end
  return list
end

-- Waits for `n` fields; the last two are always status and directory.
function shell:await(n, timeout, input)
  local text, why = self.term:relay(n, timeout or -1, input)
  if not text then
    if why == "ended" then
      self.ended = true
    end
    return nil, why
  end
  local list = fields(text)
  self.status = tonumber(list[#list - 1]) or 0
  self.cwd = list[#list]
  return list
end

--- Runs one piece of shell text on the terminal. true, or nil when the shell
-- is gone (self.ended) with it.
function shell:command(text)
  self.run:denials() -- those of before are not this command's
  local line = ("eval %s 0<&%d %d<&- %d>&-\n"):format(M.quote(text), self.tty,
    self.tty, self.reply)
  if not self.term:send(line) then
    self.ended = true
    return nil
  end
  return self:await(2, -1, true) and true or nil
end

--- Text that runs without the terminal and may write NUL terminated fields
-- to descriptor REPLY (as {R} in the text). The fields, or nil.
function shell:query(text, n)
  self.term:silence(true)
  local line = text:gsub("{R}", tostring(self.reply))
    .. ("\n__dsh_st %d"):format(self.status) -- $? is the person's
  local list
  if self.term:send("eval " .. M.quote(line) .. " 0</dev/null\n") then
    list = self:await(n + 2, QUERY_MS)
  end
  self.term:silence(false)
  return list
end

--- The typed refusals since the last command began. They were sent before
-- the refused calls returned, so none is missing.
function shell:denials()
  return self.run:denials()
end

local STATE = [[__dsh_f=; for __dsh_i in 3 4 5 6 7 8 9; do ]]
  .. [[builtin [ -e /proc/$$/fd/$__dsh_i ] && __dsh_f+=$__dsh_i; done; ]]
  .. [[builtin printf '%s\0' "$(builtin declare -p)" ]]
  .. [["$(builtin declare -f)" "$(builtin alias -p)" "$(builtin shopt -p)" ]]
  .. [["$(builtin set +o)" "$(builtin umask)" "$(builtin trap -p)" ]]
  .. [["$(builtin jobs -p)" "$__dsh_f" >&{R}; unset __dsh_f __dsh_i]]

--- Everything that a new shell can take over: a table for restore, or nil.
function shell:state()
  local status = self.status
  local list = self:query(STATE, STATE_FIELDS)
  if not list then
    return nil
  end
  local jobs, open = 0, {}
  for _ in list[8]:gmatch("%d+") do
    jobs = jobs + 1
  end
  for fd in list[9]:gmatch("%d") do
    open[#open + 1] = fd
  end
  return { variables = list[1], functions = list[2], aliases = list[3],
    shopts = list[4], options = list[5], umask = list[6], traps = list[7],
    jobs = jobs, open = open, cwd = self.cwd, status = status }
end

--- Takes over a state of another shell. A list of what could not be.
function shell:restore(state)
  local lost = {}
  -- These two make bash open its input anew, and lose what is in it.
  local options = state.options:gsub("[^\n]* emacs\n?", "")
    :gsub("[^\n]* vi\n?", "")
  self.status = state.status
  local text = table.concat({
    state.variables, state.functions, state.aliases, state.shopts,
    options, "builtin umask " .. state.umask, state.traps,
    "builtin set +o history +H",
    "PS1= PS2= PROMPT_COMMAND=__dsh_reply",
    "__dsh_reply() { builtin printf '%s\\0%s\\0' \"$?\" \"$PWD\" >&"
      .. self.reply .. "; }",
  }, "\n")
  -- Each part by itself: one that fails does not stop the others.
  if not self:query("builtin eval " .. M.quote(text) .. " 2>/dev/null", 0) then
    lost[#lost + 1] = "variables, functions and options"
  end
  self:query("builtin cd -- " .. M.quote(state.cwd), 0)
  if self.cwd ~= state.cwd then
    lost[#lost + 1] = "the directory"
  end
  if state.jobs > 0 then
    lost[#lost + 1] = state.jobs == 1 and "1 job (ended)"
      or state.jobs .. " jobs (ended)"
  end
  for _, fd in ipairs(state.open) do
    lost[#lost + 1] = "open descriptor " .. fd
  end
  return lost
end

--- Names that bash itself knows, for completion: a list.
function shell:names()
  local list = self:query([[builtin printf '%s\0' ]]
    .. [["$(builtin compgen -A alias -A function -A builtin -A keyword)" ]]
    .. [[>&{R}]], 1)
  local names = {}
  for name in (list and list[1] or ""):gmatch("[^\n]+") do
    if not name:match("^__dsh_") then
      names[#names + 1] = name
    end
  end
  return names
end

--- After the shell ended: its result, or nil.
function shell:result()
  if self.run:wait(END_MS) == "finished" then
    return self.handle.finish()
  end
end

function shell:close()
  if self.run then
    self.run:abort()
    self.run:wait(END_MS)
    self.run:close()
    self.run = nil
  end
  self.term:close()
end

return M
