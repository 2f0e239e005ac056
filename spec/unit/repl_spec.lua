local h = require("helpers")
local repl = require("dsh.repl")
local text = require("dsh.repl_text")

-- A prompt's state without a shell.
local function fake_app(cwd, names)
  local app = { env = { PATH = "/nonexistent" },
    shell = { cwd = cwd, names = function()
      return names or {}
    end }, ctx = {} }
  return setmetatable(app, require("dsh.repl_loop").app)
end

describe("what the prompt shows", function()
  h.guard()

  it("makes everything invisible visible", function()
    local bytes = {}
    for i = 0, 255 do
      bytes[#bytes + 1] = string.char(i)
    end
    local all = table.concat(bytes)
    local out = text.visible(all)
    assert.is_truthy(utf8.len(out))
    assert.is_nil(out:find("%c"))
    assert.equal("a^[[2Jb^M^Jc", text.visible("a\27[2Jb\r\nc"))
    assert.equal("\\xFFx\\xC3", text.visible("\xffx\xc3"))
    assert.equal("żółć 日本", text.visible("żółć 日本"))
  end)

  it("shows what reorders or hides text", function()
    for _, c in ipairs({ 0x202E, 0x200B, 0x2066, 0x85, 0x9B, 0xFEFF, 0x2028,
      0xE0041, 0xAD }) do
      local out = text.visible("a" .. utf8.char(c) .. "b")
      assert.equal(("a\\u{%X}b"):format(c), out)
    end
  end)

  it("counts what it cuts", function()
    assert.equal("aaaa", text.visible("aaaa", 4))
    assert.equal("aaaa ...(1 bytes more)", text.visible("aaaaa", 4))
  end)

  it("wraps by columns, wide characters as two", function()
    assert.equal("日本\n日本", text.wrap("日本 日本", 8))
    assert.equal("日本 日本", text.wrap("日本 日本", 9))
  end)
end)

describe("the command line of the prompt", function()
  it("takes options, a script and its arguments apart", function()
    local a = assert(repl.parse({ "--mode=read-only", "--patch", "p", "--patch",
      "q", "file", "--mode", "x" }))
    assert.equal("read-only", a.mode)
    assert.same({ "p", "q" }, a.patch)
    assert.same({ "file", "--mode", "x" }, a.words)
    a = assert(repl.parse({ "-c", "echo", "--", "x" }))
    assert.equal("echo", a.command)
    assert.same({ "--", "x" }, a.words)
    a = assert(repl.parse({ "-" }))
    assert.same({ "-" }, a.words)
  end)

  it("names what is wrong", function()
    local _, why = repl.parse({ "--mode", "bogus" })
    assert.equal("--mode: unknown mode 'bogus'", why)
    _, why = repl.parse({ "--patch" })
    assert.equal("option '--patch' needs a value", why)
    _, why = repl.parse({ "--bogus" })
    assert.equal("unknown option '--bogus' (dshsh --help)", why)
  end)
end)

describe("a line at the prompt", function()
  it("is a slash word only without a second slash or such a file", function()
    local app = fake_app("/")
    assert.equal("mode", (app:slash_word("/mode read-only")))
    assert.equal("mdoe", (app:slash_word("/mdoe")))
    assert.is_nil(app:slash_word("/usr/bin/env x"))
    assert.is_nil(app:slash_word("/tmp"))
    assert.is_nil(app:slash_word("ls /mode"))
    assert.same({ "lua", "1+1" }, { app:slash_word("=1+1") })
  end)

  it("suggests the nearest word", function()
    local slash = require("dsh.repl_slash")
    assert.equal("mode", slash.nearest("mdoe"))
    assert.equal("permission", slash.nearest("perm"))
    assert.is_nil(slash.nearest("xyzzyq"))
  end)

  it("names the program that a wider run would execute", function()
    local ask = require("dsh.repl_ask")
    local env = { PATH = "relative:/usr/bin:/bin" }
    assert.equal("/usr/bin/touch", ask.program("A=1 touch x", env))
    assert.equal("cd, built into " .. require("dsh.repl_shell").bash,
      ask.program("cd x", env))
    assert.equal("nosuch, which is not on PATH", ask.program("nosuch", env))
    assert.equal("as bash reads the line", ask.program("$(x) y", env))
  end)
end)

describe("completion", function()
  h.guard()
  local complete = require("dsh.repl_complete")

  it("completes files with blanks and wide characters", function()
    local d = h.scratch()
    h.write(d.W .. "/a b", "")
    h.write(d.W .. "/żółw-1", "")
    h.write(d.W .. "/żółw-2", "")
    local app = fake_app(d.W)
    assert.same({ 1, "a\\ b " },
      { complete.complete(app, "cat a", 5) })
    local n, added = complete.complete(app, "cat ż", 6)
    assert.same({ 1, "żółw-" }, { n, added })
    local _, _, list = complete.complete(app, "cat żółw-", 12)
    assert.is_truthy(list:find("żółw-1", 1, true))
  end)

  it("lists hostile names without their control characters", function()
    local d = h.scratch()
    h.write(d.W .. "/x\27[2J1", "")
    h.write(d.W .. "/x\27[2J2", "")
    local app = fake_app(d.W)
    local _, added = complete.complete(app, "cat x", 5)
    assert.equal("$'x\\033[2J'", added)
    local _, _, list = complete.complete(app, "cat x\27[2J", 9)
    assert.is_truthy(list:find("x^[[2J1", 1, true))
    assert.is_nil(list:find("\27", 1, true))
  end)

  it("completes commands, slash words, their arguments and Lua", function()
    local app = fake_app("/", { "myfunction" })
    assert.same({ 3, "myfunction " }, { complete.complete(app, "myf", 3) })
    assert.same({ 4, "/permission " }, { complete.complete(app, "/per", 4) })
    assert.same({ 2, "read-only " }, { complete.complete(app, "/mode re", 8) })
    local n, added = complete.complete(app, "=string.form", 12)
    assert.same({ 4, "format " }, { n, added })
  end)
end)

describe("the history file", function()
  h.guard()

  it("is 0600, keeps newlines, and drops lines that begin blank", function()
    local d = h.scratch()
    local code = ([[
      local hist = require("dsh.repl_history")
      assert(hist.add("one\ntwo\\n") == true)
      assert(hist.add(" secret") == false)
      local seen = {}
      hist.load(function(line) seen[#seen + 1] = line end)
      assert(#seen == 1 and seen[1] == "one\ntwo\\n")
      local _, mode = require("dsh.core").sys.kind("%s/history")
      assert(mode == tonumber("600", 8))
    ]]):format(d.W)
    local r = h.exec({ "lua5.4", "-e", code }, { env = { DSH_HOME = d.W,
      LUA_PATH = "lua/?.lua;lua/?/init.lua;;", LUA_CPATH = "lua/?.so;;" } })
    assert.equal("", r.err)
    assert.equal(0, r.code)
  end)
end)
