-- Approvals, presets and grants over real session logs.
local h = require("helpers")
local dsh = require("dsh")
local escalation = require("dsh.escalation")

local ROWS = {
  { id = "settings", name = "dsh.settings" },
  { id = "sessions", name = "dsh.sessions" },
  { id = "sandbox-policy", name = "dsh.sandbox_policy" },
  { id = "approval", name = "dsh.approval" },
  { id = "permission", name = "dsh.permission", config = {
    default = "ws", presets = {
      ro = { sandbox = "read-only", approval = "ask" },
      ws = { sandbox = "workspace-write", approval = "ask" },
      full = { sandbox = "danger-full-access", approval = "never" },
      build = { sandbox = "workspace-write", approval = "ask",
        grants = { "/usr", "/nonexistent/b" } },
    } } },
}

local function open(d)
  return assert(dsh.open({ rows = ROWS, env = { DSH_HOME = d.O } }))
end

local function ask(ctx, s, to)
  return escalation.ask(ctx.approval, { session = s, tool = "bash",
    policy = ctx.sandbox_policy:resolve({ session = s }), to = to,
    reason = "to test", action = { argv = { "true" } } })
end

local function verify(path)
  local r = h.dshsh("verify", path)
  assert.equal(0, r.code, r.out .. r.err)
end

describe("over a real session log", function()
  h.guard()

  it("a preset is pinned, switched and resumed", function()
    local d = h.scratch()
    local id, path
    do
      local ctx <close> = open(d)
      local s <close> = assert(ctx.sessions:create({ cwd = d.W }))
      assert(ctx.permission:begin(s))
      assert.equal("ws", ctx.permission:current(s))
      assert(ctx.permission:set(s, "build"))
      assert.same({ "/usr" }, -- what is not there grants nothing
        ctx.sandbox_policy:resolve({ session = s }).extra_roots)
      assert(ctx.permission:set(s, "ro"))
      assert.is_nil(ctx.sandbox_policy:resolve({ session = s }).extra_roots)
      id, path = s.id, s.path
    end
    verify(path)
    local ctx <close> = open(d)
    local s <close> = assert(ctx.sessions:open(id))
    assert.equal("ro", ctx.permission:current(s))
    assert.equal("read-only",
      ctx.sandbox_policy:resolve({ session = s }).mode)
    assert(ctx.permission:begin(s)) -- an old session keeps what it has
    assert.equal("ro", ctx.permission:current(s))
    assert.equal("read-only\n", h.dshsh("mode", path).out)
  end)

  it("a resumed session is never wider than its log says", function()
    local d = h.scratch()
    local id
    do
      local ctx <close> = open(d)
      local s <close> = assert(ctx.sessions:create({ cwd = d.W }))
      assert(ctx.permission:set(s, "full"))
      assert(ctx.permission:set(s, "ro"))
      id = s.id
    end
    local ctx <close> = assert(dsh.open({ rows = ROWS,
      mode = "danger-full-access", env = { DSH_HOME = d.O,
        DSH_PERMISSION_MODE = "danger-full-access" } }))
    local s <close> = assert(ctx.sessions:open(id))
    assert(ctx.permission:begin(s))
    assert.equal("read-only",
      ctx.sandbox_policy:resolve({ session = s }).mode)
    assert.equal("ask", ctx.approval:policy(s))
  end)

  it("an approval leaves its pair and serves one call", function()
    local d = h.scratch()
    local ctx <close> = open(d)
    local s <close> = assert(ctx.sessions:create({ cwd = d.W }))
    ctx.approval:add_answerer(function() return "allowed-once" end)
    local policy = assert(ask(ctx, s, { mode = "workspace-write" }))
    assert.equal("workspace-write", policy.mode)
    assert.equal("read-only",
      ctx.sandbox_policy:resolve({ session = s }).mode)
    local types = {}
    for event in s:events() do
      types[#types + 1] = event.type
    end
    assert.same({ "turn/start", "approval/asked", "approval/decided",
      "turn/end" }, types)
    verify(s.path)
  end)

  it("a grant for the session stays until it is revoked", function()
    local d = h.scratch()
    local ctx <close> = open(d)
    local s = assert(ctx.sessions:create({ cwd = d.W }))
    ctx.approval:add_answerer(function() return "allowed-session" end)
    local _, answer = assert(ask(ctx, s, { path = d.O }))
    assert.same({ d.O }, ctx.sandbox_policy:resolve({ session = s })
      .extra_roots)
    s:close()
    s = assert(ctx.sessions:open(s.id))
    assert.same({ d.O }, ctx.sandbox_policy:resolve({ session = s })
      .extra_roots)
    assert(escalation.revoke(s, answer.id))
    s:close()
    verify(s.path)
    s = assert(ctx.sessions:open(s.id))
    assert.is_nil(ctx.sandbox_policy:resolve({ session = s }).extra_roots)
    s:close()
  end)

  it("what cannot be written is not granted", function()
    local d = h.scratch()
    local ctx <close> = open(d)
    local s = assert(ctx.sessions:create({ cwd = d.W }))
    ctx.approval:add_answerer(function() return "allowed-once" end)
    s:close()
    local policy, err = ask(ctx, s, { mode = "workspace-write" })
    assert.is_nil(policy)
    assert.equal("APPROVAL_UNAVAILABLE", err.code)
    assert.is_nil((ctx.permission:set(s, "full")))
  end)

  it("a child asks nobody", function()
    local d = h.scratch()
    local ctx <close> = open(d)
    local parent <close> = assert(ctx.sessions:create({ cwd = d.W }))
    assert(ctx.permission:set(parent, "full"))
    local child <close> = assert(ctx.sessions:child(parent))
    assert(ctx.sandbox_policy:delegate(parent, child))
    local asked = false
    ctx.approval:add_answerer(function()
      asked = true
      return "allowed-once"
    end)
    assert(ctx.sandbox_policy:set_mode(child, "read-only"))
    local policy, err = ask(ctx, child, { mode = "workspace-write" })
    assert.is_nil(policy)
    assert.equal("APPROVAL_REJECTED", err.code)
    assert.is_false(asked)
  end)
end)
