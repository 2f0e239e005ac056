-- Shells, jobs and their tools, on every backend: what they get, what they
-- tell, and that nothing outlives its limits.
local h = require("helpers")
local dsh = require("dsh")
local fake = require("fixtures.fake_session")
local runner = require("dsh.runner")

local function rows(shell, config, more)
  local list = {
    { id = "sandbox", name = "dsh.sandbox_local" },
    { id = "sandbox-policy", name = "dsh.sandbox_policy" },
    { id = "approval", name = "dsh.approval" },
    { id = "shell", name = "dsh.shell_" .. shell, config = config },
    { id = "tool", name = "dsh.tool_" .. shell },
    { id = "tool-jobs", name = "dsh.tool_jobs" },
  }
  return table.move(more or {}, 1, #(more or {}), #list + 1, list)
end

local function alive(pid)
  local stat = h.read("/proc/" .. pid .. "/stat")
  return stat ~= nil and not stat:find(") Z ", 1, true)
end

-- A stand-in for PowerShell: leaves its words in $OUT/words, then lets sh do
-- the command, so that both twins can be asked the same.
local STAND_IN = [[#!/bin/sh
[ -z "$TMPWORDS" ] ||
  for word; do printf '%s\0' "$word"; done > "$TMPWORDS/words"
exec sh -c "$5"
]]

for _, backend in ipairs(h.backends()) do
  describe("shells on " .. backend, function()
    local d, ctx
    local function open(shell, config, opts)
      opts = opts or {}
      local env = { PATH = os.getenv("PATH"), DSH_HOME = d.O .. "/home",
        MY_TOKEN = "secret", DBUS_SESSION_BUS_ADDRESS = "unix:/x", LANG = "C",
        HOME = os.getenv("HOME"), RANDOM_NAME = "1" }
      for k, v in pairs(opts.env or {}) do
        env[k] = v
      end
      ctx = assert(dsh.open({ rows = rows(shell, config), backend = backend,
        mode = opts.mode or "workspace-write", workspace_root = d.W,
        env = env }))
      return ctx
    end
    before_each(function()
      d = h.scratch()
    end)
    after_each(function()
      if ctx then
        ctx:close()
      end
    end)
    h.guard()

    it("resolve without running anything", function()
      open("bash")
      local plan = ctx.shell:resolve({ command = "touch x", workdir = "sub" })
      assert.same({ "bash", "-c", "touch x" }, plan.argv)
      assert.equal("workspace-write", plan.policy.mode)
      assert.equal(d.W .. "/sub", plan.cwd)
      assert.is_false(h.exists(d.W .. "/x"))
      plan = ctx.shell:resolve({ command = "x", mode = "read-only",
        workdir = "/usr" })
      assert.equal("read-only", plan.policy.mode)
      assert.equal("/usr", plan.cwd)
    end)

    it("raise for misuse, naming the field", function()
      open("bash")
      for field, request in pairs({
        ["command"] = {}, ["colour"] = { command = "x", colour = 1 },
        ["timeout_ms"] = { command = "x", timeout_ms = "1" },
        ["NUL"] = { command = "a\0b" }, ["mode"] = { command = "x",
          mode = "sudo" } }) do
        local ok, why = pcall(ctx.shell.run, ctx.shell, request)
        assert.is_false(ok)
        assert.truthy(tostring(why):find(field, 1, true), tostring(why))
      end
    end)

    it("run, write where they may, and tell", function()
      open("bash")
      local r = assert(ctx.shell:run({ command = ("echo a > a; echo b > %s/b; "
        .. "pwd; cat; echo e >&2; exit 7"):format(d.O), stdin = "in" }))
      assert.equal(1, r.v)
      assert.equal("yes", r.started)
      assert.equal(7, r.exit_code)
      assert.equal(d.W .. "\nin", r.stdout.text)
      assert.truthy(r.stderr.text:find("e\n", 1, true))
      assert.equal("a\n", h.read(d.W .. "/a"))
      assert.is_false(h.exists(d.O .. "/b"))
      assert.is_true(r.sandbox.denied)
      assert.equal(backend, r.sandbox.backend)
      r = assert(ctx.shell:run({ command = "echo c > " .. d.O .. "/c",
        mode = "danger-full-access" }))
      assert.equal("c\n", h.read(d.O .. "/c"))
      assert.same({ mode = "danger-full-access", denied = false }, r.sandbox)
      -- words that mean something to others are only text here
      for _, word in ipairs({ "inherit", "pipe", "null", "" }) do
        r = assert(ctx.shell:run({ command = "cat", stdin = word }))
        assert.equal(word, r.stdout.text)
      end
    end)

    it("get the environment of the contract", function()
      open("bash", { envPass = { "RANDOM_NAME" } })
      local r = assert(ctx.shell:run({ command = "env; exit $#",
        env = { API_KEY = "mine", LANG = false } }))
      local got = r.stdout.text
      for _, line in ipairs({ "NO_COLOR=1", "TERM=dumb", "PAGER=cat",
        "GIT_PAGER=cat", "API_KEY=mine", "RANDOM_NAME=1" }) do
        assert.truthy(("\n" .. got):find("\n" .. line .. "\n", 1, true), line)
      end
      for _, name in ipairs({ "MY_TOKEN", "DBUS_SESSION_BUS_ADDRESS", "LANG",
        "DSH_HOME" }) do
        assert.is_nil(("\n" .. got):find("\n" .. name .. "=", 1, true), name)
      end
      assert.truthy(table.concat(r.env_dropped, " "):find("MY_TOKEN"))
    end)

    it("B60: end on time, with all that they had started", function()
      open("bash")
      local begin = require("dsh.core").sys.now()
      local r = assert(ctx.shell:run({ timeout_ms = 2000, command =
        "exec > >(tee l) 2>&1; setsid sleep 600 & echo $! > pid; exit 0" }))
      assert.equal(0, r.exit_code)
      r = assert(ctx.shell:run({ timeout_ms = 500, command = "(setsid sh -c "
        .. "'echo inner; (sleep 600 &) ; sleep 600' &) ; sleep 600" }))
      assert.is_true(r.timed_out)
      assert.equal(15, r.signal)
      assert.is_true(require("dsh.core").sys.now() - begin < 5000)
      local left = h.exec({ "pgrep", "-f", "^sleep 600$" }).out
      for pid in left:gmatch("%d+") do
        local cwd = require("lfs").symlinkattributes("/proc/" .. pid .. "/cwd",
          "target")
        assert.not_equal(d.W, cwd)
      end
    end)

    it("can be aborted, before and while they run", function()
      open("bash")
      local polls = 0
      local abort = runner.abort_handle(function()
        polls = polls + 1
        return polls == 3
      end)
      local r = assert(ctx.shell:run({ command = "sleep 60", abort = abort }))
      assert.is_true(r.aborted)
      assert.is_false(r.timed_out)
      r = ctx.shell:run({ command = "sleep 60", abort = abort })
      assert.is_true(r.aborted)
    end)

    it("tell a bad directory from a missing sandbox", function()
      open("bash")
      local r, err = ctx.shell:run({ command = "true", workdir = "no/such" })
      assert.is_nil(r)
      assert.equal("SPAWN_FAILED", err.code)
      assert.equal("cwd", err.stage)
    end)

    it("are twins: PowerShell's words, bash's facts", function()
      local dir = d.O .. "/bin"
      assert(require("lfs").mkdir(dir))
      h.write(dir .. "/pwsh", STAND_IN)
      h.exec({ "chmod", "755", dir .. "/pwsh" })
      local command = "echo \"a b\"; echo 'x' >&2; exit 5"
      open("bash")
      local want = assert(ctx.shell:run({ command = command }))
      ctx:close()
      for _, config in ipairs({ { path = dir .. "/pwsh" }, {} }) do
        open("pwsh", config, { env = { PATH = dir .. ":"
          .. os.getenv("PATH") } })
        local plan = ctx.shell:resolve({ command = command })
        assert.same({ config.path or "pwsh", "-NoLogo", "-NoProfile",
          "-NonInteractive", "-Command", command }, plan.argv)
        local r = assert(ctx.shell:run({ command = command,
          env = { TMPWORDS = d.W } }))
        assert.equal("-NoLogo\0-NoProfile\0-NonInteractive\0-Command\0"
          .. command .. "\0", h.read(d.W .. "/words"))
        for _, key in ipairs({ "started", "exit_code", "signal", "timed_out",
          "aborted" }) do
          assert.equal(want[key], r[key], key)
        end
        assert.equal(want.stdout.text, r.stdout.text)
        assert.equal(want.stderr.text, r.stderr.text)
        assert.same(want.sandbox, r.sandbox)
        local t = ctx.tool_pwsh:call({ command = command })
        assert.equal("a b\n[stderr]\nx\n[exit status 5]", t.text)
        ctx:close()
      end
      local none, err = dsh.open({ rows = rows("pwsh", { path = "/no/pwsh" }),
        env = {} })
      assert.is_nil(none)
      assert.truthy(tostring(err):find("/no/pwsh", 1, true))
    end)

    -- jobs ------------------------------------------------------------------

    it("start jobs that keep their own mode and facts", function()
      open("bash")
      local s = ctx.shell
      local list = {}
      for i, mode in ipairs({ "read-only", "workspace-write",
        "danger-full-access", "read-only", "workspace-write" }) do
        list[i] = assert(s:start({ mode = mode, command =
          ("sleep 0.1; echo x > f%d; echo y > %s/g%d; exit %d"):format(i, d.O,
            i, i) }))
      end
      for i, job in ipairs(list) do
        local r = assert(job:wait())
        assert.equal("done", job:status())
        assert.equal(job.mode, r.sandbox.mode)
        assert.equal(i, r.exit_code)
        assert.equal(job.mode ~= "danger-full-access", r.sandbox.denied)
        assert.equal(job.mode ~= "read-only", h.exists(d.W .. "/f" .. i))
        assert.equal(job.mode == "danger-full-access",
          h.exists(d.O .. "/g" .. i))
      end
    end)

    it("read jobs since the last look, whole characters only", function()
      open("bash")
      local job = assert(ctx.shell:start({ command =
        "printf 'a\\303'; read x < p; printf '\\244b'; echo e >&2" }))
      h.exec({ "mkfifo", d.W .. "/p" })
      job:kill()
      job:wait()
      job = assert(ctx.shell:start({ command =
        "printf 'a\\303'; read x < p; printf '\\244b'; echo e >&2" }))
      local text = ""
      for _ = 1, 200 do
        text = text .. job:read()
        if text ~= "" then
          break
        end
        job:wait(10)
      end
      assert.equal("a", text)
      assert.equal("running", job:status())
      h.write(d.W .. "/p", "go\n")
      job:wait(10000)
      assert.equal("\u{e4}b", (job:read()))
      assert.equal("", (job:read()))
      assert.equal("e\n", (job:read(2)))
      assert.equal("done", job:status())
      assert.equal("a\u{e4}b", job.result.stdout.text)
    end)

    it("have at most ten live jobs of one owner", function()
      open("bash")
      local list = {}
      for i = 1, 10 do
        list[i] = assert(ctx.shell:start({ command = "sleep 60",
          owner = "one" }))
      end
      local none, err = ctx.shell:start({ command = "true", owner = "one" })
      assert.is_nil(none)
      assert.equal("JOB_LIMIT", err.code)
      local other = assert(ctx.shell:start({ command = "true",
        owner = "two" }))
      assert.equal(0, other:wait().exit_code)
      list[1]:kill()
      assert.is_true(list[1]:wait(5000).aborted)
      local again = assert(ctx.shell:start({ command = "true",
        owner = "one" }))
      again:wait()
      assert.is_nil(ctx.shell.jobs:get("two", list[2].id))
    end)

    it("end their jobs when the context closes", function()
      open("bash")
      local job = assert(ctx.shell:start({ mode = "danger-full-access",
        command = "setsid sleep 600 & echo $!; sleep 600" }))
      local pid = ""
      for _ = 1, 200 do
        pid = pid .. job:read()
        if pid:find("\n") then
          break
        end
        job:wait(10)
      end
      assert.is_true(alive(pid:match("%d+")))
      ctx:close()
      assert.is_false(alive(pid:match("%d+")))
    end)

    -- tools -----------------------------------------------------------------

    it("as tools: text, denials, and what would help", function()
      open("bash", nil, { mode = "read-only" })
      local t = ctx.tool_bash
      local out = t:call({ command = "echo hi" })
      assert.equal("hi", out.text)
      assert.is_false(out.is_error)
      out = t:call({ command = "touch new; exit 3" })
      assert.is_true(out.is_error)
      assert.truthy(out.text:find("[denied by the file policy read-only", 1,
        true))
      assert.truthy(out.text:find("call again with", 1, true))
      assert.truthy(t:call({ command = "true" }).text
        :find("[exit status 0]", 1, true))
      assert.truthy(t:call({ command = "kill -9 $$" }).text
        :find("[killed by signal 9]", 1, true))
      for _, args in ipairs({ {}, { command = " " }, { command = 1 },
        { command = "x", extra = 1 }, { command = "x", timeoutMs = -1 },
        { command = "x", reason = "r" }, { command = "x", grantPath = "/a",
          escalateMode = "workspace-write" } }) do
        out = t:call(args)
        assert.is_true(out.is_error)
        assert.equal("MISUSE", out.error.code)
      end
    end)

    it("as tools: a grant serves one call, and nothing runs before", function()
      open("bash", nil, { mode = "read-only" })
      local session = fake.new({ cwd = d.W })
      local t, args = ctx.tool_bash, { command = "echo x > made",
        escalateMode = "workspace-write", reason = "the task" }
      local out = t:call(args, { session = session })
      assert.equal("APPROVAL_UNAVAILABLE", out.error.code)
      assert.is_false(h.exists(d.W .. "/made"))
      local asked
      ctx.approval:add_answerer(function(request)
        asked = request
        return not h.exists(d.W .. "/made") and "allowed-once" or "rejected"
      end)
      out = t:call(args, { session = session })
      assert.is_false(out.is_error)
      assert.equal("workspace-write", out.result.sandbox.mode)
      assert.same({ "bash", "-c", "echo x > made" }, asked.action.argv)
      assert.is_true(h.exists(d.W .. "/made"))
      out = t:call({ command = "echo y > made" }, { session = session })
      assert.is_true(out.is_error)
      assert.equal("x\n", h.read(d.W .. "/made"))
      out = t:call(args, { session = session })
      assert.equal("APPROVAL_REJECTED", out.error.code)
      args.reason = " "
      assert.equal("ESCALATION_INVALID",
        t:call(args, { session = session }).error.code)
    end)

    it("as tools: jobs of one's own", function()
      open("bash")
      local session = fake.new({ cwd = d.W, id = "s1" })
      local mine = { session = session }
      local out = ctx.tool_bash:call({ command = "echo one; sleep 60",
        background = true }, mine)
      local id = out.job.id
      assert.truthy(out.text:find(id .. " started under workspace-write", 1,
        true))
      for _ = 1, 100 do
        out = ctx.tool_jobs:call({ action = "wait", id = id,
          timeoutMs = 50 }, mine)
        if out.text:find("one") then
          break
        end
      end
      assert.equal("one\n[" .. id .. " is running]", out.text)
      assert.truthy(ctx.tool_jobs:call({ action = "list" }, mine).text
        :find(id .. " running workspace-write: echo one; sleep 60", 1, true))
      assert.equal("[no jobs]", ctx.tool_jobs:call({ action = "list" }).text)
      assert.is_true(ctx.tool_jobs:call({ action = "read", id = id },
        { session = fake.new({ id = "s2" }) }).is_error)
      out = ctx.tool_jobs:call({ action = "kill", id = id }, mine)
      assert.truthy(out.text:find("is done] [aborted", 1, true))
      for _, args in ipairs({ {}, { action = "x" }, { action = "read" },
        { action = "read", id = "job-99" }, { action = "list", x = 1 } }) do
        assert.is_true(ctx.tool_jobs:call(args, mine).is_error)
      end
    end)
  end)
end

describe("without a usable backend", function()
  h.guard()
  it("a shell refuses, a job is not started, nothing runs", function()
    local d = h.scratch()
    local ctx = assert(dsh.open({ rows = { { id = "sandbox",
      name = "dsh.sandbox_local", config = { launcher = "/no/launcher" } },
      { id = "sandbox-policy", name = "dsh.sandbox_policy" },
      { id = "shell", name = "dsh.shell_bash" } }, backend = "landlock",
      mode = "workspace-write", workspace_root = d.W }))
    for _, call in ipairs({ ctx.shell.run, ctx.shell.start }) do
      local r, err = call(ctx.shell, { command = "touch " .. d.W .. "/x" })
      assert.is_nil(r)
      assert.equal("SANDBOX_UNAVAILABLE", err.code)
    end
    assert.is_false(h.exists(d.W .. "/x"))
    local r = assert(ctx.shell:run({ command = "exit 3",
      mode = "danger-full-access" }))
    assert.equal(3, r.exit_code)
    ctx:close()
  end)
end)
