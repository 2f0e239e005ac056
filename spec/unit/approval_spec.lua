local h = require("helpers")
local approval = require("dsh.approval")
local escalation = require("dsh.escalation")
local fake = require("fixtures.fake_session")

local function make(config)
  return approval.start({}, { policy = config and config.policy or "ask",
    rules = config and config.rules or {} })
end

local function request(session, more)
  local r = { session = session, tool = "bash", from_mode = "read-only",
    action = { argv = { "git", "push", "origin" } },
    to = { mode = "workspace-write" }, reason = "to publish" }
  for k, v in pairs(more or {}) do
    r[k] = v
  end
  return r
end

local PAIR = "turn/start approval/asked approval/decided turn/end"

describe("an approval request", function()
  h.guard()

  it("is answered by the first answerer that does", function()
    local a, s, asked = make(), fake.new(), {}
    a:add_answerer(function() asked[#asked + 1] = "passes" end)
    local remove = a:add_answerer(function(r)
      asked[#asked + 1] = "answers"
      assert.same({ "git", "push", "origin" }, r.action.argv)
      assert.equal("read-only", r.from_mode)
      assert.same({ mode = "workspace-write" }, r.to)
      assert.equal("to publish", r.reason)
      return "allowed-once"
    end)
    a:add_answerer(function() asked[#asked + 1] = "late" end)
    assert.equal("allowed-once", a:request(request(s)).outcome)
    assert.same({ "passes", "answers" }, asked)
    remove()
    assert.equal("unavailable", a:request(request(s)).outcome)
  end)

  it("leaves a pair inside a turn", function()
    local a, s = make(), fake.new()
    a:add_answerer(function() return "rejected" end)
    local answer = a:request(request(s, { call_id = "c1" }))
    assert.equal(PAIR, s:types())
    assert.same({ id = answer.id, toolName = "bash", callId = "c1",
      reason = "to publish" }, s.events[2].data)
    assert.same({ id = answer.id, outcome = "rejected" }, s.events[3].data)
    assert.same({ 1, 1 }, { s.events[1].data.turn, s.events[4].data.turn })
    a:request(request(s))
    assert.equal(2, s.events[5].data.turn)
  end)

  it("uses the turn that is open", function()
    local a, s = make(), fake.new()
    s:append({ { type = "turn/start", data = { turn = 7 } } })
    a:request(request(s))
    assert.equal("turn/start approval/asked approval/decided", s:types())
    s:append({ { type = "turn/end", data = { turn = 7 } } })
    a:request(request(s))
    assert.equal(8, s.events[5].data.turn)
  end)

  it("under never is rejected and nobody is asked", function()
    local a, s, asked = make({ policy = "never",
      rules = { { argv = { "git", "**" }, outcome = "allowed-once" } } }),
      fake.new(), false
    a:add_answerer(function() asked = true; return "allowed-once" end)
    local answer = a:request(request(s))
    assert.equal("rejected", answer.outcome)
    assert.is_false(asked)
    assert.equal(PAIR, s:types())
    assert.equal("APPROVAL_REJECTED", approval.error_of(answer).code)
  end)

  local closed = {
    ["no answerer"] = { nil, "unavailable" },
    ["an answerer that fails"] = { function() error("boom") end,
      "unavailable" },
    ["an answer that is unknown"] = { function() return "sure" end,
      "unavailable" },
    ["an answer that is true"] = { function() return true end,
      "unavailable" },
    ["an answer for a session to a mode"] = { function()
      return "allowed-session" end, "unavailable" },
    ["an answerer that gives up"] = { function() return "cancelled" end,
      "cancelled" },
  }
  for name, case in pairs(closed) do
    it("with " .. name .. " is " .. case[2], function()
      local a, s, later = make(), fake.new(), false
      if case[1] then
        a:add_answerer(case[1])
        a:add_answerer(function() later = true; return "allowed-once" end)
      end
      local answer = a:request(request(s))
      assert.equal(case[2], answer.outcome)
      assert.is_false(later)
      assert.equal(PAIR, s:types())
      assert.equal(case[2], s.events[3].data.outcome)
      assert.is_table(approval.error_of(answer))
    end)
  end

  it("that cannot be logged is no grant", function()
    for appends = 0, 1 do
      local a, s, asked = make(), fake.new(), false
      s.fail = appends
      a:add_answerer(function() asked = true; return "allowed-once" end)
      local answer = a:request(request(s))
      assert.equal("unavailable", answer.outcome)
      assert.equal(appends == 1, asked)
      assert.equal("APPROVAL_UNAVAILABLE", approval.error_of(answer).code)
    end
    local answer = make():request(request(nil))
    assert.equal("unavailable", answer.outcome)
  end)

  it("is answered by rules on words, never on strings", function()
    local a, s = make({ rules = {
      { argv = { "git", "push", "--force", "**" }, outcome = "rejected" },
      { argv = { "git", "*", "origin" }, outcome = "allowed-once" },
    } }), fake.new()
    local function outcome(...)
      return a:request(request(s, { action = { argv = { ... } } })).outcome
    end
    assert.equal("allowed-once", outcome("git", "push", "origin"))
    assert.equal("rejected", outcome("git", "push", "--force", "origin"))
    assert.equal("rejected", outcome("git", "push", "--force"))
    assert.equal("unavailable", outcome("git", "push"))
    assert.equal("unavailable", outcome("git", "push", "origin", "x"))
    assert.equal("unavailable", outcome("git push origin"))
    assert.equal("unavailable", outcome("sh", "-c", "git push origin"))
    assert.equal("unavailable", a:request(request(s, { action =
      { path = "/x" }, to = { path = "/x" } })).outcome)
  end)

  it("that is malformed is misuse", function()
    local a, s = make(), fake.new()
    assert.has_error(function() a:request(request(s, { to = {} })) end)
    assert.has_error(function() a:request(request(s, { tool = 3 })) end)
    assert.equal("", s:types())
  end)
end)

describe("an approval policy", function()
  h.guard()

  it("is the session's last event, else the row's", function()
    local a, s = make(), fake.new()
    assert.equal("ask", a:policy(s))
    assert(a:set_policy(s, "never", "delegation"))
    assert.equal("never", a:policy(s))
    assert(a:set_policy(s, "never"))
    assert.equal("approval/policy", s:types())
    assert.same({ policy = "never", source = "delegation" },
      s.events[1].data)
    assert.equal("ask", a:policy(fake.new()))
    assert.has_error(function() a:set_policy(s, "always") end)
    s:append({ { type = "approval/policy", data = { policy = "always" } } })
    assert.equal("never", a:policy(s))
  end)
end)

describe("escalation", function()
  h.guard()
  local realpath = escalation.realpath
  before_each(function()
    escalation.realpath = function(path)
      return not path:find("missing", 1, true) and path or nil
    end
  end)
  after_each(function() escalation.realpath = realpath end)

  local POLICY = { mode = "read-only", workspace_root = "/w" }

  local function ask(a, s, more)
    local r = { policy = POLICY, to = { mode = "workspace-write" },
      reason = "why not", tool = "bash", session = s,
      action = { argv = { "true" } } }
    for k, v in pairs(more or {}) do
      r[k] = v
    end
    return escalation.ask(a, r)
  end

  it("gives the wider policy to one call", function()
    local a, s = make(), fake.new()
    a:add_answerer(function() return "allowed-once" end)
    local policy = assert(ask(a, s))
    assert.same({ mode = "workspace-write", workspace_root = "/w" }, policy)
    assert.equal("read-only", POLICY.mode)
    assert.equal(PAIR, s:types()) -- no grant stays
  end)

  it("makes the one call that a grant serves, or none", function()
    local a, s, ran = make(), fake.new(), {}
    local function call(policy)
      ran[#ran + 1] = policy.mode
      return "result"
    end
    local r = { policy = POLICY, to = { mode = "workspace-write" },
      reason = "why not", tool = "bash", session = s,
      action = { argv = { "true" } } }
    local none, err = escalation.call(a, r, call)
    assert.is_nil(none)
    assert.equal("APPROVAL_UNAVAILABLE", err.code)
    a:add_answerer(function()
      assert.same({}, ran) -- nothing before it is granted
      return "allowed-once"
    end)
    assert.equal("result", escalation.call(a, r, call))
    assert.same({ "workspace-write" }, ran)
  end)

  it("asks nobody when it does not widen", function()
    local a, s, asked = make(), fake.new(), false
    a:add_answerer(function() asked = true; return "allowed-once" end)
    local ws = { mode = "workspace-write", workspace_root = "/w",
      extra_roots = { "/opt/x" } }
    local cases = {
      { to = { mode = "read-only" } },
      { policy = ws, to = { mode = "workspace-write" } },
      { policy = ws, to = { mode = "read-only" } },
      { to = { mode = "root" } },
      { to = { mode = "workspace-write" }, reason = " " },
      { to = { mode = "workspace-write" }, reason = false },
      { to = { mode = "workspace-write", path = "/x" } },
      { policy = ws, to = { path = "/w/sub" } },
      { policy = ws, to = { path = "/opt/x" } },
      { to = { path = "/missing" } },
      { to = { path = "relative" } }, { to = { path = "/" } },
      { to = { path = "/w/../etc" } }, { to = {} },
      { policy = { mode = "weird", workspace_root = "/w" } },
    }
    for i, case in ipairs(cases) do
      local policy, err = ask(a, s, case)
      assert.is_nil(policy)
      assert.equal("ESCALATION_INVALID", err.code, "case " .. i)
    end
    assert.is_false(asked)
    assert.equal("", s:types())
  end)

  it("without an approver is unavailable", function()
    local policy, err = ask(nil, fake.new())
    assert.is_nil(policy)
    assert.equal("APPROVAL_UNAVAILABLE", err.code)
  end)

  it("that is refused has its own code", function()
    local s = fake.new()
    local policy, err = ask(make({ policy = "never" }), s)
    assert.is_nil(policy)
    assert.equal("APPROVAL_REJECTED", err.code)
    assert.equal(PAIR, s:types())
  end)

  it("shows and grants where a path leads", function()
    local a, s, shown = make(), fake.new(), nil
    escalation.realpath = function() return "/home/x/.ssh" end
    a:add_answerer(function(r)
      shown = r.to.path
      return "allowed-session"
    end)
    local policy = assert(ask(a, s, { to = { path = "/tmp/harmless" } }))
    assert.equal("/home/x/.ssh", shown)
    assert.same({ "/home/x/.ssh" }, policy.extra_roots)
    assert.equal("/home/x/.ssh", s:grants()[1].path)
    assert.equal("/home/x/.ssh", escalation.proposal({ op = "open",
      path = "/tmp/harmless" }, function() return true end).path)
  end)

  it("grants a path once", function()
    local a, s = make(), fake.new()
    a:add_answerer(function() return "allowed-once" end)
    local policy = assert(ask(a, s, { to = { path = "/opt/y" } }))
    assert.same({ mode = "read-only", workspace_root = "/w",
      extra_roots = { "/opt/y" } }, policy)
    assert.same({}, s:grants())
  end)

  it("grants a path for the session, and takes it back", function()
    local a, s = make(), fake.new()
    a:add_answerer(function() return "allowed-session" end)
    local _, answer = assert(ask(a, s, { to = { path = "/opt/y" } }))
    assert(ask(a, s, { to = { path = "/opt/z" } }))
    assert.same({ { id = answer.id, path = "/opt/y", access = "write" } },
      s.events[5].data.grants)
    assert.equal(2, #s:grants())
    assert.is_true(s.events[5].ignorable)
    assert(escalation.revoke(s, answer.id))
    assert.equal("/opt/z", s:grants()[1].path)
    assert.equal(1, #s:grants())
    local ok, err = escalation.revoke(s, answer.id)
    assert.is_nil(ok)
    assert.equal("ESCALATION_INVALID", err.code)
  end)

  it("gives nothing when the grant cannot be written", function()
    local a, s = make(), fake.new()
    a:add_answerer(function() s.fail = 1; return "allowed-session" end)
    local policy, err = ask(a, s, { to = { path = "/opt/y" } })
    assert.is_nil(policy)
    assert.equal("APPROVAL_UNAVAILABLE", err.code)
  end)

  it("proposes the smallest grant that would have served", function()
    local there = { ["/a"] = true, ["/a/b"] = true, ["/a/b/f"] = true }
    local function path(op, p)
      local to = escalation.proposal({ op = op, path = p },
        function(x) return there[x] end)
      return to and to.path
    end
    assert.equal("/a/b/f", path("open", "/a/b/f"))
    assert.equal("/a/b", path("open", "/a/b/new"))
    assert.equal("/a/b", path("mkdir", "/a/b/new/deeper"))
    assert.equal("/a/b", path("unlink", "/a/b/f"))
    assert.equal("/a/b", path("rename", "/a/b/f"))
    assert.is_nil(path("open", "/new"))
    assert.is_nil(path("open", "relative"))
    assert.is_nil(path("open", nil))
  end)
end)
