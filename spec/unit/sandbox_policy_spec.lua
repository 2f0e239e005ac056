local h = require("helpers")
local json = require("dsh.json")
local module = require("dsh.sandbox_policy")
local sessions = require("dsh.sessions")

local function setup(config)
  local d = h.scratch()
  local host = { home = d.O .. "/home", cwd = d.W }
  config = config or {}
  config.mode = config.mode or "read-only"
  return assert(module.start({ host = host }, config)),
    assert(sessions.start({ host = host }, {})), d
end

local function events_of(session)
  local out = {}
  for event in session:events() do
    out[#out + 1] = event
  end
  return out
end

describe("sandbox_policy", function()
  h.guard()

  it("resolves: explicit over session over default", function()
    local policy, all, d = setup()
    assert.same({ mode = "read-only", workspace_root = d.W },
      policy:resolve())
    local s <close> = assert(all:create({ cwd = d.O, id = "s" }))
    assert.same({ mode = "read-only", workspace_root = d.O,
      session_id = "s" }, policy:resolve({ session = s }))
    assert(policy:set_mode(s, "workspace-write"))
    assert.equal("workspace-write", policy:resolve({ session = s }).mode)
    assert.equal("danger-full-access", policy:resolve({ session = s,
      mode = "danger-full-access" }).mode)
    assert.equal("read-only", policy:resolve().mode)
    assert.equal("read-only", policy.default_mode)
    assert.equal(d.W, policy.workspace_root)
    assert.has_error(function()
      policy:resolve({ mode = "root" })
    end)
    assert.has_error(function()
      policy:resolve({ sesion = s })
    end)
  end)

  it("makes the session's directory canonical", function()
    local policy, all, d = setup()
    h.exec({ "ln", "-s", d.O, d.W .. "/link" })
    local s <close> = assert(all:create({ cwd = d.W .. "/link" }))
    assert.equal(d.O, policy:resolve({ session = s }).workspace_root)
  end)

  it("switches by exactly one event, after its guards", function()
    local policy, all = setup()
    local s <close> = assert(all:create({}))
    local remove = policy:add_guard(function(_, mode)
      if mode == "danger-full-access" then
        return nil, { code = "SESSION_BUSY", message = "a shell is open" }
      end
      return true
    end)
    assert(policy:set_mode(s, "read-only"))
    local ok, err = policy:set_mode(s, "danger-full-access")
    assert.is_nil(ok)
    assert.equal("SESSION_BUSY", err.code)
    ok, err = policy:set_mode(s, "root")
    assert.is_nil(ok)
    assert.equal("INVARIANT", err.code)
    assert.equal(1, #events_of(s))
    remove()
    assert(policy:set_mode(s, "danger-full-access", "user"))
    local list = events_of(s)
    assert.equal(2, #list)
    assert.same({ mode = "danger-full-access", source = "user" }, list[2].data)
    assert.equal("danger-full-access", policy:effective_mode(list))
  end)

  it("folds events purely", function()
    local function ev(mode)
      return { type = "sandbox/mode", data = { mode = mode } }
    end
    assert.is_nil(module.effective_mode({}))
    assert.is_nil(module.effective_mode({ { type = "x", data = {} } }))
    assert.equal("read-only", module.effective_mode({ ev("workspace-write"),
      { type = "x" }, ev("read-only") }))
    local mode, err = module.effective_mode({ ev("root") })
    assert.is_nil(mode)
    assert.equal("INVARIANT", err.code)
  end)

  it("keeps sessions apart", function()
    local policy, all = setup()
    local a <close> = assert(all:create({}))
    local b <close> = assert(all:create({}))
    assert(policy:set_mode(a, "danger-full-access"))
    assert.equal("read-only", policy:resolve({ session = b }).mode)
    assert(policy:grant(a, "/a"))
    assert.is_nil(policy:resolve({ session = b }).extra_roots)
  end)

  -- Old launch flags or another default must not bring back a wider mode.
  it("resumes under what the log says, whatever the default is now",
    function()
      local policy, all = setup({ mode = "danger-full-access" })
      for _, modes in ipairs({ { "read-only" },
        { "danger-full-access", "read-only" } }) do
        local s = assert(all:create({}))
        for _, mode in ipairs(modes) do
          assert(policy:set_mode(s, mode))
        end
        s:close()
        local again <close> = assert(all:open(s.id))
        assert.equal("read-only", policy:resolve({ session = again }).mode)
      end
    end)

  it("delegates the parent's override as one event, and no asking", function()
    local policy, all, d = setup()
    local parent <close> = assert(all:create({ cwd = d.W }))
    assert(policy:set_mode(parent, "workspace-write"))
    assert(policy:grant(parent, "/g"))
    local child <close> = assert(all:child(parent))
    assert(policy:delegate(parent, child))
    local list = events_of(child)
    assert.equal(2, #list)
    assert.same({ mode = "workspace-write", source = "delegation" },
      list[1].data)
    assert.same({ policy = "never", source = "delegation" }, list[2].data)
    assert.equal(parent.id, child.header.parentSession)
    assert.equal(1, child.header.delegationDepth)
    assert.equal(d.W, child.cwd)
    assert.is_nil(policy:resolve({ session = child }).extra_roots)
    assert(policy:set_mode(parent, "danger-full-access"))
    assert.equal("workspace-write", policy:resolve({ session = child }).mode)
  end)

  it("records grants as events, each with the list after it", function()
    local policy, all = setup()
    local s = assert(all:create({}))
    local a = assert(policy:grant(s, "/usr"))
    local b = assert(policy:grant(s, "/etc"))
    assert.not_equal(a, b)
    assert.same({ "/usr", "/etc" }, policy:resolve({ session = s }).extra_roots)
    assert(policy:revoke(s, a))
    assert.equal("MISUSE", select(2, policy:revoke(s, a)).code)
    assert.has_error(function()
      policy:grant(s, "relative")
    end)
    s:close()
    local again <close> = assert(all:open(s.id))
    assert.same({ "/etc" }, policy:resolve({ session = again }).extra_roots)
    assert(policy:revoke(again, b))
    assert.is_nil(policy:resolve({ session = again }).extra_roots)
    local list = events_of(again)
    assert.equal(4, #list)
    assert.is_true(list[1].ignorable)
    assert.equal(2, #list[2].data.grants)
  end)

  it("does not follow a granted place that has become a link", function()
    local policy, all, d = setup()
    local s <close> = assert(all:create({}))
    local lfs = require("lfs")
    assert(lfs.mkdir(d.O .. "/g"))
    assert(policy:grant(s, d.O .. "/g"))
    assert.same({ d.O .. "/g" }, policy:resolve({ session = s }).extra_roots)
    assert(lfs.rmdir(d.O .. "/g"))
    assert.is_nil(policy:resolve({ session = s }).extra_roots)
    assert(lfs.link("/etc", d.O .. "/g", true))
    assert.is_nil(policy:resolve({ session = s }).extra_roots)
  end)

  it("says the same words while the policy is the same", function()
    local policy, all, d = setup()
    local s <close> = assert(all:create({ cwd = d.W }))
    assert.equal("Current DSH file policy: read-only. Any available operation "
      .. "enforced by the DSH file sandbox cannot modify files in the standing "
      .. "mode. Do not refuse a required modification from this policy alone: "
      .. "try an available tool normally and follow any denial and escalation "
      .. "guidance it returns.", policy:context_text(s))
    policy:set_mode(s, "workspace-write")
    local text = policy:context_text(s)
    assert.equal(text, policy:context_text(s))
    assert.is_truthy(text:find(json.encode(d.W), 1, true))
    policy:set_mode(s, "danger-full-access")
    assert.matches("does not restrict modifications", policy:context_text(s))
    for _, mode in ipairs({ "workspace-write", "danger-full-access" }) do
      assert.matches("^Current DSH file policy: " .. mode:gsub("%-", "%%-"),
        module.text({ mode = mode, workspace_root = "/w" }))
    end
    assert.is_truthy(module.text({ mode = "workspace-write",
      workspace_root = '/a "b"\n%s' }):find([["/a \"b\"\n%s"]], 1, true))
  end)

  it("logs its words when they change, and only then", function()
    local policy, all = setup()
    local s = assert(all:create({}))
    assert.is_true(policy:context_snapshot(s))
    assert.is_false(policy:context_snapshot(s))
    policy:set_mode(s, "danger-full-access")
    assert.is_true(policy:context_snapshot(s))
    s:close()
    local again <close> = assert(all:open(s.id))
    assert.is_false(policy:context_snapshot(again))
    policy:set_mode(again, "read-only")
    assert.is_true(policy:context_snapshot(again))
    local kinds = {}
    for i, event in ipairs(events_of(again)) do
      kinds[i] = event.type
    end
    assert.same({ "user/message", "sandbox/mode", "user/message",
      "sandbox/mode", "user/message" }, kinds)
  end)

  it("refuses a bad default at load", function()
    local p, err = module.start({ host = { cwd = "/" } }, { mode = "root" })
    assert.is_nil(p)
    assert.equal("CONFIG_INVALID", err.code)
  end)
end)
