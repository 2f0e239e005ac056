-- The sandbox from Lua, on every backend of this host: effects on the world.
local dsh = require("dsh")
local core = require("dsh.core")
local h = require("helpers")
local lfs = require("lfs")

local function sh(text, ...)
  return { "sh", "-c", text:format(...) }
end

-- The backends that work here; the others are pending, with the cause.
local function usable()
  local list, why = {}, {}
  local p <close> = assert(core.confine.provider({}))
  for _, r in ipairs(assert(p:probe())) do
    if r.usable then
      list[#list + 1] = r.backend
    else
      why[r.backend] = r.cause
    end
  end
  return list, why
end

local backends, missing = usable()

local function tree(...)
  local words = { "find" }
  for _, dir in ipairs({ ... }) do
    words[#words + 1] = dir
  end
  words[#words + 1] = "-xdev"
  return h.exec(words).out
end

for name, cause in pairs(missing) do
  describe(name, function()
    it("works here", function()
      pending(name .. ": " .. cause)
    end)
  end)
end

for _, backend in ipairs(backends) do
  describe(backend, function()
    h.guard()
    local d, ctx

    before_each(function()
      d = h.scratch()
      ctx = assert(dsh.open { mode = "read-only", workspace_root = d.W,
        backend = backend })
    end)
    after_each(function()
      ctx:close()
    end)

    local function run(mode, argv, opts)
      opts = opts or {}
      opts.policy = opts.policy or { mode = mode, workspace_root = d.W }
      return ctx.sandbox:run(argv, opts)
    end

    it("writes inside, not outside, and says so", function()
      local r = assert(run("workspace-write",
        sh("echo hi > %s/a; echo hi > %s/b", d.W, d.O)))
      assert.equal("hi\n", h.read(d.W .. "/a"))
      assert.is_false(h.exists(d.O .. "/b"))
      assert.equal("yes", r.started)
      assert.is_true(r.sandbox.denied)
      assert.equal(backend, r.sandbox.backend)
      r = assert(run("read-only", sh("echo hi > %s/c", d.W)))
      assert.is_false(h.exists(d.W .. "/c"))
      assert.is_true(r.sandbox.denied)
      assert.equal("read-only", r.sandbox.mode)
    end)

    it("grants an extra root under read-only, and no more", function()
      local r = assert(run(nil, sh("echo hi > %s/x; echo hi > %s/y; true",
        d.O, d.W), { policy = { mode = "read-only", workspace_root = d.W,
          extra_roots = { d.O } } }))
      assert.equal(0, r.exit_code)
      assert.is_true(h.exists(d.O .. "/x"))
      assert.is_false(h.exists(d.W .. "/y"))
    end)

    it("grants one file alone", function()
      h.write(d.O .. "/one", "")
      h.write(d.O .. "/two", "")
      assert(run(nil, sh("echo 1 > %s/one; echo 2 > %s/two", d.O, d.O),
        { policy = { mode = "read-only", workspace_root = d.W,
          extra_roots = { d.O .. "/one" } } }))
      assert.equal("1\n", h.read(d.O .. "/one"))
      assert.equal("", h.read(d.O .. "/two"))
    end)

    it("ends with the command's own status", function()
      for _, code in ipairs({ 0, 1, 7, 125, 126, 127, 137, 255 }) do
        local r = assert(run("read-only", sh("exit %d", code)))
        assert.equal(code, r.exit_code)
        assert.is_nil(r.signal)
        assert.is_falsy(r.sandbox.runner_failed)
      end
      local r = assert(run("read-only", sh("kill -KILL $$")))
      assert.same({ nil, 9 }, { r.exit_code, r.signal })
    end)

    it("passes every word unchanged", function()
      local words = { "", " ", "a b", "'\"\\", "\n", "\u{e9}", "\xff\xfe",
        "$HOME", "*", "--", "--ro" }
      local argv = { "printf", "[%s]" }
      table.move(words, 1, #words, 3, argv)
      local r = assert(run("read-only", argv))
      assert.equal("[" .. table.concat(words, "][") .. "]", r.stdout.text)
    end)

    it("takes link/.. for where chdir arrives", function()
      assert(lfs.mkdir(d.O .. "/deep"))
      assert(lfs.link(d.O .. "/deep", d.base .. "/link", true))
      local policy = { mode = "workspace-write",
        workspace_root = d.base .. "/link/.." }
      assert(run(nil, sh("echo 1 > %s/x; echo 2 > %s/y", d.O, d.base),
        { policy = policy }))
      assert.is_true(h.exists(d.O .. "/x"))
      assert.is_false(h.exists(d.base .. "/y"))
    end)

    it("keeps to its own policy while another runs", function()
      local a = assert(ctx.sandbox:start(sh("sleep 0.3; echo 1 > %s/a", d.W),
        { policy = { mode = "workspace-write", workspace_root = d.W } }))
      local b = assert(ctx.sandbox:start(sh("sleep 0.3; echo 2 > %s/b", d.W),
        { policy = { mode = "read-only", workspace_root = d.W } }))
      local ra <close> = a.run
      local rb <close> = b.run
      ra:wait()
      rb:wait()
      assert.equal("workspace-write", a.finish().sandbox.mode)
      assert.is_true(b.finish().sandbox.denied)
      assert.is_true(h.exists(d.W .. "/a"))
      assert.is_false(h.exists(d.W .. "/b"))
    end)

    -- A link that a confined command planted must not widen the next call.
    it("follows no planted link out of a root", function()
      assert(run("workspace-write", { "ln", "-s", d.O, d.W .. "/cache" }))
      local r, err = run(nil, sh("echo x > %s/x", d.O), { policy = {
        mode = "workspace-write", workspace_root = d.W,
        extra_roots = { d.W .. "/cache" } } })
      assert.is_nil(r)
      assert.equal("POLICY_UNSUPPORTED", err.code)
      assert.truthy(err.message:find(d.W .. "/cache", 1, true))
      assert.is_false(h.exists(d.O .. "/x"))
    end)

    -- A name that turned into a link between planning and starting.
    it("starts nothing where a planned root became a link", function()
      assert(lfs.mkdir(d.base .. "/x"))
      local confined = assert(ctx.sandbox:confine(sh("echo x > %s/x", d.O),
        { mode = "read-only", workspace_root = d.W,
          extra_roots = { d.base .. "/x" } }))
      assert(lfs.rmdir(d.base .. "/x"))
      assert(lfs.link(d.O, d.base .. "/x", true))
      local r, err = require("dsh.runner").run(confined, { cwd = d.W })
      assert.is_nil(r)
      assert.equal("SANDBOX_UNAVAILABLE", err.code)
      assert.is_false(h.exists(d.O .. "/x"))
    end)

    it("B07: covers mounts below the workspace", function()
      if not h.root then
        return pending("needs root to mount")
      end
      assert(lfs.mkdir(d.W .. "/m"))
      local words = table.concat({ h.dshsh_path, "run", "--mode", "read-only",
        "--backend", backend, "--workspace", d.W, "--", "touch",
        d.W .. "/m/x" }, " ")
      local r = h.exec({ "unshare", "-m", "sh", "-c",
        ("mount -t tmpfs none %s/m && %s; ls %s/m"):format(d.W, words, d.W) })
      assert.equal("", r.out)
      assert.truthy(r.err:find("Read%-only file system")
        or r.err:find("Permission denied"))
    end)

    it("B08: protects no name that is a link, and leaves nothing", function()
      for _, target in ipairs({ "/nonexistent", "/etc/hostname", "rel" }) do
        assert(lfs.link(target, d.W .. "/.codex", true))
        local before = tree(d.base)
        local r, err = run(nil, sh("rm .codex; echo evil > .codex"),
          { cwd = d.W, policy = { mode = "workspace-write",
            workspace_root = d.W, protected = { ".codex" } } })
        assert.is_nil(r)
        assert.equal("POLICY_UNSUPPORTED", err.code)
        assert.truthy(err.message:find(d.W .. "/.codex", 1, true))
        assert.equal(before, tree(d.base))
        os.remove(d.W .. "/.codex")
      end
    end)

    it("B12: leaves nothing on the host, killed or not", function()
      local before = tree(d.base, "/dev/shm")
      local run_ = assert(ctx.sandbox:start(sh("sleep 5"),
        { policy = { mode = "workspace-write", workspace_root = d.W } }))
      os.execute("sleep 0.2")
      assert.equal(before, tree(d.base, "/dev/shm"))
      run_.run:close() -- the lifeline goes, and the tree with it
      assert.equal(before, tree(d.base, "/dev/shm"))
      local r = assert(run("workspace-write",
        sh("git init -q q && cd q && git add . && echo ok"), { cwd = d.W }))
      assert.equal("ok\n", r.stdout.text)
    end)

    it("B14: lets no rename walk around a protected path", function()
      assert(os.execute("mkdir -p " .. d.W .. "/.git/hooks " .. d.W
        .. "/a/b/y " .. d.W .. "/a/x"))
      local policy = { mode = "workspace-write", workspace_root = d.W,
        protected = { ".git/hooks", "a/b/y", "a/x" } }
      local r, err = run(nil, sh([[
        echo e > .git/x; mv .git/x .git/hooks/pre-commit
        mv .git .g2; mkdir h; mv h .git/hooks; rm -rf .git/hooks
        mv .git/hooks .git/other
        mv a/b a/b2; mkdir -p a/b/y; echo e > a/b/y/z
        mv a a2; ln -s h a/x/l; true]]), { cwd = d.W, policy = policy })
      if backend == "landlock" then
        assert.is_nil(r)
        assert.equal("POLICY_UNSUPPORTED", err.code)
        assert.truthy(err.message:find(d.W .. "/", 1, true))
        assert.is_false(h.exists(d.W .. "/.git/x"))
        return
      end
      assert(r, err)
      assert.is_true(r.sandbox.denied)
      for _, gone in ipairs({ ".g2", ".git/hooks/pre-commit", ".git/hooks/h",
        ".git/other", "a/b2", "a2", "a/b/y/z", "a/x/l" }) do
        assert.is_false(h.exists(d.W .. "/" .. gone), gone)
      end
    end)

    it("B15: hands on no descriptor", function()
      h.write(d.O .. "/secret", "s\n")
      local line = ("exec 9<>%s/secret; exec %s run --backend %s --mode "
        .. "read-only --workspace %s -- sh -c 'echo x >&9; "
        .. "ls /proc/self/fd'"):format(d.O, h.dshsh_path, backend, d.W)
      local r = h.exec({ "bash", "-c", line })
      assert.equal("0\n1\n2\n3\n", r.out) -- 3 is ls's own directory
      assert.equal("s\n", h.read(d.O .. "/secret"))
    end)

    it("B26: blames no sandbox for a word", function()
      local r = assert(run("workspace-write",
        sh("echo /x/sandbox/Permission denied >&2; exit 1")))
      assert.same({ "yes", 1, false }, { r.started, r.exit_code,
        r.sandbox.denied })
      r = assert(run("workspace-write", { "false" }))
      assert.same({ "yes", 1, false }, { r.started, r.exit_code,
        r.sandbox.denied })
    end)

    it("B28: takes no word for a runner's failure", function()
      for _, said in ipairs({ "landlock-run: failed", "bwrap: failed" }) do
        for _, code in ipairs({ 1, 125 }) do
          local r = assert(run("read-only",
            sh("echo '%s' >&2; exit %d", said, code)))
          assert.same({ "yes", code }, { r.started, r.exit_code })
          assert.is_falsy(r.sandbox.runner_failed)
        end
      end
      local r = assert(run("read-only", { "/no/such" }))
      assert.same({ "no", "exec", 2 }, { r.started, r.stage, r.errno })
      assert.is_falsy(r.sandbox.denied)
    end)

    it("writes no control file, wherever the workspace is", function()
      local file = h.top .. "/lua/dsh/init.lua"
      local before = assert(h.read(file))
      local r, err = run(nil, sh("echo x >> %s; mv %s/lua %s/lua2", file,
        h.top, h.top), { policy = { mode = "workspace-write",
          workspace_root = h.top } })
      assert.equal(before, h.read(file))
      if lfs.attributes(file, "uid") ~= h.uid then
        assert(r, err) -- permissions alone keep this user out
        assert.equal("yes", r.started)
      elseif backend == "landlock" then
        assert.is_nil(r)
        assert.equal("POLICY_UNSUPPORTED", err.code)
      else
        assert.is_true(r.sandbox.denied)
      end
    end)
  end)
end

describe("hosts that lack something", function()
  h.guard()
  local d

  before_each(function()
    d = h.scratch()
  end)

  local FIXED = 'sandbox mode "read-only" is requested but no sandbox '
    .. "backend is usable on this host; "

  local function words(...)
    return { h.dshsh_path, "run", "--mode", "read-only", "--workspace", d.W,
      "--", ... }
  end

  -- The words with another file in bwrap's place.
  local function instead_of_bwrap(text, argv)
    local fake = d.base .. "/fake"
    h.write(fake, text)
    assert(os.execute("chmod 755 " .. h.quote(fake)))
    local list = { "unshare", "-m", "sh", "-c",
      'mount --bind "$0" /usr/bin/bwrap && exec "$@"', fake }
    return table.move(argv, 1, #argv, #list + 1, list)
  end

  local function probed(argv)
    local r = h.exec(argv)
    local json = require("dsh.json")
    return assert(json.decode(r.out), r.err)
  end

  it("B32, B33: go to the next rung, then refuse, and never run bare",
    function()
      local r = h.exec(h.masked({ namespaces = false },
        words("sh", "-c", "echo ran")))
      assert.same({ 0, "ran\n" }, { r.code, r.out })
      r = h.exec(h.masked({ namespaces = false, landlock = "ENOSYS" },
        words("touch", d.O .. "/x")))
      assert.equal(125, r.code)
      assert.truthy(r.err:find(FIXED, 1, true), r.err)
      assert.is_false(h.exists(d.O .. "/x"))
    end)

  it("B32: name the failing step and one fix", function()
    local script = [[
      local core = require("dsh.core")
      local p = assert(core.confine.provider({}))
      local r, err = p:confine({ "true" }, { mode = "read-only",
        workspace_root = "/" })
      print(r, err.code)
      for _, c in ipairs(err.cause) do
        print(c.backend, c.usable, c.cause, c.stage ~= nil,
          c.fix and not c.fix:find("\n"))
      end]]
    local r = h.exec(h.masked({ namespaces = false, landlock = "EOPNOTSUPP" },
      { "env", "LUA_PATH=" .. h.top .. "/lua/?.lua;;",
        "LUA_CPATH=" .. h.top .. "/lua/?.so;;", "lua5.4", "-e", script }))
    local cause = h.root and "no%-capabilities" or "userns%-refused"
    assert.truthy(r.out:find("nil\tSANDBOX_UNAVAILABLE", 1, true), r.err)
    if h.exists("/usr/bin/bwrap") then
      assert.truthy(r.out:find("bwrap\tfalse\t" .. cause .. "\ttrue\ttrue"),
        r.out)
    end
    assert.truthy(r.out:find("landlock\tfalse\tlandlock%-disabled\ttrue\ttrue"),
      r.out)
  end)

  it("tell why Landlock is not there", function()
    for errno, cause in pairs({ ENOSYS = "landlock-missing",
      EOPNOTSUPP = "landlock-disabled", EPERM = "seccomp-refused" }) do
      local list = probed(h.masked({ landlock = errno },
        { h.dshsh_path, "probe", "--backend", "landlock", "--json" }))
      assert.equal(cause, list[1].cause)
    end
  end)

  it("B32: tell that user namespaces are refused", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("bwrap is not installed")
    end
    local list = probed(h.masked({ userns = false },
      { h.dshsh_path, "probe", "--backend", "bwrap", "--json" }))
    assert.same({ "userns-refused", "user-namespace" },
      { list[1].cause, list[1].stage })
    assert.truthy(list[1].fix:find("user namespaces", 1, true))
  end)

  it("B27: a partial kernel is no runner failure", function()
    for _, code in ipairs({ 1, 2, 125 }) do
      local r = h.exec(h.masked({ abi = 2 }, { h.dshsh_path, "run",
        "--backend", "landlock", "--mode", "read-only", "--workspace", d.W,
        "--json", "--", "sh", "-c", "exit " .. code }))
      local got = assert(require("dsh.json").decode(r.out), r.err)
      assert.equal(code, got.exitCode)
      assert.equal("yes", got.started)
      assert.equal("partial", got.sandbox.enforcement)
      assert.truthy(#got.sandbox.gaps > 0)
    end
  end)

  it("B07: a runner that hangs is found out in time", function()
    if not h.root then
      return pending("needs root to put a file in bwrap's place")
    end
    local script = [[
      local core = require("dsh.core")
      local p = assert(core.confine.provider({ probe_timeout_ms = 1500 }))
      local t = core.sys.now()
      local r = assert(p:confine({ "true" }, { mode = "read-only",
        workspace_root = "/" }))
      local first = p:probe()[1]
      print(r.backend, core.sys.now() - t < 9000, first.cause)]]
    local r = h.exec(instead_of_bwrap("#!/bin/sh\nsleep 30\n",
      { "env", "LUA_PATH=" .. h.top .. "/lua/?.lua;;",
        "LUA_CPATH=" .. h.top .. "/lua/?.so;;", "lua5.4", "-e", script }))
    assert.equal("landlock\ttrue\ttimed-out\n", r.out .. r.err)
  end)

  it("B29: decide by status, whatever a runner says", function()
    if not h.root then
      return pending("needs root to put a file in bwrap's place")
    end
    local seen
    for _, said in ipairs({ "bwrap: Can't mount proc on /newroot/proc: "
      .. "Operation not permitted", "bwrap: cannot mount proc", "",
      "bwrap: Impossible de monter proc" }) do
      local list = probed(instead_of_bwrap("#!/bin/sh\necho \"" .. said
        .. "\" >&2\nexit 1\n", { h.dshsh_path, "probe", "--json" }))
      assert.is_false(list[1].usable)
      seen = seen or list[1].cause
      assert.equal(seen, list[1].cause)
    end
  end)

  it("take no runner that others could change", function()
    if not h.root then
      return pending("needs root to put a file in bwrap's place")
    end
    local list = instead_of_bwrap("#!/bin/sh\nexit 0\n",
      { h.dshsh_path, "probe", "--json" })
    assert(os.execute("chmod 777 " .. h.quote(d.base .. "/fake")))
    assert.equal("not-trusted", probed(list)[1].cause)
  end)

  it("never find a runner through PATH", function()
    local dir = d.base .. "/bin"
    assert(lfs.mkdir(dir))
    for _, name in ipairs({ "bwrap", "landlock-run", "dsh-probe" }) do
      h.write(dir .. "/" .. name, "#!/bin/sh\ntouch " .. d.O .. "/fooled\n")
      assert(os.execute("chmod 755 " .. h.quote(dir .. "/" .. name)))
    end
    local r = h.exec(words("true"), { env = { PATH = dir .. ":/usr/bin:/bin",
      DSH_LAUNCHER = dir .. "/landlock-run" } })
    assert.equal(0, r.code)
    assert.is_false(h.exists(d.O .. "/fooled"))
  end)

  it("B33: claim nothing, or refuse, with each helper gone", function()
    if not h.root then
      return pending("needs root to hide a file")
    end
    local function without(path, argv)
      h.write(d.base .. "/none", "")
      local list = { "unshare", "-m", "sh", "-c",
        'mount --bind "$0" "$1" && shift && exec "$@"', d.base .. "/none",
        path }
      return table.move(argv, 1, #argv, #list + 1, list)
    end
    for _, r in ipairs(probed(without(h.build .. "/dsh-probe",
      { h.dshsh_path, "probe", "--json" }))) do
      assert.is_true(r.usable)
      for _, grade in pairs(r.grades) do
        assert.equal("partial", grade.enforcement)
        assert.same({ { effect = "all", reason = "not probed" } }, grade.gaps)
      end
    end
    local r = h.exec(without(h.launcher, words("touch", d.O .. "/x")))
    assert.equal(125, r.code)
    assert.truthy(r.err:find(FIXED, 1, true), r.err)
    if h.exists("/usr/bin/bwrap") then
      r = h.exec(without("/usr/bin/bwrap", words("sh", "-c", "echo ran")))
      assert.same({ 0, "ran\n" }, { r.code, r.out })
      r = h.exec(h.masked({ landlock = "ENOSYS" },
        words("sh", "-c", "echo ran; touch " .. d.O .. "/x; true")))
      assert.same({ 0, "ran\n" }, { r.code, r.out })
    end
    assert.is_false(h.exists(d.O .. "/x"))
  end)

  it("B33: refuse when the launcher is gone", function()
    local p <close> = core.confine.provider({ launcher = d.base .. "/none" })
    local r, err = p:confine({ "true" }, { mode = "read-only",
      workspace_root = d.W })
    assert.is_nil(r)
    assert.equal("SANDBOX_UNAVAILABLE", err.code)
    assert.equal("launcher-missing", err.cause[1].cause)
  end)
end)

describe("a runner with its own dialect", function()
  h.guard()

  local function open(d, runner)
    return dsh.open { mode = "read-only", workspace_root = d.W,
      patches = { { { id = "sandbox", config = { runner = runner } } } } }
  end

  local function stand_in(d, text)
    local path = d.base .. "/runner"
    h.write(path, "#!/bin/sh\n" .. text)
    assert(os.execute("chmod 755 " .. h.quote(path)))
    return path
  end

  it("is asked for its arguments, and its rules decide", function()
    local d = h.scratch()
    local seen
    local runner = { command = { stand_in(d, [[
      [ "$1" = --mode=read-only ] || exit 9
      while [ "$1" != -- ]; do shift; done; shift
      [ "$1" != fail ] || { echo "[F] no" >&2; exit 255; }
      exec "$@"]]), "--ignored" },
      args = function(policy)
        seen = policy
        return { "--mode=" .. policy.mode }
      end,
      failure_rules = { { allowed_exit_codes = { 255 },
        fatal_signatures = { "[F]" } } } }
    runner.command[2] = nil
    local ctx <close> = assert(open(d, runner))
    local r = assert(ctx.sandbox:run({ "sh", "-c", "echo hi; exit 4" }))
    assert.same({ "hi\n", 4, "unknown" }, { r.stdout.text, r.exit_code,
      r.started })
    assert.equal("partial", r.sandbox.enforcement)
    assert.equal(d.W, seen.workspace_root)
    local err
    r, err = ctx.sandbox:run({ "fail" })
    assert.is_nil(r)
    assert.equal("SANDBOX_UNAVAILABLE", err.code)
    assert.truthy(err.message:find(" Runner failure: [F] no", 1, true))
  end)

  it("may classify, and an error in that keeps the verdict", function()
    local d = h.scratch()
    local evidence, fails
    local runner = { command = { stand_in(d,
      'while [ "$1" != -- ]; do shift; done; shift; exec "$@"') },
      failure_rules = { { fatal_signatures = { "never" } } },
      classify = function(verdict, e)
        evidence = e
        if fails then
          error("oops")
        end
        verdict.denied, verdict.evidence = true, "stderr"
        return verdict
      end }
    local ctx <close> = assert(open(d, runner))
    local r = assert(ctx.sandbox:run({ "sh", "-c", "echo e >&2; exit 3" }))
    assert.is_true(r.sandbox.denied)
    assert.same({ started = "unknown", exit_code = 3, stderr = "e\n" },
      evidence)
    fails = true
    r = assert(ctx.sandbox:run({ "sh", "-c", "exit 3" }))
    assert.is_false(r.sandbox.denied)
  end)

  it("is checked when it is configured", function()
    local d = h.scratch()
    for _, bad in ipairs({ { command = {} }, { command = { "x" } },
      { command = { "/x" } }, { command = { "/x" }, failure_rules = {} },
      { command = { "/x" }, failure_rules = { { fatal_signatures = { "" } } },
        extra = 1 } }) do
      local ctx, err = open(d, bad)
      assert.is_nil(ctx)
      assert(err.code == "CONFIG_INVALID" or err.code == "ROW_FAILED",
        tostring(err))
    end
  end)
end)

describe("a temp directory that cannot be a root", function()
  h.guard()

  it("is named in the record, and once as a warning", function()
    local d = h.scratch()
    local script = d.base .. "/s.lua"
    h.write(script, [[
      local dsh = require("dsh")
      local ctx <close> = assert(dsh.open { mode = "workspace-write",
        workspace_root = "]] .. d.W .. [[" })
      for _ = 1, 2 do
        local r = assert(ctx.sandbox:run({ "touch", "]] .. d.base
          .. [[/x" }))
        print(#r.sandbox.refused_roots, r.sandbox.refused_roots[1])
      end
      print(#ctx.warnings, ctx.warnings[1])]])
    local r = h.exec({ "env", "TMPDIR=" .. d.base, "LUA_PATH=" .. h.top
      .. "/lua/?.lua;" .. h.top .. "/lua/?/init.lua;;", "LUA_CPATH=" .. h.top
      .. "/lua/?.so;;", "lua5.4", script })
    local said = d.base .. ": it contains the workspace root"
    assert.equal(("1\t%s\n1\t%s\n1\tnot writable: %s\n"):format(said, said,
      said), r.out .. r.err)
    assert.is_false(h.exists(d.base .. "/x"))
  end)
end)

describe("our own files", function()
  h.guard()

  local OPEN = [[
    local dsh = require("dsh")
    local home, backend = ...
    local ctx <close> = assert(dsh.open { mode = "workspace-write",
      workspace_root = home, backend = backend, env = { HOME = home,
        PATH = "/usr/bin:/bin" } })
    local r, err = ctx.sandbox:run({ "sh", "-c", "cd '" .. home .. "';" .. [=[
      touch ok; mkdir -p .dsh; echo x > .dsh/settings.yaml
      mv .dsh .d2; mkdir .dsh; echo x > .dsh/settings.yaml; true]=] })
    print(r and r.exit_code, err and err.code, err and err.message)]]

  it("cannot be made or moved, with the home as the workspace", function()
    for _, backend in ipairs(backends) do
      local d = h.scratch()
      local f = d.base .. "/open.lua"
      h.write(f, OPEN)
      local r = h.exec({ "env", "LUA_PATH=" .. h.top .. "/lua/?.lua;" .. h.top
        .. "/lua/?/init.lua;;", "LUA_CPATH=" .. h.top .. "/lua/?.so;;",
        "lua5.4", f, d.W, backend })
      assert.is_false(h.exists(d.W .. "/.dsh/settings.yaml"), r.out)
      assert.is_false(h.exists(d.W .. "/.d2"))
      if backend == "landlock" then
        assert.truthy(r.out:find("POLICY_UNSUPPORTED", 1, true), r.err)
        assert.truthy(r.out:find(d.W .. "/.dsh", 1, true))
        assert.is_false(h.exists(d.W .. "/ok"))
      else
        assert.equal("0\tnil\tnil\n", r.out)
        assert.is_true(h.exists(d.W .. "/ok"))
        local _, mode = core.sys.kind(d.W .. "/.dsh")
        assert.equal(tonumber("700", 8), mode)
      end
    end
  end)
end)

describe("an operator's command", function()
  h.guard()

  it("is probed on request, and graded by what it lets through", function()
    local d = h.scratch()
    local open = d.base .. "/open" -- takes bwrap's words, and confines nothing
    h.write(open, '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done; shift; '
      .. 'exec "$@"\n')
    assert(os.execute("chmod 755 " .. h.quote(open)))
    local p <close> = assert(core.confine.provider({
      runner_command = { open }, failure_signatures = { "open: " },
      probe_runner = true }))
    local found = assert(p:probe())[1]
    assert.is_true(found.usable, found.detail)
    local grade = found.grades["read-only"]
    assert.equal("partial", grade.enforcement)
    local effects = {}
    for _, gap in ipairs(grade.gaps) do
      effects[gap.effect] = gap.reason
    end
    assert.truthy(effects.write and effects.create and effects.remove)
    local r = assert(p:confine({ "true" }, { mode = "read-only",
      workspace_root = d.W }))
    assert.same(grade.gaps, r.gaps)
  end)

  it("may be given to dsh.open by Lua", function()
    local d = h.scratch()
    local path = d.base .. "/r"
    h.write(path, '#!/bin/sh\nshift; exec "$@"\n')
    assert(os.execute("chmod 755 " .. h.quote(path)))
    local ctx <close> = assert(dsh.open { workspace_root = d.W, runner = {
      command = { path },
      failure_rules = { { fatal_signatures = { "[F]" } } } } })
    local r = assert(ctx.sandbox:run({ "echo", "hi" }))
    assert.same({ "hi\n", "custom", "partial" }, { r.stdout.text,
      r.sandbox.backend, r.sandbox.enforcement })
  end)
end)
