--- dsh.repl_slash: the words of the prompt that begin with "/".
--
-- Each entry: {usage, summary, run = function(app, rest, words) … end,
-- args = function(app) return list end}. run returns nothing; a failure is
-- said. app.quit = status leaves.
local core = require("dsh.core")
local policy_words = require("dsh.repl_policy")
local text = require("dsh.repl_text")

local M = { commands = {} }
local commands = M.commands

local function say(fmt, ...)
  text.say(fmt:format(...))
end

local function words_of(rest)
  local list = {}
  for word in rest:gmatch("%S+") do
    list[#list + 1] = word
  end
  return list
end

for name, entry in pairs(policy_words) do
  commands[name] = entry
end

commands.quit = {
  usage = "/quit", summary = "leave (so does Ctrl-D)",
  run = function(app)
    app.quit = app.shell.status
  end,
}

commands.jobs = {
  usage = "/jobs", summary = "background jobs of the shell",
  run = function(app)
    app.shell:command("jobs -l")
  end,
}

commands.probe = {
  usage = "/probe", summary = "try each backend again",
  run = function(app)
    app.ctx.sandbox:reprobe()
    local results, err = app.ctx.sandbox:probe()
    if not app:try(results, err) then
      return
    end
    print(require("dsh.cli_probe").text(results))
  end,
}

commands.doctor = {
  usage = "/doctor", summary = "what is proven here, and what is not",
  run = function(app)
    local ok, doctor = pcall(require, "dsh.cli_doctor")
    if not ok then
      return say("doctor is not part of this installation")
    end
    local args = {}
    app:try(doctor.run(args, { err = function(fmt, ...)
      say(fmt, ...)
    end }))
  end,
}

commands.sessions = {
  usage = "/sessions", summary = "the sessions of this user",
  run = function(app)
    if not app.ctx.sessions then
      return say("this composition keeps no sessions")
    end
    local list = app:try(app.ctx.sessions:list())
    if not list then
      return
    end
    for _, s in ipairs(list) do
      local at = s.created_at or s.createdAt
      print(("%s  %s  %s"):format(text.visible(tostring(s.id)),
        at and os.date("%Y-%m-%d %H:%M", at // 1000) or "-",
        text.visible(tostring(s.cwd or s.error or ""), 200)))
    end
  end,
}

commands.resume = {
  usage = "/resume ID", summary = "go on in another session",
  run = function(app, _, words)
    if not words[1] then
      return say("usage: /resume ID (see /sessions)")
    elseif not app.ctx.sessions then
      return say("this composition keeps no sessions")
    elseif not app:may_reopen() then
      return
    end
    local session = app:try(app.ctx.sessions:open(words[1]))
    if not session then
      return
    end
    local old = app.session
    app.session = session
    if not app:try(app:reopen()) then
      app.session = old
      session:close()
      return
    end
    if old then
      old:close()
    end
    app.from = "resumed session"
    say("mode %s (from the session's log)", app.mode)
  end,
}

commands.events = {
  usage = "/events [N]", summary = "the last events of the session's log",
  run = function(app, _, words)
    local n = math.tointeger(tonumber(words[1] or 10))
    if not n or n < 1 then
      return say("usage: /events [N]")
    elseif not app.session then
      return say("this composition keeps no sessions")
    end
    local json, record = require("dsh.json"), require("dsh.record")
    local events = {}
    for event in app.session:events() do
      events[#events + 1] = event
    end
    for i = math.max(1, #events - n + 1), #events do
      local e = events[i]
      local ok, data = pcall(json.encode, record.plain(e.data or {}))
      print(("%5s  %-20s %s"):format(tostring(e.seq or i),
        text.visible(tostring(e.type)),
        text.visible(ok and data or "?", 400)))
    end
  end,
}

commands.config = {
  usage = "/config [--resolved]", summary = "the composed rows",
  args = function()
    return { "--resolved" }
  end,
  run = function(app, rest)
    local out = app:try(require("dsh.dump").text(app.ctx.composition,
      app.ctx.host, rest:find("--resolved", 1, true) ~= nil))
    if out then
      io.stdout:write(out)
    end
  end,
}

commands.patch = {
  usage = "/patch FILE", summary = "check a patch of the profile",
  run = function(app, _, words)
    if not words[1] then
      return say("usage: /patch FILE")
    end
    local home = words[1]:gsub("^~/", (os.getenv("HOME") or "~") .. "/")
    local file = home:sub(1, 1) == "/" and home or app.shell.cwd .. "/" .. home
    local list = table.move(app.args.patch, 1, #app.args.patch, 1, {})
    list[#list + 1] = file
    -- Composed first, so that a bad patch changes nothing.
    local ok, err = require("dsh").compose({ patches = list,
      profile = app.args.profile
        or require("dsh.paths").profiles .. "/base.cordis.yml" })
    if not ok then
      return app:try(nil, err)
    end
    say("the patch is good; it takes effect in a new prompt: leave with "
      .. "/quit and start dshsh --patch %s", text.visible(words[1]))
  end,
}

commands.lua = {
  usage = "/lua, or =EXPR", summary = "a Lua prompt over the live context",
  run = function(app, rest)
    require("dsh.repl_lua").run(app, rest)
  end,
}

local TOPICS = {
  modes = "read-only: a command may write nothing. workspace-write: it may "
    .. "write the workspace, /tmp and $TMPDIR. danger-full-access: no "
    .. "sandbox. /mode switches; the shell's variables, functions, aliases "
    .. "and directory go along, jobs do not.",
  refusals = "After a line that failed because something was refused, you "
    .. "are told what, and may run the whole line again with more rights: "
    .. "once under the next wider mode, or with one path writable. It runs "
    .. "with the environment that dshsh was started with.",
  keys = "Ctrl-C stops the command, Ctrl-Z suspends it, Ctrl-D leaves. Tab "
    .. "completes, Ctrl-R searches the history. A line that begins with a "
    .. "blank is not kept.",
  limits = "No mode limits the network, what may be read, processes, or "
    .. "devices beyond a short list. /policy lists what is not limited here.",
}

commands.help = {
  usage = "/help [TOPIC]", summary = "this, or one of its topics",
  args = function()
    local list = {}
    for name in pairs(TOPICS) do
      list[#list + 1] = name
    end
    return list
  end,
  run = function(_, _, words)
    if words[1] then
      local name = words[1]:gsub("^/", "")
      local topic = TOPICS[name]
      local entry = commands[name]
      return say("%s", topic or entry and entry.usage .. ": " .. entry.summary
        or "no such topic; there are modes, refusals, keys, limits, and "
        .. "each command's name")
    end
    local names = {}
    for name in pairs(commands) do
      names[#names + 1] = name
    end
    table.sort(names)
    say("A line is a command for bash, run confined. These are ours:")
    local narrow = text.columns() < 60
    for _, name in ipairs(names) do
      local e = commands[name]
      print(narrow and ("  %s\n    %s"):format(e.usage, e.summary)
        or ("  %-30s %s"):format(e.usage, e.summary))
    end
    say("Topics: modes, refusals, keys, limits.")
  end,
}

-- Edits between two words (insert, delete, change one).
local function distance(a, b)
  local row = {}
  for j = 0, #b do
    row[j] = j
  end
  for i = 1, #a do
    local left = row[0]
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      left, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1,
        left + cost)
    end
  end
  return row[#b]
end

--- The command whose name is nearest, or nil when none is near.
function M.nearest(name)
  local best, found = 3, nil
  for known in pairs(commands) do
    local d = known:sub(1, #name) == name and 0 or distance(name, known)
    if d < best or d == best and found and known < found then
      best, found = d, known
    end
  end
  return found
end

--- Runs one; true: go on reading.
function M.run(app, name, rest)
  local entry = commands[name]
  if not entry then
    local near = M.nearest(name)
    text.say(("/%s is not a command%s"):format(text.visible(name), near
      and ("; did you mean /%s?"):format(near) or "; see /help"))
    return true
  end
  local ok, err = xpcall(entry.run, debug.traceback, app, rest,
    words_of(rest))
  if not ok then
    text.say(text.visible(tostring(err), core.sys.isatty(1) and 2000 or 500),
      "bad")
  end
  return not app.quit
end

return M
