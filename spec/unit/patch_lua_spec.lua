local h = require("helpers")
local compose = require("dsh.compose")
local dump = require("dsh.dump")
local node = require("dsh.node")
local patch_lua = require("dsh.patch_lua")

local HOST = { platform = "linux", env = { HOSTNAME = "box" } }

local function compose_with(layer)
  return compose.compose({
    { kind = "profile", name = "base", list = node.from_lua({
      { id = "a", name = "m.a", config = { mode = "read-only" } },
      { id = "g", group = { { id = "g1", name = "m.g" } } },
      { id = "b", name = "m.b" } }, { file = "base" }) },
    layer })
end

local function apply(text)
  return compose_with(patch_lua.layer(text, "p.lua", HOST))
end

local function text_of(comp)
  return (dump.text(comp, HOST):gsub("#[^\n]*\n", ""))
end

describe("a patch in Lua", function()
  h.guard()

  it("inserts, replaces, merges and disables", function()
    local comp = assert(apply([[
      return function(p)
        p.insert({ id = "c", name = "m.c" }, { after = "a" })
        p.insert({ id = "g2", name = "m.g" }, { into = "g" })
        p.merge("a", { more = { 1, true, "x" } })
        p.replace("c", { config = { k = "v" } })
        p.disable("b")
      end]]))
    assert.equal([[
- id: a
  name: m.a
  config:
    mode: read-only
    more:
      - 1
      - true
      - x
- id: c
  name: m.c
  config:
    k: v
- id: g
  group:
    - id: g1
      name: m.g
    - id: g2
      name: m.g
- id: b
  name: m.b
  disabled: true
]], (text_of(comp):gsub("\n\n", "\n")))
  end)

  it("sees rows as they stand, the platform and the environment", function()
    assert(apply([[
      return function(p)
        assert(p.platform == "linux" and p.env.HOSTNAME == "box")
        assert(p.row("nobody") == nil)
        assert(p.row("a").config.mode == "read-only")
        p.merge("a", { mode = "workspace-write" })
        assert(p.row("a").config.mode == "workspace-write")
        assert(p.row("g").group[1].id == "g1")
        p.row("a").config.mode = "danger-full-access" -- a copy
        assert(p.row("a").config.mode == "workspace-write")
      end]]))
  end)

  it("gives its file and line to what it changes", function()
    local comp = assert(apply("return function(p)\n\n"
      .. "  p.merge('a', {x = '1'})\nend"))
    local x = comp.index.a.row.config.values.x
    assert.same({ "p.lua", 3 }, { x.file, x.line })
    assert.truthy(dump.text(comp, HOST):find("# patched by p.lua:3 (merge)",
      1, true))
  end)

  local errors = {
    ["an unknown id"] = { "return function(p)\n  p.disable('zz')\nend",
      "p.lua:2: id: there is no row 'zz'" },
    ["a duplicate id"] = { "return function(p)\n"
      .. "  p.insert({id = 'a', name = 'm'})\nend",
      "p.lua:2: duplicate id 'a', first at base" },
    ["a name mismatch"] = { "return function(p)\n"
      .. "  p.replace('a', {name = 'm.x', disabled = true})\nend",
      "p.lua:2: row 'a' is named m.a, not m.x (to swap a provider, disable "
      .. "its row and insert another)" },
    ["an unknown key"] = { "return function(p)\n"
      .. "  p.replace('a', {dis = true})\nend",
      "p.lua:2: patch entry: unknown key 'dis'" },
    ["a wrong type"] = { "return function(p)\n"
      .. "  p.replace('a', {disabled = 'true'})\nend",
      "p.lua:2: disabled: expected true or false, got \"true\"" },
    ["a number for an id"] = { "return function(p) p.disable(3) end",
      "p.lua:1: disable: id: expected a string, got number" },
    ["an unknown global"] = { "return function(p)\n  os.exit(0)\nend",
      "p.lua:2: unknown global 'os'" },
    ["an unknown global outside"] = { "\nlocal x = io\nreturn x",
      "p.lua:2: unknown global 'io'" },
    ["an assignment to a global"] = { "\nx = 1\nreturn nil",
      "p.lua:2: assignment to global 'x' (use local)" },
    ["no loading of code"] = { "return function(p) load('x') end",
      "p.lua:1: unknown global 'load'" },
    ["a file that returns no function"] = { "return {}",
      "p.lua:1: a Lua patch returns function(p) … end" },
    ["a syntax error"] = { "return function(p)\n  p.disable(\nend",
      "p.lua:3: unexpected symbol near 'end'" },
    ["bytecode"] = { "\27Lua", "p.lua: attempt to load a binary chunk "
      .. "(mode is 't')" },
    ["a function as a value"] = { "return function(p)\n"
      .. "  p.merge('a', {f = function() end})\nend", "p.lua:2: a function: "
      .. "only data leaves a script (functions are given to dsh.open from "
      .. "Lua)" },
    ["a table within itself"] = { "return function(p) local t = {}; t.t = t\n"
      .. "  p.merge('a', t)\nend",
      "p.lua:2: a table nested too deeply (or within itself)" },
    ["an endless loop"] = { "return function(p)\n  while true do end\nend",
      "p.lua:2: the script runs too long (instruction limit)" },
    ["an endless loop that catches errors"] = { "return function(p)\n"
      .. "  while true do pcall(function() while true do end end) end\nend",
      "p.lua:2: the script runs too long (instruction limit)" },
    ["too much memory"] = { "return function(p) local t = {}\n"
      .. "  for i = 1, 1e6 do t[i] = ('x'):rep(1e6) .. i end end",
      "p.lua: not enough memory" },
    ["a huge string"] = { "return function(p)\n"
      .. "  return ('x'):rep(1e9) end", "p.lua: not enough memory" },
    ["an error that is a table"] = { "return function(p) error({}) end",
      "p.lua: the script raised a value that is no text" },
  }
  for name, case in pairs(errors) do
    it("refuses " .. name, function()
      local comp, err = apply(case[1])
      assert.is_nil(comp)
      assert.equal("CONFIG_INVALID", err.code)
      assert.equal(case[2], err.message)
    end)
  end

  it("cannot reach what the host's state holds", function()
    local comp, err = apply([[
      return function(p)
        string.rep = nil
        error(tostring(rawget(string, "dump")) .. type(rawget))
      end]])
    assert.is_nil(comp)
    assert.truthy(err.message:find("nilfunction", 1, true))
    assert.equal("xx", ("x"):rep(2))
  end)
end)

describe("a patch function of the caller", function()
  h.guard()

  it("may hand functions to rows and names its own lines", function()
    local f = function() return 1 end
    local comp = assert(compose_with(patch_lua.function_layer(function(p)
      p.merge("a", { args = f })
    end, HOST)))
    local n = comp.index.a.row.config.values.args
    assert.equal(f, node.to_lua(n))
    assert.truthy(n.file:find("patch_lua_spec.lua", 1, true))
  end)

  it("fails with the caller's line", function()
    local comp, err = compose_with(patch_lua.function_layer(function(p)
      p.disable("zz")
    end, HOST))
    assert.is_nil(comp)
    assert.truthy(err.message:find("patch_lua_spec%.lua:%d+: id: there is no "
      .. "row 'zz'"))
  end)
end)
