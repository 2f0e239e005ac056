local h = require("helpers")
local sessions_module = require("dsh.sessions")
local with_session = require("dsh.cli_session")
local policy_module = require("dsh.sandbox_policy")
local core = require("dsh.core")

local function mode_event(mode)
  return { type = "sandbox/mode", data = { mode = mode } }
end

local function new(d, modes)
  local all = sessions_module.start({ host = { home = d.O .. "/home" } }, {})
  local s = assert(all:create({ cwd = d.W, id = "s" }))
  for _, mode in ipairs(modes) do
    assert(s:append(mode_event(mode)))
  end
  return s, all
end

local function context(all, d, default)
  return { sessions = all, sandbox_policy = policy_module.start(
    { host = { cwd = d.W } }, { mode = default }) }
end

local function run(d, ...)
  return h.exec({ h.dshsh_path, "run", "--session", "s", ... },
    { env = { DSH_HOME = d.O .. "/home" }, cwd = d.W })
end

describe("run --session", function()
  h.guard()

  it("takes the session's mode, which nothing widens", function()
    local said = {}
    local app = { err = function(...)
      said[#said + 1] = string.format(...)
    end }
    for _, case in ipairs({
      { { "read-only" }, "danger-full-access", nil, "read-only", "session" },
      { { "danger-full-access", "read-only" }, "danger-full-access",
        "danger-full-access", "read-only", "session" },
      { { "danger-full-access" }, "read-only", "workspace-write",
        "workspace-write", "--mode" },
      { { "workspace-write" }, "read-only", nil, "workspace-write",
        "session" },
    }) do
      local d = h.scratch()
      local s, all = new(d, case[1])
      s:close()
      local mode, from = case[3] or case[2], case[3] and "--mode" or "base"
      local held = assert(with_session.open({ session = "s", mode = case[3] },
        app, context(all, d, case[2]), mode, from))
      assert.equal(case[4], held.policy.mode)
      assert.equal(case[5], held.from)
      assert.equal(d.W, held.policy.workspace_root)
      held.session:close()
    end
    assert.equal(1, #said)
    assert.matches("wider than the session's read%-only", said[1])
  end)

  it("without a switch the mode asked for stands", function()
    local d = h.scratch()
    local s, all = new(d, {})
    s:append({ type = "x", data = {} })
    s:close()
    local held = assert(with_session.open({ session = "s",
      mode = "workspace-write" }, {}, context(all, d, "read-only"),
      "workspace-write", "--mode"))
    assert.equal("workspace-write", held.policy.mode)
    held.session:close()
  end)

  it("logs denials by errno name, ignorable", function()
    local d = h.scratch()
    local s <close> = new(d, { "read-only" })
    assert(with_session.log(s, { sandbox = { mode = "read-only",
      backend = "bwrap", denied = true, evidence = "records", denials = {
        { op = "open", path = "/x", errno = 30, errno_name = "EROFS" },
        { op = "chmod", path = "/\xff", errno = 1, errno_name = "EPERM" } },
    } }))
    assert(with_session.log(s, { stderr = { text = "Read-only file system" },
      sandbox = { mode = "read-only", denied = true, evidence = "stderr" } }))
    assert(with_session.log(s, { sandbox = { denied = false } }))
    local r = h.exec({ "sh", "-c", "zstdcat \"$0\" | grep -c "
      .. "'\"errno\":\"E[A-Z]*\".*\"ignorable\":true'", s.path })
    assert.equal("3\n", r.out)
    assert.equal(4, core.replay.verify(s.path).events)
  end)

  it("refuses before anything runs when another process holds it", function()
    local d = h.scratch()
    local s = new(d, { "danger-full-access" })
    local r = run(d, "--", "touch", d.W .. "/made")
    assert.equal(125, r.code)
    assert.matches("SESSION_LOCKED", r.err)
    assert.is_false(h.exists(d.W .. "/made"))
    s:close()
    r = run(d, "--", "touch", d.W .. "/made")
    assert.equal(0, r.code)
    assert.is_true(h.exists(d.W .. "/made"))
  end)

  it("runs under the session's policy and logs what was refused", function()
    local d = h.scratch()
    local s, all = new(d, { "danger-full-access", "read-only" })
    s:close()
    local r = run(d, "--mode", "danger-full-access", "--", "touch",
      d.W .. "/made")
    assert.not_equal(0, r.code)
    assert.is_false(h.exists(d.W .. "/made"))
    local again <close> = assert(all:open("s"))
    local denied = again:last("sandbox/denied")
    assert.equal("read-only", denied and denied.mode)
    assert.matches("^E[A-Z]+$", denied.errno)
  end)

  it("a log inside the workspace is not writable from inside", function()
    local d = h.scratch()
    h.exec({ "mkdir", "-p", d.W .. "/logs" })
    local all = sessions_module.start({}, { root = d.W .. "/logs" })
    local s = assert(all:create({ cwd = d.W, id = "s" }))
    assert(s:append(mode_event("workspace-write")))
    s:close()
    local before = h.read(s.path)
    local r = h.exec({ h.dshsh_path, "run", "--session", s.path, "--", "sh",
      "-c", 'echo x >>"$1"; rm -f "$1"; mv "${1%/*}" "${1%/*}2"; '
      .. 'touch "$2/free"', "sh", s.path, d.W },
      { env = { DSH_HOME = d.O .. "/home" }, cwd = d.W })
    assert.equal(before, h.read(s.path):sub(1, #before))
    if r.code == 125 then -- a backend that cannot carve it out
      assert.matches("POLICY_UNSUPPORTED", r.err)
    else
      assert.is_true(h.exists(d.W .. "/free"))
    end
  end)

  it("an unknown session is refused", function()
    local d = h.scratch()
    local r = run(d, "--", "touch", d.W .. "/made")
    assert.equal(125, r.code)
    assert.matches("SESSION_NOT_FOUND", r.err)
    assert.is_false(h.exists(d.W .. "/made"))
  end)
end)
