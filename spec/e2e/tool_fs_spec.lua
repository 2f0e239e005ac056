-- The tools read, write and edit, in a composition of their own: what a model
-- sees, what the disk and the session's log say afterwards.
local h = require("helpers")
local dsh = require("dsh")

local ROWS = {
  { id = "sessions", name = "dsh.sessions" },
  { id = "sandbox", name = "dsh.sandbox_local" },
  { id = "sandbox-policy", name = "dsh.sandbox_policy",
    config = { mode = "workspace-write" } },
  { id = "approval", name = "dsh.approval" },
  { id = "fs-sandbox", name = "dsh.fs_sandbox" },
  { id = "tool-fs", name = "dsh.tool_fs", config = { lines = 5,
    lineBytes = 20 } },
}

describe("the file tools", function()
  local d, ctx, s, tools

  before_each(function()
    d = h.scratch()
    assert(require("lfs").mkdir(d.O .. "/home"))
    ctx = assert(dsh.open({ rows = ROWS,
      env = { DSH_HOME = d.O .. "/home" } }))
    s = assert(ctx.sessions:create({ cwd = d.W }))
    tools = ctx.tool_fs
  end)
  after_each(function()
    s:close()
    ctx:close()
  end)
  h.guard()

  local function call(name, args)
    return tools[name]:call(args, { session = s, call_id = "c1" })
  end

  local function good(name, args)
    local r = call(name, args)
    assert.is_false(r.is_error, r.text)
    return r
  end

  local function bad(name, args, code)
    local r = call(name, args)
    assert.is_true(r.is_error)
    assert.equal(code, r.error.code, r.text)
    return r
  end

  it("describe themselves", function()
    for _, name in ipairs({ "read", "write", "edit" }) do
      local p = tools[name].parameters
      assert.equal("object", p.type)
      assert.is_false(p.additionalProperties)
      for _, key in ipairs(p.required) do
        assert.truthy(p.properties[key])
      end
    end
  end)

  it("read numbers lines and says how to go on", function()
    h.write(d.W .. "/a", "l1\r\nl2\nl3\nl4\nl5\nl6\n" .. ("\u{e9}"):rep(30))
    assert.equal("     1\tl1\n     2\tl2\n     3\tl3\n     4\tl4\n     5\tl5\n"
      .. "[lines 1 to 5 of 7; call again with from = 6]",
      good("read", { path = "a" }).text)
    local r = good("read", { path = d.W .. "/a", from = 6 })
    assert.equal("     6\tl6\n     7\t" .. ("\u{e9}"):rep(10)
      .. " [40 bytes more]", r.text)
    assert.equal("     2\tl2\n[lines 2 to 2 of 7; call again with from = 3]",
      good("read", { path = "a", from = 2, count = 1 }).text)
    assert.equal("[no line 9: the file has 7]",
      good("read", { path = "a", from = 9 }).text)
    h.write(d.W .. "/e", "")
    assert.equal("[no line 1: the file has 0]",
      good("read", { path = "e" }).text)
  end)

  it("change what was read, as it was read", function()
    good("write", { path = "new", text = "one\n" })
    assert.equal("one\n", h.read(d.W .. "/new"))
    good("edit", { path = "new", old = "one", new = "two" }) -- our own state
    h.write(d.W .. "/a", "old\n")
    bad("write", { path = "a", text = "x" }, "FS_STALE")
    bad("edit", { path = "a", old = "old", new = "x" }, "FS_STALE")
    good("read", { path = "a" })
    h.write(d.W .. "/a", "other\n")
    bad("edit", { path = "a", old = "other", new = "x" }, "FS_STALE")
    bad("write", { path = "a", text = "x" }, "FS_STALE")
    assert.equal("other\n", h.read(d.W .. "/a"))
    good("read", { path = "a" })
    assert.equal("[replaced 1 passage in a]",
      good("edit", { path = "a", old = "other", new = "mine" }).text)
    assert.equal("mine\n", h.read(d.W .. "/a"))
  end)

  it("keep what was read to its session", function()
    h.write(d.W .. "/a", "old")
    local other <close> = assert(ctx.sessions:create({ cwd = d.W }))
    tools.read:call({ path = "a" }, { session = other })
    bad("write", { path = "a", text = "x" }, "FS_STALE")
  end)

  it("never raise for what a model passes", function()
    for _, case in ipairs({ { "read", {} }, { "read", { path = 1 } },
      { "read", { path = "a", form = 2 } }, { "read", "a" },
      { "read", { path = "a", from = 0 } },
      { "read", { path = "a", count = 1.5 } },
      { "write", { path = "a" } },
      { "write", { path = "a", text = "x", reason = "r" } },
      { "edit", { path = "a", old = "x", new = "y", replaceAll = 1 } } }) do
      bad(case[1], case[2], "MISUSE")
    end
    bad("read", { path = "none" }, "FS_NOT_FOUND")
    for _, path in ipairs({ "", "a\0b" }) do
      assert.is_true(call("read", { path = path }).is_error)
      assert.is_true(call("write", { path = path, text = "" }).is_error)
    end
  end)

  it("count matches", function()
    good("write", { path = "a", text = "x x\n" })
    local r = bad("edit", { path = "a", old = "x", new = "y" },
      "FS_EDIT_AMBIGUOUS")
    assert.truthy(r.text:find("2 times", 1, true))
    bad("edit", { path = "a", old = "q", new = "y" }, "FS_EDIT_NOT_FOUND")
    good("edit", { path = "a", old = "x", new = "y", replaceAll = true })
    assert.equal("y y\n", h.read(d.W .. "/a"))
  end)

  it("write a denial to the session's log", function()
    local r = bad("write", { path = d.O .. "/b", text = "x" },
      "FS_SANDBOX_DENIED")
    assert.truthy(r.text:find("workspace-write", 1, true))
    assert.truthy(r.text:find('grantPath = "' .. d.O .. '"', 1, true))
    assert.is_false(h.exists(d.O .. "/b"))
    local denied = assert(s:last("sandbox/denied"))
    assert.same({ "write", d.O .. "/b", "EROFS", "workspace-write" },
      { denied.op, denied.path, denied.errno, denied.mode })
  end)

  it("obey a mode switch at once", function()
    good("write", { path = "a", text = "1" })
    assert(ctx.sandbox_policy:set_mode(s, "read-only"))
    local r = bad("write", { path = "a", text = "2" }, "FS_SANDBOX_DENIED")
    assert.truthy(r.text:find("read-only", 1, true))
    assert.equal("1", h.read(d.W .. "/a"))
  end)

  it("serve one call with what was allowed once", function()
    local asked
    ctx.approval:add_answerer(function(request)
      asked = request
      return "allowed-once"
    end)
    good("write", { path = d.O .. "/b", text = "x", grantPath = d.O,
      reason = "needed" })
    assert.equal("x", h.read(d.O .. "/b"))
    assert.equal(d.O .. "/b", asked.action.path)
    bad("write", { path = d.O .. "/c", text = "x" }, "FS_SANDBOX_DENIED")
    bad("write", { path = d.base .. "/c", text = "x", grantPath = d.O,
      reason = "needed" }, "FS_SANDBOX_DENIED")
  end)

  it("serve the session with what was allowed for it", function()
    ctx.approval:add_answerer(function()
      return "allowed-session"
    end)
    good("write", { path = d.O .. "/b", text = "x", grantPath = d.O,
      reason = "needed" })
    good("write", { path = d.O .. "/c", text = "y" })
    assert.equal("y", h.read(d.O .. "/c"))
    assert.truthy(s:last("sandbox/grant"))
  end)

  it("do nothing when nobody allows it", function()
    local args = { path = d.O .. "/b", text = "x",
      escalateMode = "danger-full-access", reason = "needed" }
    assert.is_true(call("write", args).is_error)
    args.reason = " "
    bad("write", args, "ESCALATION_INVALID")
    ctx.approval:add_answerer(function()
      return "rejected"
    end)
    args.reason = "needed"
    assert.is_true(call("write", args).is_error)
    assert.is_false(h.exists(d.O .. "/b"))
  end)
end)

describe("examples/edit.lua", function()
  h.guard()

  it("edits here, and nowhere else", function()
    local d = h.scratch()
    h.write(d.W .. "/n", "teh\r\n")
    h.write(d.O .. "/n", "teh")
    local function run(path)
      return h.exec({ h.dshsh_path, "lua", h.top .. "/examples/edit.lua", path,
        "teh", "the" }, { cwd = d.W }).code
    end
    assert.equal(0, run("n"))
    assert.equal("the\r\n", h.read(d.W .. "/n"))
    assert.equal(1, run("n"))
    assert.equal(1, run("../o/n"))
    assert.equal("teh", h.read(d.O .. "/n"))
  end)
end)
