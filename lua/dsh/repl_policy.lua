--- dsh.repl_policy: the prompt's commands that show or change the policy.
local escalation = require("dsh.escalation")
local text = require("dsh.repl_text")

local M = {}

local MODES = { "read-only", "workspace-write", "danger-full-access" }

local function say(fmt, ...)
  text.say(fmt:format(...))
end

-- Takes a change over into a new shell; on failure says so.
local function take_over(app)
  if app:try(app:reopen()) then
    say("mode %s", text.paint(app.mode, app.mode))
  end
end

M.mode = {
  usage = "/mode [MODE]", summary = "show or switch the mode",
  args = function()
    return MODES
  end,
  run = function(app, _, words)
    if not words[1] then
      return say("%s (%s)", app.mode, app.from)
    end
    local mode
    for _, known in ipairs(MODES) do
      mode = mode or known == words[1] and known
    end
    if not mode then
      return say("unknown mode '%s'; there are %s", text.visible(words[1]),
        table.concat(MODES, ", "))
    elseif mode == app.mode then
      return say("already %s", mode)
    elseif not app:may_reopen() then
      return
    end
    if app:try(app.ctx.sandbox_policy:set_mode(app.session, mode)) then
      app.from = "/mode"
      app.emit({ event = "mode", mode = mode })
      take_over(app)
    end
  end,
}

M.permission = {
  usage = "/permission [PRESET]", summary = "show or switch the preset",
  args = function(app)
    return app.ctx.permission and app.ctx.permission:names() or {}
  end,
  run = function(app, _, words)
    local permission = app.ctx.permission
    if not permission then
      return say("this composition has no presets")
    elseif not words[1] then
      say("%s; there are %s", permission:current(app.session),
        table.concat(permission:names(), ", "))
      return
    elseif not app:may_reopen() then
      return
    end
    if app:try(permission:set(app.session, words[1])) then
      app.from = "/permission"
      take_over(app)
    end
  end,
}

local function list_gaps(title, list)
  if #list == 0 then
    return
  end
  print(title)
  for _, item in ipairs(list) do
    print(text.wrap(("  %s: %s"):format(item.effect, item.reason or ""),
      math.min(text.columns(), 80) - 1))
  end
end

M.policy = {
  usage = "/policy", summary = "the whole policy, its gaps and limits",
  run = function(app)
    local policy = app:policy()
    local facts = app:try(app:facts(policy))
    say("mode %s (%s), approval %s", policy.mode, app.from,
      app:approval_policy())
    say("workspace %s", text.visible(policy.workspace_root))
    for _, root in ipairs(policy.extra_roots or {}) do
      say("granted %s", text.visible(root))
    end
    for _, path in ipairs(policy.protected or {}) do
      say("protected %s", text.visible(path))
    end
    if facts and facts.backend then
      say("by %s: %s", facts.backend, facts.enforcement)
      list_gaps("not governed here:", facts.gaps)
      list_gaps("not limited in any mode:", facts.limits)
    end
  end,
}

local function last_refusal(app)
  local r = app.refused
  if not r then
    return say("nothing was refused yet")
  end
  say("%s", text.visible(r.line, 2000))
  say("ended with status %d under %s by %s; refused:", r.status,
    r.facts.mode, r.facts.backend or "?")
  for i, d in ipairs(r.denials) do
    if i > 20 then
      return say("  and %d more", #r.denials - 20)
    end
    say("  %s by %s (pid %s), %s%s", require("dsh.repl_ask").describe(d),
      text.visible(tostring(d.comm or "?")), tostring(d.pid or "?"),
      d.certainty or "seen", d.also_permissions
        and "; file permissions would refuse it too" or "")
  end
end

M.why = {
  usage = "/why [PATH]", summary = "the last refusal; or, is PATH writable?",
  run = function(app, rest)
    local path = rest:match("^(.-)%s*$")
    if path == "" then
      return last_refusal(app)
    end
    if path:sub(1, 1) ~= "/" then
      path = app.shell.cwd .. "/" .. path
    end
    local policy = app:policy()
    if policy.mode == "danger-full-access" then
      return say("the sandbox does not restrict anything in this mode")
    end
    local yes, why = require("dsh.core").confine.writable(policy, path)
    say("%s: %s%s", text.visible(path), yes and "writable" or "not writable",
      why and " (" .. text.visible(tostring(why)) .. ")" or "")
  end,
}

-- A patch that grants these paths to everybody who loads it.
local function save(app, file)
  local out = { "# Written by /grants save: places that commands of this",
    "# project may write. Load it by dshsh --patch FILE.",
    "- id: sandbox-policy", "  merge:", "    extraRoots:" }
  for _, grant in ipairs(app.session:grants()) do
    out[#out + 1] = "      - " .. require("dsh.json").encode(grant.path)
  end
  if file:sub(1, 1) ~= "/" then
    file = app.shell.cwd .. "/" .. file
  end
  local f, err = io.open(file, "w")
  if not f then
    return say("%s", text.visible(err))
  end
  f:write(table.concat(out, "\n"), "\n")
  f:close()
  say("written: %s", text.visible(file))
end

M.grants = {
  usage = "/grants [revoke N|save FILE]", summary = "paths granted so far",
  args = function()
    return { "revoke", "save" }
  end,
  run = function(app, _, words)
    local list = app.session and app.session:grants() or {}
    if not words[1] then
      for i, grant in ipairs(list) do
        say("%d  %s", i, text.visible(grant.path))
      end
      return #list == 0 and say("none") or nil
    elseif words[1] == "revoke" then
      local grant = list[math.tointeger(tonumber(words[2] or "")) or 0]
      if not grant then
        return say("usage: /grants revoke N (see /grants)")
      elseif app:may_reopen()
        and app:try(escalation.revoke(app.session, grant.id)) then
        take_over(app)
      end
    elseif words[1] == "save" and words[2] then
      if #list == 0 then
        return say("there are no grants to save")
      end
      save(app, words[2])
    else
      say("usage: %s", M.grants.usage)
    end
  end,
}


return M
