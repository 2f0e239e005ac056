-- A grant has its effect on the world for one call, and no other.
local h = require("helpers")
local dsh = require("dsh")
local escalation = require("dsh.escalation")

local ROWS = {
  { id = "sessions", name = "dsh.sessions" },
  { id = "sandbox", name = "dsh.sandbox_local" },
  { id = "sandbox-policy", name = "dsh.sandbox_policy" },
  { id = "approval", name = "dsh.approval" },
}

for _, backend in ipairs(h.backends()) do
  describe("an escalation on " .. backend, function()
    local ctx, s, d

    before_each(function()
      d = h.scratch()
      assert(require("lfs").mkdir(d.O .. "/home"))
      ctx = assert(dsh.open({ rows = ROWS, backend = backend,
        env = { DSH_HOME = d.O .. "/home" } }))
      s = assert(ctx.sessions:create({ cwd = d.W }))
    end)

    after_each(function()
      s:close()
      ctx:close()
    end)
    h.guard() -- last, so that it looks after these have closed

    local function touch(path, policy)
      local r = assert(ctx.sandbox:run({ "/usr/bin/touch", path },
        { session = s, policy = policy }))
      return r.exit_code == 0, r
    end

    local function ask(path, to)
      return escalation.call(ctx.approval, { session = s, tool = "bash",
        policy = ctx.sandbox_policy:resolve({ session = s }), to = to,
        reason = "needed", action = { argv = { "/usr/bin/touch", path } } },
        function(policy) return touch(path, policy) end)
    end

    it("widens one call", function()
      ctx.approval:add_answerer(function() return "allowed-once" end)
      assert.is_false(touch(d.W .. "/a"))
      assert.is_true(ask(d.W .. "/a", { mode = "workspace-write" }))
      assert.is_true(h.exists(d.W .. "/a"))
      assert.is_false(touch(d.W .. "/b"))
      assert.is_false(h.exists(d.W .. "/b"))
    end)

    it("grants the smallest path that a denial asked for, once", function()
      ctx.approval:add_answerer(function() return "allowed-once" end)
      assert(require("lfs").mkdir(d.O .. "/g"))
      local ok, r = touch(d.O .. "/g/new")
      assert.is_false(ok)
      assert.is_true(r.sandbox.denied)
      local to = escalation.proposal(r.sandbox.denials[1],
        require("dsh.core").sys.kind)
      assert.same({ path = d.O .. "/g", access = "write" }, to)
      assert.is_true(ask(d.O .. "/g/new", to))
      assert.is_true(h.exists(d.O .. "/g/new"))
      assert.is_false(touch(d.O .. "/g/second"))
      assert.is_false(ask(d.O .. "/other", to)) -- one path, no more
      assert.is_false(h.exists(d.O .. "/other"))
    end)

    it("grants a path for the session until it is revoked", function()
      ctx.approval:add_answerer(function() return "allowed-session" end)
      assert(require("lfs").mkdir(d.O .. "/g"))
      assert.is_true(ask(d.O .. "/g/one", { path = d.O .. "/g" }))
      assert.is_true(touch(d.O .. "/g/two"))
      assert.is_false(touch(d.W .. "/a"))
      assert(escalation.revoke(s, s:grants()[1].id))
      assert.is_false(touch(d.O .. "/g/three"))
    end)

    it("does not follow a link that took a granted place", function()
      ctx.approval:add_answerer(function() return "allowed-session" end)
      assert(require("lfs").mkdir(d.O .. "/g"))
      assert(require("lfs").mkdir(d.O .. "/secret"))
      assert.is_true(ask(d.O .. "/g/one", { path = d.O .. "/g" }))
      assert(os.rename(d.O .. "/g", d.O .. "/was"))
      assert(require("lfs").link(d.O .. "/secret", d.O .. "/g", true))
      assert.is_nil(ctx.sandbox_policy:resolve({ session = s }).extra_roots)
      assert.is_false(touch(d.O .. "/g/two"))
      assert.is_false(h.exists(d.O .. "/secret/two"))
    end)

    it("that is not allowed runs nothing", function()
      local cases = {
        { "ask", nil, "APPROVAL_UNAVAILABLE" },
        { "ask", function() error("no") end, "APPROVAL_UNAVAILABLE" },
        { "ask", function() return "yes" end, "APPROVAL_UNAVAILABLE" },
        { "ask", function() return "rejected" end, "APPROVAL_REJECTED" },
        { "ask", function() return "cancelled" end, "APPROVAL_CANCELLED" },
        { "never", function() return "allowed-once" end,
          "APPROVAL_REJECTED" },
      }
      for _, case in ipairs(cases) do
        assert(ctx.approval:set_policy(s, case[1]))
        local remove = case[2] and ctx.approval:add_answerer(case[2])
        local ok, err = ask(d.W .. "/a", { mode = "workspace-write" })
        assert.is_nil(ok)
        assert.equal(case[3], err.code)
        assert.is_false(h.exists(d.W .. "/a"))
        if remove then
          remove()
        end
      end
      local asked, decided = 0, 0
      for event in s:events() do
        asked = asked + (event.type == "approval/asked" and 1 or 0)
        decided = decided + (event.type == "approval/decided" and 1 or 0)
      end
      assert.same({ #cases, #cases }, { asked, decided })
    end)
  end)
end
