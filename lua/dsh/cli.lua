--- dsh.cli: the command line of `dshsh`.
--
-- A verb is a module dsh.cli_NAME, listed in VERBS below, that returns
--
--   {
--     name = "mode",                    -- the word on the command line
--     summary = "print a log's mode",   -- one line for --help
--     usage_status = 2,                 -- exit status of a usage error
--     command = false,                  -- true: everything after the first
--                                       -- "--" is app.command, a list
--     setup = function(cmd, app) end,   -- cmd is an argparse Command: add
--                                       -- arguments and options to it
--     run = function(args, app) end,    -- returns the exit status
--   }
--
-- A module may return a list of such tables. An option in FLAGS, anywhere
-- before "--", stands for its verb.
-- app is {version, program, command?, err(fmt, ...)}; err prints one line
-- "dshsh: ..." on stderr. A run function that returns nil, err has failed:
-- err is printed and the status is 125.
local sys = require("dsh.core").sys
local version = require("dsh.core").version

local M = {}

local VERBS = {
  "run", "confine", "probe", "doctor", "log", "config", "lua",
}
-- Options that stand for a verb; listed, so that nothing is loaded to know.
local FLAGS = { ["--dump-config"] = "config" }
local FAILURE, USAGE = 125, 2

local function try(name)
  local module = "dsh.cli_" .. name
  if not package.loaded[module]
    and not package.searchpath(module, package.path) then
    return {}
  end
  local found = require(module)
  return found.name and { found } or found
end

local function each_verb(visit)
  for _, name in ipairs(VERBS) do
    for _, verb in ipairs(try(name)) do
      local answer = visit(verb)
      if answer then
        return answer
      end
    end
  end
end

-- Verbs that share a module, so that none other is loaded to find them.
local SHARED = { mode = "log", verify = "log", replay = "log",
  sessions = "log" }

local function find_verb(word)
  for _, verb in ipairs(try(SHARED[word] or word:gsub("%-", "_"))) do
    if verb.name == word then
      return verb
    end
  end
  return each_verb(function(verb)
    return verb.name == word and verb
  end)
end

-- Splits at the first "--": what is before it, what is after it (or nil).
local function split(words)
  local before, after = {}, nil
  for i = 1, #words do
    if after then
      after[#after + 1] = words[i]
    elseif words[i] == "--" then
      after = {}
    else
      before[#before + 1] = words[i]
    end
  end
  return before, after
end

local function err(fmt, ...)
  io.stderr:write("dshsh: ", fmt:format(...), "\n")
end

local function help()
  local lines = {
    "Usage: dshsh [OPTIONS]                    the prompt",
    "       dshsh [OPTIONS] -c CMD | FILE | -  run a script, confined",
    "       dshsh VERB ...                     (dshsh VERB --help)",
    "", "Verbs:",
  }
  each_verb(function(verb)
    lines[#lines + 1] = ("  %-10s %s"):format(verb.name, verb.summary)
  end)
  lines[#lines + 1] = ""
  lines[#lines + 1] = "Options of the prompt and of scripts:"
  lines[#lines + 1] = "  --mode M       read-only, workspace-write or "
    .. "danger-full-access"
  lines[#lines + 1] = "  --workspace D  what workspace-write may write "
    .. "(here, by default)"
  lines[#lines + 1] = "  --backend B    force one backend (bwrap, landlock)"
  lines[#lines + 1] = "  --version, --help"
  io.stdout:write(table.concat(lines, "\n"), "\n")
  return 0
end

local function parse(verb, words, app)
  local argparse = require("argparse")
  local cmd = argparse("dshsh " .. verb.name, verb.summary)
  cmd:usage_max_width(78):help_max_width(78)
  if verb.setup then
    verb.setup(cmd, app)
  end
  local ok, args = cmd:pparse(words)
  if ok then
    return args
  end
  err("%s: %s (dshsh %s --help)", verb.name, args, verb.name)
end

local function run_verb(verb, words)
  local status = verb.usage_status or USAGE
  local app = { version = version, program = "dshsh", err = err }
  if verb.command then
    words, app.command = split(words)
    local last = words[#words] or ""
    if not app.command and last ~= "-h" and last ~= "--help" then
      err("%s: put '--' before the command", verb.name)
      return status
    end
  end
  local args = parse(verb, words, app)
  if not args then
    return status
  end
  local code, why = verb.run(args, app)
  if code == nil then
    err("%s", tostring(why))
    return FAILURE
  end
  return code
end

-- A verb that is called by an option: its words without that option.
local function flagged(words)
  local before = split(words)
  for i, word in ipairs(before) do
    if FLAGS[word] then
      local rest = table.move(words, 1, #words, 1, {})
      table.remove(rest, i)
      return find_verb(FLAGS[word]), rest
    end
  end
end

-- Options, scripts and the prompt belong to dsh.repl.
local function repl(words)
  if not package.searchpath("dsh.repl", package.path) then
    err("unknown verb '%s' (dshsh --help)", words[1] or "")
    return USAGE
  end
  local code, why = require("dsh.repl").main(words, { err = err,
    version = version })
  if code == nil then
    err("%s", tostring(why))
    return FAILURE
  end
  return code
end

--- main(arg): arg as in a Lua script; returns the exit status.
function M.main(arg)
  local words = table.move(arg, 1, #arg, 1, {})
  local first = words[1]
  if first == "--help" or first == "-h" then
    return help()
  elseif first == "--version" then
    io.stdout:write("dshsh ", version, "\n")
    return 0
  elseif not first and not sys.isatty(0)
    and not package.searchpath("dsh.repl", package.path) then
    return help()
  end
  local verb = first and first:match("^%l[%l-]*$") and find_verb(first)
  if verb then
    table.remove(words, 1)
    return run_verb(verb, words)
  end
  local rest
  verb, rest = flagged(words)
  if verb then
    return run_verb(verb, rest)
  end
  return repl(words)
end

return M
