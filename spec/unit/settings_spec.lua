local h = require("helpers")
local dsh = require("dsh")
local edit = require("dsh.settings_edit")
local lfs = require("lfs")

local TEXT = "# top\npermission:\n  # choose\n  defaultPreset: build # mine\n"
  .. "\nui: {color: true}\n# end\n"

local function set(text, path, value)
  local keys = {}
  for key in path:gmatch("[^.]+") do
    keys[#keys + 1] = key
  end
  return edit.set(text, keys, value, "s.yml")
end

local function changed(from, to)
  local a, b = TEXT:find(from, 1, true)
  return TEXT:sub(1, a - 1) .. to .. TEXT:sub(b + 1)
end

describe("a settings edit", function()
  h.guard()

  it("changes one leaf and keeps everything else", function()
    assert.equal(changed("build #", "read-only #"),
      set(TEXT, "permission.defaultPreset", "read-only"))
    assert.equal(changed("build #", "\"a: b\" #"),
      set(TEXT, "permission.defaultPreset", "a: b"))
    assert.equal(changed("true", "false"), set(TEXT, "ui.color", false))
    assert.equal(TEXT, set(TEXT, "permission.defaultPreset", "build"))
  end)

  it("adds leaves and sections", function()
    assert.equal(changed("# mine\n", "# mine\n  other: 5\n"),
      set(TEXT, "permission.other", 5))
    assert.equal(changed("true}", "true, list: [a, \"b,c\"]}"),
      set(TEXT, "ui.list", { "a", "b,c" }))
    assert.equal(TEXT:gsub("# end", "new:\n  x:\n    y: true\n# end"),
      set(TEXT, "new.x.y", true))
    assert.equal("a:\n  b: c\n", set("", "a.b", "c"))
    assert.equal("# x\na:\n  b: c\n", set("# x", "a.b", "c"))
    assert.equal("a: {x: 1}\nb: {c: 1}", set("a:\nb: {c: 1}", "a.x", 1))
    assert.equal("a:\r\n  b: 1\r\n  c: 2\r\n",
      set("a:\r\n  b: 1\r\n", "a.c", 2))
    assert.equal("a:\n  b: 1\n  c: 2\n", set("a:\n  b: 1", "a.c", 2))
  end)

  it("takes leaves out", function()
    assert.equal("a:\n  c: 2\n", set("a:\n  b: 1 # x\n  c: 2\n", "a.b", nil))
    assert.equal("a:\n  {} # x\n", set("a:\n  b: 1 # x\n", "a.b", nil))
    assert.equal("a: {c: 2}\n", set("a: {b: 1, c: 2}\n", "a.b", nil))
    assert.equal("a: {b: 1}\n", set("a: {b: 1, c: 2}\n", "a.c", nil))
    assert.equal(TEXT, set(TEXT, "ui.none", nil))
    assert.equal(TEXT, set(TEXT, "none.none", nil))
  end)

  it("replaces block text", function()
    assert.equal("a:\n  b: x\n  c: 1\n",
      set("a:\n  b: |\n    text\n    more\n  c: 1\n", "a.b", "x"))
  end)

  it("is refused where it would touch more", function()
    local function refused(...)
      local text, err = set(...)
      assert.is_nil(text)
      return err.code
    end
    assert.equal("SETTINGS_INVALID",
      refused("a: &x {b: 1}\nc: *x\n", "a.b", 2))
    assert.equal("SETTINGS_INVALID",
      refused("a: &x {b: 1}\nc: *x\n", "c.b", 2))
    assert.equal("SETTINGS_INVALID", refused("a: {b: text}\n", "a.b.c", 2))
    assert.equal("SETTINGS_INVALID", refused(TEXT, "ui.x", 0 / 0))
    assert.equal("SETTINGS_INVALID", refused(TEXT, "ui.x", { { 1 } }))
    assert.equal("YAML_INVALID", refused("a: [", "a.b", 2))
  end)

  -- Random documents: the result must read back as the change and nothing
  -- else, and every comment must still be there.
  it("holds on random documents", function()
    math.randomseed(7)
    local yaml = require("dsh.yaml")
    local node = require("dsh.node")
    local values = { "1", "x y", "true", "'q # r'", "\"d\\n\"", "[a, b]",
      "{k: v}", "|\n      block\n      text", "" }
    local done = 0
    for _ = 1, 400 do
      local lines, comments = {}, 0
      for i = 1, math.random(1, 4) do
        lines[#lines + 1] = ("s%d:"):format(i)
        for k = 1, math.random(1, 3) do
          if math.random() < 0.3 then
            comments = comments + 1
            lines[#lines + 1] = "    # comment " .. comments
          end
          lines[#lines + 1] = ("    k%d: %s"):format(k,
            values[math.random(#values)])
        end
      end
      local text = table.concat(lines, "\n") .. "\n"
      local path = ("s%d.k%d"):format(math.random(5), math.random(4))
      local out, err = set(text, path, "new")
      assert(out or err.code == "SETTINGS_INVALID", text)
      if out then
        done = done + 1
        local root = assert(yaml.parse(out, "t"))
        local s, k = path:match("(s%d)%.(k%d)")
        assert.equal("new", root.values[s].values[k].text)
        local before = assert(yaml.parse(text, "t"))
        for _, section in ipairs(before.keys) do
          for _, key in ipairs(before.values[section].keys) do
            if section ~= s or key ~= k then
              assert.is_true(node.equal(
                before.values[section].values[key],
                root.values[section].values[key]))
            end
          end
        end
        for i = 1, comments do
          assert.truthy(out:find("# comment " .. i .. "\n", 1, true), out)
        end
      end
    end
    assert.is_true(done > 380)
  end)
end)

describe("the settings service", function()
  h.guard()

  local function open(d)
    return dsh.open({ rows = { { id = "settings", name = "dsh.settings" } },
      env = { DSH_HOME = d.W .. "/home" } })
  end

  it("is empty without a file, and makes it 0600 in a 0700 home", function()
    local d = h.scratch()
    local ctx <close> = assert(open(d))
    assert.is_nil(ctx.settings:get("permission.defaultPreset"))
    assert.equal("x", ctx.settings:get("permission.defaultPreset", "x"))
    assert(ctx.settings:set("permission.defaultPreset", "build"))
    assert.equal("build", ctx.settings:get("permission.defaultPreset"))
    local file = d.W .. "/home/settings.yaml"
    assert.equal("permission:\n  defaultPreset: build\n", h.read(file))
    assert.equal("rw-------", lfs.attributes(file, "permissions"))
    assert.equal("rwx------", lfs.attributes(d.W .. "/home", "permissions"))
    local names = {}
    for name in lfs.dir(d.W .. "/home") do
      names[#names + 1] = name
    end
    table.sort(names)
    assert.same({ ".", "..", "settings.yaml", "settings.yaml.lock" }, names)
  end)

  it("refuses a bad file at start, keeps the last good at reload", function()
    local d = h.scratch()
    lfs.mkdir(d.W .. "/home")
    local file = d.W .. "/home/settings.yaml"
    h.write(file, "permission:\n  defaultPreset: a\n")
    local ctx <close> = assert(open(d))
    h.write(file, "permission: [\n")
    assert.is_nil((ctx.settings:reload()))
    assert.equal("a", ctx.settings:get("permission.defaultPreset"))
    assert.equal(1, #ctx.warnings)
    assert.truthy(ctx.warnings[1]:find(file .. ":2:1:", 1, true))
    assert.is_nil((ctx.settings:set("permission.defaultPreset", "b")))
    assert.equal("permission: [\n", h.read(file))
    local none, err = open(d)
    assert.is_nil(none)
    assert.equal("ROW_FAILED", err.code)
    h.write(file, "permission: text\n")
    none, err = open(d)
    assert.is_nil(none)
    assert.truthy(err.message:find("settings.yaml:1:13: section "
      .. "'permission': expected a map", 1, true))
    h.write(file, "permission:\n  defaultPreset: c\n")
    assert(ctx.settings:reload())
    assert.equal("c", ctx.settings:get("permission.defaultPreset"))
  end)

  it("reads typed values, and says where one does not fit", function()
    local d = h.scratch()
    lfs.mkdir(d.W .. "/home")
    local file = d.W .. "/home/settings.yaml"
    h.write(file, "ui:\n  color: false\n  width: wide\n")
    local ctx <close> = assert(open(d))
    assert.equal("false", ctx.settings:get("ui.color"))
    assert.is_false(ctx.settings:typed("ui.color", { type = "boolean" }))
    assert.equal(7, ctx.settings:typed("ui.none", { type = "integer",
      default = 7 }))
    local value, err = ctx.settings:typed("ui.width", { type = "integer" })
    assert.is_nil(value)
    assert.equal(file .. ":3:10: ui.width: expected an integer, got \"wide\"",
      err.message)
  end)

  it("writes through a symlink", function()
    local d = h.scratch()
    lfs.mkdir(d.W .. "/home")
    h.write(d.W .. "/real.yaml", "# mine\n")
    assert(lfs.link(d.W .. "/real.yaml", d.W .. "/home/settings.yaml", true))
    local ctx <close> = assert(open(d))
    assert(ctx.settings:set("a.b", 1))
    assert.equal("link", lfs.symlinkattributes(
      d.W .. "/home/settings.yaml", "mode"))
    assert.equal("# mine\na:\n  b: 1\n", h.read(d.W .. "/real.yaml"))
  end)

  it("loses no writer among eight processes", function()
    local d = h.scratch()
    lfs.mkdir(d.W .. "/home")
    local script = [[
      local ctx = require("dsh").open({ env = { DSH_HOME = arg[1] },
        rows = { { id = "settings", name = "dsh.settings" } } })
      for i = 1, 10 do
        assert(ctx.settings:set("n.k" .. arg[2] .. "_" .. i, i))
      end]]
    h.write(d.W .. "/w.lua", script)
    local words = {}
    for n = 1, 8 do
      words[n] = ("lua5.4 %s/w.lua %s/home %d &"):format(d.W, d.W, n)
    end
    local r = h.exec({ "sh", "-c", table.concat(words, "\n") .. "\nwait" },
      { env = { LUA_PATH = "lua/?.lua;lua/?/init.lua;;",
        LUA_CPATH = "lua/?.so;;" } })
    assert.equal("", r.err)
    local root = assert(require("dsh.yaml").parse(
      h.read(d.W .. "/home/settings.yaml"), "t"))
    assert.equal(80, #root.values.n.keys)
  end)

  it("says so when another writer holds the lock for too long", function()
    local core = require("dsh.core").conf
    local d = h.scratch()
    local lock <close> = assert(core.lock(d.W .. "/s.yaml"))
    local start = require("dsh.core").sys.now()
    local second, err = core.lock(d.W .. "/s.yaml")
    assert.is_nil(second)
    assert.equal("EAGAIN", err.errno_name)
    assert.is_true(require("dsh.core").sys.now() - start < 8000)
    lock:close()
  end)
end)
