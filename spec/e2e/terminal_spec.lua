-- Persistent shells on a pseudo-terminal, on each backend.
local h = require("helpers")
local dsh = require("dsh")

local function open(backend)
  return assert(dsh.open({ mode = "workspace-write", backend = backend,
    env = { DSH_HOME = "/nonexistent/dsh" } }))
end

local function session(id, cwd)
  return require("fixtures.fake_session").new({ id = id, cwd = cwd })
end

for _, backend in ipairs(h.backends()) do
  describe("a terminal on " .. backend, function()
    local ctx
    setup(function()
      ctx = open(backend)
      ctx.sandbox:probe() -- once for all of them
    end)
    teardown(function()
      ctx:close()
    end)
    h.guard()

    local function terminal(d, opts)
      opts = opts or {}
      opts.policy = opts.policy or { mode = "workspace-write",
        workspace_root = d.W }
      return assert(ctx.terminal:open(opts))
    end

    it("keeps its state and its policy", function()
      local d = h.scratch()
      local t <close> = terminal(d, { rows = 30, cols = 100 })
      local function run(command, ms)
        return assert(t:run({ command = command, timeout_ms = ms or 20000 }))
      end
      assert.equal("hi\n", run("echo hi").output.text)
      assert.equal(1, run("cd /tmp; X='a b'; f() { echo f$1; }; false")
        .exit_code)
      assert.equal("1 /tmp a b f2\n",
        run("echo $? $PWD $X $(f 2)").output.text)
      assert.equal("30 100\n", run("stty size").output.text)
      assert(t:resize(50, 120))
      assert.equal("50 120\n", run("stty size").output.text)
      assert.has_error(function() t:resize(0, 80) end)
      assert.equal("yes\n", run("test -t 0 && test -t 1 && echo yes")
        .output.text)
      local r = run("echo a > " .. d.W .. "/in; echo b > " .. d.O .. "/out")
      assert.equal(1, r.exit_code)
      assert.equal("a\n", h.read(d.W .. "/in"))
      assert.is_false(h.exists(d.O .. "/out"))
      assert.equal(backend, r.sandbox.backend)
      assert.equal("workspace-write", r.sandbox.mode)
      assert.is_table(r.sandbox.gaps)
      assert.is_true(r.sandbox.denied)
      assert.equal("records", r.sandbox.evidence)
      assert.equal(d.O .. "/out", r.sandbox.denials[1].path)
      assert.is_false(run("true").sandbox.denied)
      assert.equal("", run("exec > " .. d.W .. "/log").output.text)
      run("echo logged; exec > /dev/tty")
      assert.equal("logged\n", h.read(d.W .. "/log"))
      assert.equal(7, run("(exit 7)").exit_code)
    end)

    it("takes any command text", function()
      local d = h.scratch()
      local t <close> = terminal(d)
      local long = ("x"):rep(20000)
      local r = assert(t:run({ command = "printf %s '" .. long .. "' | wc -c",
        timeout_ms = 20000 }))
      assert.equal("20000", r.output.text:match("%d+"))
      local text = "a'b\"c\\d$e`f ü\u{1F600}\27[1m\3\4\26\tz"
      r = assert(t:run({ command = "printf %s '" .. text:gsub("'", "'\\''")
        .. "' > " .. d.W .. "/t", timeout_ms = 20000 }))
      assert.equal(0, r.exit_code)
      assert.equal(text, h.read(d.W .. "/t"))
      r = assert(t:run({ command = "for i in 1 2; do\n  echo $i\ndone\ncat "
        .. "<<E\nhere\nE\n", timeout_ms = 20000 }))
      assert.equal("1\n2\nhere\n", r.output.text)
      assert.equal(2, assert(t:run({ command = "if then",
        timeout_ms = 20000 })).exit_code)
      assert.has_error(function() t:run({ command = "a\0b" }) end)
    end)

    it("interrupts a command at its deadline and goes on", function()
      local d = h.scratch()
      local t <close> = terminal(d)
      local r = assert(t:run({ command = "sleep 60", timeout_ms = 300 }))
      assert.is_true(r.timed_out)
      assert.is_nil(r.exit_code)
      assert.equal("130\n", assert(t:run({ command = "echo $?",
        timeout_ms = 20000 })).output.text)
      r = assert(t:run({ command = "trap '' INT; (sleep 5)",
        timeout_ms = 100 }))
      assert.is_true(r.timed_out)
      local again, err = t:run({ command = "true", timeout_ms = 1000 })
      assert.is_nil(again)
      assert.equal("SESSION_BUSY", err.code)
    end)

    it("keeps the tail of much output", function()
      local d = h.scratch()
      local t <close> = terminal(d)
      local r = assert(t:run({ command = "seq 200000; echo ende",
        timeout_ms = 30000 }))
      assert.is_true(r.output.truncated)
      assert.is_true(#r.output.text <= 64000 and #r.output.text > 60000)
      assert.equal("ende\n", r.output.text:sub(-5))
    end)

    it("lets a program be talked to", function()
      local d = h.scratch()
      local t <close> = terminal(d)
      assert(t:send("read -r x; echo \"got $x\"\n"))
      assert(t:send("you\n"))
      local text = ""
      for _ = 1, 100 do
        text = text .. t:read(100)
        if text:find("got you\n", 1, true) then
          break
        end
      end
      assert.truthy(text:find("got you\n", 1, true))
      assert.is_true(t:alive())
      assert(t:send("exit 3\n"))
      for _ = 1, 100 do
        if not t:alive() then
          break
        end
        t:read(50)
      end
      assert.is_false(t:alive())
      assert.equal(3, t:result().exit_code)
    end)

    it("says when the shell ends, and ends what it started", function()
      local d = h.scratch()
      local t <close> = terminal(d)
      local mark = d.W .. "/alive"
      assert(t:run({ command = "(while sleep 0.05; do echo >> " .. mark
        .. "; done) & setsid sh -c 'while sleep 0.05; do echo >> " .. mark
        .. "; done' &", timeout_ms = 20000 }))
      local r = assert(t:run({ command = "sleep 0.3; exit 4",
        timeout_ms = 20000 }))
      assert.is_true(r.ended)
      assert.is_nil(r.exit_code)
      assert.equal(4, t:result().exit_code)
      local size = #h.read(mark)
      os.execute("sleep 0.3")
      assert.equal(size, #h.read(mark))
      t:close()
      local none, err = t:run({ command = "true" })
      assert.is_nil(none)
      assert.equal("IO", err.code)
    end)

    it("keeps its session from switching to another mode", function()
      local d = h.scratch()
      local s, other = session("one", d.W), session("two", d.W)
      local t <close> = assert(ctx.terminal:open({ session = s }))
      assert.equal("workspace-write", t.mode)
      local ok, err = ctx.sandbox_policy:set_mode(s, "read-only")
      assert.is_nil(ok)
      assert.equal("SESSION_BUSY", err.code)
      assert.equal("", s:types())
      assert(ctx.sandbox_policy:set_mode(s, "workspace-write"))
      assert(ctx.sandbox_policy:set_mode(other, "read-only"))
      assert.equal(1, ctx.terminal:count(s))
      t:close()
      assert(ctx.sandbox_policy:set_mode(s, "read-only"))
      local t2 <close> = assert(ctx.terminal:open({ session = s }))
      assert.equal("read-only", t2.mode)
      local r = assert(t2:run({ command = "echo x > " .. d.W .. "/f",
        timeout_ms = 20000 }))
      assert.equal(1, r.exit_code)
      assert.is_false(h.exists(d.W .. "/f"))
    end)

    it("is bounded in number, and ends with its context", function()
      local d = h.scratch()
      local policy = { mode = "workspace-write", workspace_root = d.W }
      local own = open(backend)
      own.terminal.max_open = 2
      local one = assert(own.terminal:open({ policy = policy }))
      assert(own.terminal:open({ policy = policy }))
      local none, err = own.terminal:open()
      assert.is_nil(none)
      assert.equal("JOB_LIMIT", err.code)
      own:close()
      assert.is_false(one:alive())
    end)

    it("that cannot start says why", function()
      local d = h.scratch()
      local shell = ctx.terminal.shell
      ctx.terminal.shell = "/nonexistent/bash"
      local t, err = ctx.terminal:open({ policy = {
        mode = "workspace-write", workspace_root = d.W } })
      ctx.terminal.shell = shell
      assert.is_nil(t)
      assert.equal("SPAWN_FAILED", err.code)
      assert.equal(2, err.errno)
      assert.equal("exec", err.stage)
      assert.has_error(function() ctx.terminal:open({ mod = "x" }) end,
        "terminal open: mod: unknown field")
    end)
  end)
end
