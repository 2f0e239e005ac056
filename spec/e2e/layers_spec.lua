-- Known faults of tools that do this job, on each backend of this host: what
-- Landlock alone leaves open, what observing breaks, what acts on behalf of
-- a command. By their effect on the world.
local core = require("dsh.core")
local dsh = require("dsh")
local h = require("helpers")
local lfs = require("lfs")

local function sh(text, ...)
  return { "sh", "-c", text:format(...) }
end

local function usable()
  local list = {}
  local p <close> = assert(core.confine.provider({}))
  for _, r in ipairs(assert(p:probe())) do
    if r.usable then
      list[#list + 1] = r.backend
    end
  end
  return list
end

local function facts(path)
  return h.exec({ "stat", "-c", "%a %U %Y %s %h", path }).out
end

for _, backend in ipairs(usable()) do
  describe(backend, function()
    h.guard()
    local d, ctx

    before_each(function()
      d = h.scratch()
      ctx = assert(dsh.open { mode = "read-only", workspace_root = d.W,
        backend = backend })
      h.write(d.O .. "/f", "outside\n")
    end)
    after_each(function()
      ctx:close()
    end)

    local function run(mode, argv, opts)
      opts = opts or {}
      opts.policy = { mode = mode, workspace_root = d.W }
      return assert(ctx.sandbox:run(argv, opts))
    end

    it("B10: runs in a tree of many files", function()
      assert(lfs.mkdir(d.W .. "/data"))
      assert(os.execute(("cd '%s' && seq 3000 | xargs touch"):format(
        d.W .. "/data")))
      local r = run("workspace-write", { "echo", "hi" })
      assert.equal("hi\n", r.stdout.text)
      local record = assert(ctx.sandbox:confine({ "echo", "hi" },
        { mode = "workspace-write", workspace_root = d.W }))
      assert.is_true(#table.concat(record.argv, " ") < 4096)
    end)

    it("B18: renames between directories of a root", function()
      local r = run("workspace-write", sh("cd %s && mkdir a b && touch a/x && "
        .. "mv a/x b/x && mkdir a/d && mv a/d b/d && ln b/x a/y", d.W))
      assert.equal(0, r.exit_code, r.stderr.text)
      assert.is_true(h.exists(d.W .. "/b/x"))
      assert.is_true(h.exists(d.W .. "/b/d"))
      assert.is_true(h.exists(d.W .. "/a/y"))
    end)

    it("B19: metadata is refused under read-only", function()
      local before = facts(d.O .. "/f")
      local r = run("read-only", sh("chmod 600 %s/f; touch -d 2001-01-01 %s/f;"
        .. " chown $(id -u) %s/f; setfattr -n user.a -v 1 %s/f; true", d.O,
        d.O, d.O, d.O))
      assert.equal(0, r.exit_code)
      assert.equal(before, facts(d.O .. "/f"))
      assert.equal("", h.exec({ "getfattr", d.O .. "/f" }).out)
      assert.equal("full", r.sandbox.enforcement)
    end)

    it("B19: and by path or descriptor under workspace-write", function()
      local before = facts(d.O .. "/f")
      h.write(d.W .. "/g", "")
      local r = run("workspace-write", sh("chmod 600 %s/f; chmod 600 %s/g; "
        .. "touch -d 2001-01-01 %s/f; touch -d 2001-01-01 %s/g", d.O, d.W,
        d.O, d.W))
      assert.equal(before, facts(d.O .. "/f"))
      assert.is_truthy(facts(d.W .. "/g"):match("^600 %S+ 9783"))
      assert.is_true(r.sandbox.denied)
    end)

    it("B20: signals no process outside", function()
      local p = assert(io.popen("sleep 30 >/dev/null 2>&1 & echo $!"))
      local pid = p:read("l")
      p:close()
      local r = run("read-only", { "kill", "-TERM", pid })
      assert.are_not.equal(0, r.exit_code)
      assert.is_true(h.exists("/proc/" .. pid))
      os.execute("kill " .. pid)
      r = run("read-only", sh("sleep 30 & kill -TERM $! && wait $!"))
      assert.equal(143, r.exit_code, "its own processes it may signal")
    end)

    it("B21: pipelines end, observed or not", function()
      for _, observe in ipairs({ true, false }) do
        local r = run("workspace-write", { "dash", "-c", "i=0; while [ $i -lt "
          .. "60 ]; do for k in 1 2 3; do echo a | cat | cat; done; "
          .. "i=$((i+1)); done" }, { observe = observe, timeout_ms = 60000 })
        assert.equal(0, r.exit_code, r.stderr.text)
        assert.equal(("a\n"):rep(180), r.stdout.text)
        assert.equal("", r.stderr.text)
      end
    end)

    it("B23: runs inside itself, confined twice", function()
      local r = run("workspace-write", { h.dshsh_path, "run", "--mode",
        "read-only", "--workspace", d.W, "--", "sh", "-c",
        ("echo inner; echo x > %s/inner; echo x > %s/inner"):format(d.W,
        d.O) })
      assert.is_falsy(h.exists(d.O .. "/inner"))
      assert.is_falsy(h.exists(d.W .. "/inner"))
      -- a refusal to nest is said as one; anything else ran
      if r.exit_code == 125 then
        assert.is_truthy(r.stderr.text:match("SANDBOX_UNAVAILABLE"))
      else
        assert.is_truthy(r.stdout.text:match("inner"))
      end
    end)

    it("B25: follows no planted link on a command's behalf", function()
      local before = facts(d.O .. "/f")
      local r = run("workspace-write", sh("cd %s && ln -s %s/f s && ln -s %s p;"
        .. " chmod 600 s; chmod 600 p/f; touch s; ln %s/f h; true", d.W, d.O,
        d.O, d.O))
      assert.equal(0, r.exit_code)
      assert.equal(before, facts(d.O .. "/f"))
      assert.is_false(h.exists(d.W .. "/h"))
    end)

    it("B54: writes through an older hard link, and says that limit",
      function()
        h.write(d.O .. "/secret", "S\n")
        assert(os.execute(("ln '%s/secret' '%s/a'"):format(d.O, d.W)))
        local r = run("workspace-write", sh("echo P > %s/a", d.W))
        local text = h.read(d.O .. "/secret")
        if text ~= "S\n" then
          local said = false
          for _, limit in ipairs(r.sandbox.limits) do
            said = said or limit.effect == "older-hard-links"
          end
          assert.is_true(said)
        end
      end)

    it("writes where standard output leads, and reopens no input", function()
      h.write(d.O .. "/in", "in\n")
      local r = h.exec({ "sh", "-c", ('"$0" run --backend %s --mode read-only '
        .. '--workspace "%s" -- sh -c "echo said > /dev/stdout; '
        .. 'echo x > /proc/self/fd/0" < "%s/in" > "%s/out"'):format(backend,
        d.W, d.O, d.O), h.dshsh_path })
      assert.equal("said\n", h.read(d.O .. "/out"), r.err)
      assert.equal("in\n", h.read(d.O .. "/in"))
    end)

    it("refuses a directory as input", function()
      local r = h.exec({ "sh", "-c", ('"$0" run --backend %s --mode read-only '
        .. '--workspace "%s" -- true < "%s"'):format(backend, d.W, d.O),
        h.dshsh_path })
      assert.equal(125, r.code)
    end)
  end)
end
