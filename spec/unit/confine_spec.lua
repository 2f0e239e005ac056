-- The provider from Lua: misuse, records, what needs no backend.
local core = require("dsh.core")
local dsh = require("dsh")
local errors = require("dsh.errors")
local h = require("helpers")

-- What probes find is kept between tests here; probing is another spec's.
local verdicts

local function provider(config)
  config = config or {}
  config.verdict_dir = verdicts
  return assert(core.confine.provider(config))
end

setup(function()
  verdicts = h.exec({ "mktemp", "-d", "/var/tmp/dshsh-spec.XXXXXX" }).out
    :match("%S+")
end)

teardown(function()
  os.execute("rm -rf " .. h.quote(verdicts))
end)

local function policy(t)
  t = t or {}
  t.mode = t.mode or "read-only"
  t.workspace_root = t.workspace_root or "/var/tmp"
  return t
end

local function raises(text, f, ...)
  local ok, why = pcall(f, ...)
  assert.is_false(ok)
  assert.truthy(tostring(why):find(text, 1, true), tostring(why))
end

describe("confine", function()
  h.guard()

  it("raises for misuse and names the field", function()
    local p <close> = provider()
    local function bad(text, argv, pol)
      raises(text, p.confine, p, argv, pol)
    end
    bad("argv", nil, policy())
    bad("argv", "true", policy())
    bad("argv", {}, policy())
    bad("argv[1]", { "" }, policy())
    bad("argv[2]", { "true", 7 }, policy())
    bad("argv[2]", { "true", true }, policy())
    bad("argv[2]", { "true", "a\0b" }, policy())
    bad("argv", { "true", nil, "x" }, policy())
    bad("argv", { "true", x = 1 }, policy())
    bad("policy", { "true" }, nil)
    bad("policy", { "true" }, "read-only")
    bad("policy.mode", { "true" }, { workspace_root = "/" })
    bad("policy.mode", { "true" }, policy { mode = "readonly" })
    bad("policy.mode", { "true" }, policy { mode = 1 })
    bad("policy.mode", { "true" }, policy { mode = "read-only\0" })
    bad("policy.workspace_root", { "true" }, { mode = "read-only" })
    bad("policy.workspace_root", { "true" }, policy { workspace_root = "." })
    bad("policy.workspace_root", { "true" }, policy { workspace_root = {} })
    bad("policy.workspace_root", { "true" },
      policy { workspace_root = "/a\0b" })
    bad("policy.extra_roots", { "true" }, policy { extra_roots = "/x" })
    bad("policy.extra_roots", { "true" }, policy { extra_roots = { "x" } })
    bad("policy.extra_roots", { "true" }, policy { extra_roots = { 1 } })
    bad("policy.protected", { "true" }, policy { protected = { "" } })
    bad("policy.temp", { "true" }, policy { temp = "mine" })
    bad("policy.temp_dir", { "true" }, policy { temp = "private" })
    bad("policy.roots", { "true" }, policy { roots = {} })
    raises("backend", core.confine.provider, { backend = "none" })
    raises("config.backends", core.confine.provider, { backends = "bwrap" })
    raises("config.backend", core.confine.provider, { backend = 1 })
  end)

  it("is misuse under danger-full-access just the same", function()
    local p <close> = provider()
    raises("argv", p.confine, p, {}, policy { mode = "danger-full-access" })
    raises("policy.workspace_root", p.confine, p, { "true" },
      { mode = "danger-full-access", workspace_root = "x" })
  end)

  it("gives the argv back under danger-full-access", function()
    local p <close> = provider()
    local argv = { "a b", "", "\n", "'\"", "\xff\xfe", "\u{e9}", "--" }
    local r = assert(p:confine(argv, policy { mode = "danger-full-access" }))
    assert.same(argv, r.argv)
    assert.is_false(r.confined)
    for _, key in ipairs({ "enforcement", "gaps", "limits", "backend",
      "denial_signatures", "runner_failure_rules" }) do
      assert.is_nil(r[key])
    end
  end)

  it("keeps the caller's words after the last of its own", function()
    for _, backend in ipairs(h.backends()) do
      local p <close> = provider { backend = backend }
      local argv = { "x", "", "a b", "'\"`$", "\n", "\u{e9}", "\xff", "--" }
      local r = p:confine(argv, policy())
      if r then
        local n = #r.argv - #argv
        assert.equal("--", r.argv[n])
        assert.same(argv, table.move(r.argv, n + 1, #r.argv, 1, {}))
        assert.is_true(r.confined)
        assert.equal(backend, r.backend)
        assert.equal(h.launcher, r.argv[1])
        assert.truthy(r.enforcement == "full" or #r.gaps > 0)
        assert.truthy(#r.limits > 0)
      else
        pending(backend .. " is not usable here")
      end
    end
  end)

  it("refuses what is too large, before anything", function()
    local p <close> = provider { backend = "landlock" }
    local d = h.scratch()
    local roots = {}
    for i = 1, 64 do
      local name = d.W .. "/" .. ("x"):rep(200) .. i
      assert(os.execute("mkdir -p " .. h.quote(name)))
      roots[i] = name
    end
    local r, err = p:confine({ "true" }, policy { extra_roots = roots })
    assert(r, err)
    roots[65] = d.W
    r, err = p:confine({ "true" }, policy { extra_roots = roots })
    assert.is_nil(r)
    assert.equal("POLICY_TOO_LARGE", err.code)
  end)

  it("goes to a backend that needs fewer words", function()
    local auto <close> = provider()
    local bwrap <close> = provider { backend = "bwrap" }
    local d = h.scratch()
    local roots = {}
    for i = 1, 64 do
      roots[i] = ("%s/%s/%s%d"):format(d.W, ("x"):rep(200), ("y"):rep(200), i)
      assert(os.execute("mkdir -p " .. h.quote(roots[i])))
    end
    local wide = policy { extra_roots = roots }
    local r, err = bwrap:confine({ "true" }, wide)
    assert.is_nil(r)
    if err.code == "SANDBOX_UNAVAILABLE" then
      return pending("bwrap is not usable here")
    end
    assert.equal("POLICY_TOO_LARGE", err.code)
    r, err = auto:confine({ "true" }, wide)
    assert(r, err)
    assert.equal("landlock", r.backend)
  end)

  it("says what the policy cannot be, before anything", function()
    local p <close> = provider()
    local d = h.scratch()
    local r, err = p:confine({ "true" }, policy { mode = "workspace-write",
      workspace_root = d.W, protected = { "absent" } })
    assert.is_nil(r)
    assert.equal("POLICY_UNSUPPORTED", err.code)
    assert.truthy(err.message:find(d.W .. "/absent", 1, true))
    assert.is_false(h.exists(d.W .. "/absent"))
  end)

  it("takes the backend that can express the policy", function()
    local p <close> = provider()
    local d = h.scratch()
    assert(os.execute("mkdir " .. h.quote(d.W .. "/p")))
    local r = p:confine({ "true" }, policy { mode = "workspace-write",
      workspace_root = d.W, protected = { "p" } })
    if not r then
      return pending("bwrap is not usable here")
    end
    assert.equal("bwrap", r.backend)
  end)

  it("serves two policies at once, each its own", function()
    local p <close> = provider()
    local d = h.scratch()
    local a = p:confine({ "true" }, policy { mode = "workspace-write",
      workspace_root = d.W })
    if not a then
      return pending("no backend is usable here")
    end
    local b = assert(p:confine({ "true" }, policy { workspace_root = d.O }))
    local text = table.concat(a.argv, "\n")
    assert.truthy(text:find(d.W, 1, true))
    assert.is_nil(table.concat(b.argv, "\n"):find(d.W, 1, true))
    assert.equal("workspace-write", a.mode)
    assert.equal("read-only", b.mode)
  end)
end)

describe("a plan that repeats", function()
  h.guard()

  it("is the same, whatever came between, and the caller's own", function()
    local d = h.scratch()
    for _, backend in ipairs(h.backends()) do
      local p <close> = provider { backend = backend }
      local function plan(root, ...)
        return assert(p:confine({ ... }, policy { mode = "workspace-write",
          workspace_root = root })).argv
      end
      if not p:confine({ "true" }, policy()) then
        pending(backend .. " is not usable here")
      else
        local first = plan(d.W, "a", "b")
        local other = plan(d.O, "a", "b")
        assert.not_same(first, other)
        assert.is_nil(table.concat(other, "\n"):find(d.W, 1, true))
        local again = plan(d.W, "a", "b")
        assert.same(first, again)
        again[1] = "changed"
        assert.same(first, plan(d.W, "a", "b"))
        local longer = plan(d.W, "a", "b", "c")
        assert.equal("c", longer[#longer])
        assert.equal(#first + 1, #longer)
        p:reprobe()
        assert.same(first, plan(d.W, "a", "b"))
        assert(os.execute("rmdir " .. h.quote(d.W)))
        assert.is_nil(table.concat(plan(d.W, "a"), "\n"):find(d.W, 1, true))
        assert(os.execute("mkdir " .. h.quote(d.W)))
        assert.same(first, plan(d.W, "a", "b"))
      end
    end
  end)
end)

describe("an operator's runner", function()
  it("needs signatures, and signatures need it", function()
    raises("runnerFailureSignatures", core.confine.provider,
      { failure_signatures = { "x" } })
    raises("runnerFailureSignatures", core.confine.provider,
      { runner_command = { "/opt/r" } })
    for _, text in ipairs({ "", " ", "a\nb", "a\rb" }) do
      raises("runnerFailureSignatures", core.confine.provider,
        { runner_command = { "/opt/r" }, failure_signatures = { text } })
    end
    raises("probe", core.confine.provider, { probe_timeout_ms = -1 })
  end)

  it("is not probed, takes bwrap's words, and claims little", function()
    local p <close> = provider { runner_command = { "/opt/r", "-q" },
      failure_signatures = { "r: " } }
    local r = assert(p:confine({ "x", "y" }, policy()))
    assert.same({ "/opt/r", "-q" }, { r.argv[1], r.argv[2] })
    assert.same({ "--", "x", "y" }, table.move(r.argv, #r.argv - 2, #r.argv,
      1, {}))
    assert.truthy(table.concat(r.argv, " "):find("--ro-bind / /", 1, true))
    assert.equal("partial", r.enforcement)
    assert.same({ { effect = "all", reason = "asserted by the operator" } },
      r.gaps)
    assert.same({ { fatal_signatures = { "r: " } } }, r.runner_failure_rules)
    assert.same({ "read-only file system", "permission denied" },
      r.denial_signatures)
    assert.is_falsy(r.launcher)
  end)
end)

describe("the fixed text", function()
  local TEXT = 'sandbox mode "read-only" is requested but no sandbox backend '
    .. "is usable on this host; refusing to run the command unconfined. "
    .. "Install bubblewrap or run a Landlock-enforcing kernel (Linux), ensure "
    .. "sandbox-exec is usable (macOS), or ensure the ACL restricted-token "
    .. "runner can start (Windows) \u{2014} otherwise switch the consumer to "
    .. "danger-full-access."

  it("is the same from Lua and from the core", function()
    local e = errors.unavailable("read-only")
    assert.equal("SANDBOX_UNAVAILABLE", e.code)
    assert.equal(TEXT, e.message)
    e = errors.unavailable("read-only", "100% gone")
    assert.equal(TEXT .. " Runner failure: 100% gone", e.message)
    local p <close> = provider { launcher = "/nonexistent" }
    local r, err = p:confine({ "true" }, policy())
    assert.is_nil(r)
    assert.equal("SANDBOX_UNAVAILABLE", err.code)
    assert.equal(TEXT, err.message)
  end)
end)

describe("the definition", function()
  it("loads no backend and no C module", function()
    local r = h.exec({ "lua5.4", "-e", [[
      require("dsh.sandbox")
      for name in pairs(package.loaded) do
        assert(not name:match("^dsh%.core") and not name:match("local"), name)
      end
      print("ok")]] }, { env = { LUA_PATH = h.top .. "/lua/?.lua;;",
        LUA_CPATH = "/nonexistent/?.so" } })
    assert.equal("ok\n", r.out)
    assert.equal(dsh.version, core.version)
  end)
end)
