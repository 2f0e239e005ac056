-- The command: what it writes, what it says, how it ends.
local h = require("helpers")
local json = require("dsh.json")

local FIXED = 'sandbox mode "read-only" is requested but no sandbox backend '
  .. "is usable on this host; refusing to run the command unconfined. "
  .. "Install bubblewrap or run a Landlock-enforcing kernel (Linux), ensure "
  .. "sandbox-exec is usable (macOS), or ensure the ACL restricted-token "
  .. "runner can start (Windows) — otherwise switch the consumer to "
  .. "danger-full-access."

local function record(...)
  local r = h.exec({ h.dshsh_path, "run", "--json", ... })
  return json.decode(r.out), r
end

for _, backend in ipairs(h.backends()) do
  describe("dshsh run, " .. backend, function()
    h.guard()
    -- Not in this tree: its own control files forbid it to Landlock.
    local with = { "--backend", backend }
    before_each(function()
      with[3], with[4] = "--workspace", h.scratch().W
    end)

    local function confined(opts, ...)
      local argv = { h.dshsh_path, "run" }
      table.move(with, 1, #with, 3, argv)
      return h.exec(table.move({ ... }, 1, select("#", ...), #argv + 1, argv),
        opts)
    end

    local function recorded(...)
      return json.decode(confined({ may_be_killed = true }, "--json",
        ...).out)
    end

    it("writes inside the workspace and not outside", function()
      local d = h.scratch()
      local line = ("echo hi > %s/a; echo hi > %s/b"):format(d.W, d.O)
      local got = record("--backend", backend, "--mode", "workspace-write",
        "--workspace", d.W, "--", "bash", "-c", line)
      assert.equal("hi\n", h.read(d.W .. "/a"))
      assert.is_false(h.exists(d.O .. "/b"))
      assert.equal("yes", got.started)
      assert.equal(1, got.exitCode)
      assert.is_true(got.sandbox.denied)
      assert.equal(backend, got.sandbox.backend)
      assert.is_truthy(got.sandbox.enforcement == "full"
        or got.sandbox.enforcement == "partial" and #got.sandbox.gaps > 0)
    end)

    it("ends as the command does", function()
      for _, code in ipairs({ 0, 1, 7, 125, 126, 127, 137, 255 }) do
        local r = confined({ may_be_killed = true }, "--", "sh", "-c",
          "exit " .. code)
        assert.equal(code, r.code)
        assert.equal("", r.err)
      end
      local got = recorded("--", "sh", "-c",
        "kill -9 $$")
      assert.equal(9, got.signal)
      assert.is_nil(got.exitCode)
    end)

    it("takes no word of the command for its own", function()
      for _, said in ipairs({ "landlock-run: x", "bwrap: x" }) do
        local got = recorded("--", "sh", "-c",
          ("echo '%s' >&2; exit 125"):format(said))
        assert.equal("yes", got.started)
        assert.equal(125, got.exitCode)
        assert.equal(said .. "\n", got.stderr.text)
        assert.is_false(got.sandbox.denied)
      end
    end)

    it("tells what cannot be executed apart", function()
      local d = h.scratch()
      h.write(d.W .. "/plain", "not a program")
      local r = confined(nil, "--", "/no/such")
      assert.equal(127, r.code)
      assert.equal("dshsh: /no/such: cannot be executed: ENOENT\n", r.err)
      r = confined(nil, "--", d.W .. "/plain")
      assert.equal(126, r.code)
      local got = recorded("--", "/no/such")
      assert.equal("no", got.started)
      assert.equal("exec", got.stage)
      assert.equal(2, got.errno)
    end)

    it("passes every byte of argv and stdin", function()
      local words = { "", " ", "a b", "'\"\\$x`", "two\nlines", "żółć 日本",
        "\xff\xfe", "--", "-x", "*" }
      local r = confined({ stdin = "in\xfe\n" }, "--", "sh", "-c",
        "printf '%s\\0' \"$@\"; cat", "sh", table.unpack(words))
      assert.equal(table.concat(words, "\0") .. "\0in\xfe\n", r.out)
    end)

    it("stops at the deadline with 124", function()
      local r = confined(nil, "--timeout", "0.3", "--", "sleep",
        "30")
      assert.equal(124, r.code)
      assert.equal("dshsh: timed out\n", r.err)
    end)

    it("writes the record beside what passes through", function()
      local d = h.scratch()
      local file = d.O .. "/record"
      local r = confined(nil, "--mode", "read-only", "--report",
        file, "--", "sh", "-c", "echo out; echo err >&2; exit 3")
      assert.same({ 3, "out\n", "err\n" }, { r.code, r.out, r.err })
      local got = assert(json.decode(h.read(file)))
      assert.equal(3, got.exitCode)
      assert.equal("--mode", got.sandbox.modeFrom)
    end)
  end)
end

describe("dshsh without a usable backend", function()
  h.guard()

  it("refuses with the fixed text, and nothing runs", function()
    local d = h.scratch()
    for _, errno in ipairs({ "ENOSYS", "EOPNOTSUPP" }) do
      local r = h.exec(h.masked({ landlock = errno, userns = false,
        namespaces = false }, { h.dshsh_path, "run", "--mode", "read-only",
        "--workspace", d.W, "--", "touch", d.W .. "/x" }))
      assert.equal(125, r.code)
      assert.equal(1, select(2, r.err:gsub("\n", "\n")))
      assert.is_truthy(r.err:find(FIXED, 1, true), r.err)
      assert.equal("dshsh: ", r.err:sub(1, 7))
      assert.is_false(h.exists(d.W .. "/x"))
    end
  end)

  it("runs under danger-full-access, without a claim", function()
    local r = h.exec(h.masked({ landlock = "ENOSYS", namespaces = false },
      { h.dshsh_path, "run", "--mode", "danger-full-access", "--json", "--",
        "echo", "hi" }))
    local got = assert(json.decode(r.out))
    assert.equal("hi\n", got.stdout.text)
    assert.same({ mode = "danger-full-access", denied = false,
      modeFrom = "--mode" }, { mode = got.sandbox.mode,
      denied = got.sandbox.denied, modeFrom = got.sandbox.modeFrom })
    assert.is_nil(got.sandbox.enforcement)
  end)
end)

describe("dshsh confine", function()
  h.guard()

  it("gives the argv back unchanged under danger-full-access", function()
    local r = h.dshsh("confine", "--mode", "danger-full-access", "--", "a b",
      "")
    local got = assert(json.decode(r.out))
    assert.same({ "a b", "" }, { got.argv[1], got.argv[2] })
    assert.is_false(got.confined)
    assert.is_nil(got.enforcement)
  end)

  it("keeps the caller's words after a '--'", function()
    local r = h.dshsh("confine", "--mode", "read-only", "--", "ls", "-l")
    local got = assert(json.decode(r.out))
    local n = #got.argv
    assert.same({ "--", "ls", "-l" }, { got.argv[n - 2], got.argv[n - 1],
      got.argv[n] })
    assert.is_true(got.confined)
    assert.is_table(got.denialSignatures)
  end)
end)

describe("dshsh's own errors", function()
  h.guard()

  it("name the argument", function()
    local cases = {
      { 125, "'--mode'", "run", "--mode", "bogus", "--", "true" },
      { 125, "--timeout", "run", "--timeout", "x", "--", "true" },
      { 125, "put '--' before the command", "run", "true" },
      { 125, "no command after '--'", "run", "--" },
      { 125, "--workspace: /no/such", "run", "--workspace", "/no/such", "--",
        "true" },
      { 125, "--report", "run", "--report", "/no/such/file", "--", "true" },
      { 125, "bogus", "run", "--backend", "bogus", "--", "true" },
      { 125, "--bogus", "--bogus" },
      { 125, "--mode", "--mode", "bogus", "-c", "true" },
      { 2, "--bogus", "probe", "--bogus" },
    }
    for _, case in ipairs(cases) do
      local r = h.dshsh(table.unpack(case, 3))
      local what = table.concat(case, " ", 3)
      assert.equal(case[1], r.code, what)
      assert.equal("dshsh: ", r.err:sub(1, 7), what)
      assert.is_truthy(r.err:find(case[2], 1, true), what .. ": " .. r.err)
      assert.equal("", r.out, what)
    end
  end)

  it("leaves nothing run when the record cannot be written", function()
    local d = h.scratch()
    local r = h.dshsh("run", "--mode", "workspace-write", "--workspace", d.W,
      "--report", d.W, "--", "touch", d.W .. "/x")
    assert.equal(125, r.code)
    assert.is_false(h.exists(d.W .. "/x"))
  end)
end)

describe("dshsh as a script's interpreter", function()
  h.guard()

  it("runs -c, a file and standard input, confined", function()
    local d = h.scratch()
    local base = { h.dshsh_path, "--mode", "workspace-write", "--workspace",
      d.W }
    local function sh(opts, ...)
      local argv = table.move(base, 1, #base, 1, {})
      return h.exec(table.move({ ... }, 1, select("#", ...), #argv + 1, argv),
        opts)
    end
    local r = sh(nil, "-c", 'echo "$0 $1"; exit 5', "zero", "one")
    assert.same({ 5, "zero one\n" }, { r.code, r.out })
    h.write(d.O .. "/script", "echo $1; echo x > " .. d.O .. "/no")
    r = sh(nil, d.O .. "/script", "arg")
    assert.equal("arg\n", r.out)
    assert.is_false(h.exists(d.O .. "/no"))
    assert.is_truthy(r.err:find("refused to", 1, true), r.err)
    assert.is_truthy(r.err:find("nobody is asked", 1, true), r.err)
    r = sh({ stdin = "echo in $1; exit 4" }, "-", "x")
    assert.same({ 4, "in x\n" }, { r.code, r.out })
  end)

  it("takes no slash words there", function()
    local r = h.dshsh("--mode", "read-only", "-c", "/help")
    assert.equal(127, r.code)
  end)

  it("writes events as JSON lines to a descriptor", function()
    local d = h.scratch()
    local r = h.exec({ "sh", "-c", ("exec %s --json 3 -c 'exit 6' 3>%s")
      :format(h.quote(h.dshsh_path), h.quote(d.O .. "/events")) })
    assert.equal(6, r.code)
    local events = {}
    for line in h.read(d.O .. "/events"):gmatch("[^\n]+") do
      events[#events + 1] = assert(json.decode(line))
    end
    assert.equal("start", events[1].event)
    assert.equal("result", events[2].event)
    assert.equal(6, events[2].exitCode)
  end)

  it("writes events behind what the file already holds", function()
    local d = h.scratch()
    for _, fd in ipairs({ "1", "3" }) do
      local r = h.exec({ "sh", "-c",
        ("exec %s>%s; echo before >&%s; exec %s --json %s -c 'echo hi'")
        :format(fd, h.quote(d.O .. "/mixed"), fd, h.quote(h.dshsh_path), fd) })
      assert.equal(0, r.code)
      local text = h.read(d.O .. "/mixed")
      assert.is_truthy(text:find('^before\n{"event":"start"'), text)
      assert.is_truthy(text:find('\n{"event":"result"', 1, true), text)
      if fd == "1" then
        assert.is_truthy(text:find("}\nhi\n{", 1, true), text)
      end
    end
  end)
end)

describe("dshsh lua", function()
  h.guard()

  it("runs a script with its arguments and the toolkit", function()
    local d = h.scratch()
    h.write(d.W .. "/s.lua", [[
      print(arg[0]:match("[^/]+$"), #arg, ...)
      local dsh = require("dsh")
      local ctx <close> = assert(dsh.open{ mode = "read-only" })
      print(assert(ctx.sandbox:run({ "echo", "hi" })).stdout.text)
      return 9]])
    local r = h.dshsh("lua", d.W .. "/s.lua", "--a", "b")
    assert.equal("", r.err)
    assert.same({ 9, "s.lua\t2\t--a\tb\nhi\n\n" }, { r.code, r.out })
  end)
end)

describe("the core's border", function()
  it("lets only lua_*.c and dshsh.c see Lua", function()
    if not h.exists("src") then
      return pending("the sources are not part of this copy")
    end
    local r = h.exec({ "sh", "-c",
      "grep -lE '[<\"](lua|lauxlib|lualib)\\.h' src/*.c backends/*.c" })
    for file in r.out:gmatch("[^\n]+") do
      assert.is_truthy(file:match("^src/lua_[%w_]+%.c$")
        or file == "src/dshsh.c", file)
    end
  end)
end)
