--- dsh.repl_ask: refusals explained, and the one question that may follow.
--
-- A question shows what the person typed, the program and the path, all made
-- visible, and nothing that the command printed. While it stands, output of
-- the confined tree is not copied to the terminal; what was typed before it,
-- and what the terminal was made to answer, is dropped.
local core = require("dsh.core")
local escalation = require("dsh.escalation")
local text = require("dsh.repl_text")

local M = {}

local LINE_MAX = 2000 -- bytes of a line that a question shows
local SYNC_MS = 1000  -- for the terminal to answer; one that never does waits
local WIDER = { ["read-only"] = "workspace-write",
  ["workspace-write"] = "danger-full-access" }
local VERBS = { open = "write", creat = "create", mkdir = "make the directory",
  mknod = "make", rmdir = "remove", unlink = "remove", rename = "rename",
  link = "link", symlink = "make the link", truncate = "truncate",
  chmod = "change the mode of", chown = "change the owner of",
  utime = "set the times of", utimensat = "set the times of",
  setxattr = "set an attribute of", removexattr = "remove an attribute of" }
local BUILTIN = {}
for name in ([[. : [ alias bg bind break builtin caller cd command compgen
  complete compopt continue declare dirs disown echo enable eval exec exit
  export false fc fg getopts hash help history jobs kill let local logout
  mapfile popd printf pushd pwd read readarray readonly return set shift shopt
  source suspend test times trap true type typeset ulimit umask unalias unset
  wait]]):gmatch("%S+") do
  BUILTIN[name] = true
end
local RIGHTS = { sudo = true, su = true, doas = true, pkexec = true }

--- One refusal in words: `write "/etc/x" (EROFS)`.
function M.describe(denial)
  local what = VERBS[denial.op] or denial.op or "change"
  local path = denial.path and '"' .. text.visible(denial.path, 500) .. '"'
    or "something"
  if denial.path2 and denial.path2 ~= "" then
    path = path .. ' and "' .. text.visible(denial.path2, 500) .. '"'
  end
  local name = denial.errno
  return ("%s %s%s"):format(what, path,
    name and " (" .. tostring(name) .. ")" or "")
end

--- What was refused, in one or two lines.
function M.explain(denials, facts)
  local first = denials[1]
  local more = #denials > 1 and (" and %d more"):format(#denials - 1) or ""
  local evidence = first.certainty == "confirmed" and "confirmed by the kernel"
    or "predicted from the policy"
  text.say(("refused to %s%s"):format(M.describe(first), more), "bad")
  text.say(("  under %s, by %s; %s%s"):format(facts.mode,
    facts.backend or "the sandbox", evidence, first.also_permissions
      and "; file permissions alone would refuse it too" or ""), "dim")
end

--- The program that the line begins with: an absolute path, or words.
function M.program(line, env)
  local word = line
  repeat
    local rest = word:match("^%s*[%a_][%w_]*=[%w%-_./:]*%s+(.*)$")
    word = rest or word
  until not rest
  word = word:match("^%s*([%w%-_.+/@]+)%s") or word:match("^%s*([%w%-_.+/@]+)$")
  if not word then
    return "as bash reads the line"
  elseif BUILTIN[word] then
    return word .. ", built into " .. require("dsh.repl_shell").bash
  elseif word:find("/", 1, true) then
    return core.sys.realpath(word) or word
  end
  for dir in ((env.PATH or "/usr/bin:/bin") .. ":"):gmatch("([^:]*):") do
    local path = dir .. "/" .. word
    if dir:sub(1, 1) == "/" and core.sys.kind(path) then
      return path
    end
  end
  return word .. ", which is not on PATH"
end

--- Did the line ask for rights that a confined command never gets?
function M.wants_rights(line)
  local word = line:match("^%s*(%a+)")
  return word and RIGHTS[word] and word
end

local function exists(path)
  return core.sys.kind(path) ~= nil
end

-- What may be offered: {label, outcome, to}.
local function choices(denials, facts)
  local list = {}
  local wider = WIDER[facts.mode]
  if wider then
    list[#list + 1] = { "once under " .. wider, "allowed-once",
      { mode = wider } }
  end
  local to = escalation.proposal(denials[1], exists)
  if to then
    local path = text.visible(to.path, 500)
    list[#list + 1] = { "once, with " .. path .. " writable",
      "allowed-once", to }
    list[#list + 1] = { path .. " writable for this session",
      "allowed-session", to }
  end
  list[#list + 1] = { "no", "rejected" }
  return list
end

local function row(label, value)
  local width = math.min(text.columns(), 80) - 1
  local lines = text.wrap(value, width - 11)
  io.stdout:write(("  %-8s "):format(label),
    (lines:gsub("\n", "\n" .. (" "):rep(11))), "\n")
end

--- Asks. choice {label, outcome, to}, or nil for no.
function M.ask(line, denials, facts)
  local list = choices(denials, facts)
  core.term.write(text.RESET .. "\r\n")
  core.term.sync(SYNC_MS)
  io.stdout:write(text.paint("bold",
    "Run the whole line again, with more rights?"), "\n")
  row("line", text.visible(line, LINE_MAX))
  row("program", text.visible(M.program(line, facts.env)))
  row("in", text.visible(facts.cwd, 500))
  row("refused", M.describe(denials[1]))
  for i, choice in ipairs(list) do
    row(("  %d"):format(i), choice[1])
  end
  io.stdout:write(("Choice [%d]: "):format(#list))
  io.stdout:flush()
  local answer = core.term.answer()
  local n = answer and tonumber(answer:match("^%s*(%d)%s*$"))
  if not answer then
    io.stdout:write("\n")
  end
  local choice = n and list[n]
  if not choice or not choice[3] then
    return nil
  end
  return choice
end

--- A yes or no; only "y" or "yes" is yes.
function M.confirm(question)
  core.term.write(text.RESET .. "\r\n")
  core.term.sync(SYNC_MS)
  io.stdout:write(text.visible(question), " [y/N] ")
  io.stdout:flush()
  local answer = core.term.answer()
  if not answer then
    io.stdout:write("\n")
  end
  return answer ~= nil and answer:lower():match("^%s*y[es]*%s*$") ~= nil
end

return M
