-- Random patches: an error or a composition, never a crash, never more than
-- 100 ms or 64 MiB. The seed is printed when one fails.
local h = require("helpers")
local compose = require("dsh.compose")
local dump = require("dsh.dump")
local errors = require("dsh.errors")
local patch_lua = require("dsh.patch_lua")
local yaml = require("dsh.yaml")

local HOST = { platform = "linux", env = { HOME = "/h" } }
local BASE = h.read("profiles/base.cordis.yml")
local SEEDS = { BASE, h.read("profiles/windows.cordis.patch.yml"),
  h.read("profiles/ci.cordis.patch.yml"),
  "- id: permission\n  merge: {presets: {x: {sandbox: read-only}}}\n",
  "- insert:\n    - {id: n, name: m, config: {a: [1, {b: c}]}}\n  after: "
  .. "sandbox\n- {id: n, disabled: true, optional: true}\n" }
local TOKENS = { "- ", "id: ", "insert: ", "config: ", "merge: ", "{", "}",
  "[", "]", ": ", "\n", "  ", "&a ", "*a ", "sandbox", "permission", "'",
  '"', "|\n", "true", "null", "${X}", "${", "\t", "\0", "\xff", "<<: ", "#",
  "optional: true", "disabled: ", "before: ", "?", "!", "%", "---\n",
  "only_on: [linux]", "group: " }

local function mutate(text)
  for _ = 1, math.random(6) do
    local at = math.random(0, #text)
    local kind = math.random(4)
    local token = TOKENS[math.random(#TOKENS)]
    if kind == 1 then
      text = text:sub(1, at) .. token .. text:sub(at + 1)
    elseif kind == 2 then
      text = text:sub(1, at) .. text:sub(at + math.random(20))
    elseif kind == 3 then
      local to = math.min(#text, at + math.random(80))
      local piece = text:sub(at, to)
      local where = math.random(0, #text)
      text = text:sub(1, where) .. piece .. text:sub(where + 1)
    else
      text = text:sub(1, at) .. token:rep(math.random(40))
        .. text:sub(at + 2)
    end
  end
  return text
end

local base = assert(yaml.parse(BASE, "base.yml"))

local function try(layer)
  return compose.compose({ { kind = "profile", name = "base.yml",
    list = base }, layer })
end

local function outcome(comp, err)
  if comp then
    local text = assert(dump.text(comp, HOST))
    assert(yaml.parse(text, "dump") ~= nil)
    return "composed"
  end
  assert(errors.is(err) and err.message ~= "", "no error record")
  return "refused"
end

describe("fuzzed patches", function()
  h.guard()

  it("in YAML: an error or a composition, within 100 ms and 64 MiB",
    function()
      local seen = { composed = 0, refused = 0 }
      for seed = 1, 10000 do
        math.randomseed(seed)
        local text = mutate(SEEDS[math.random(#SEEDS)])
        collectgarbage("step")
        local before, start = collectgarbage("count"), os.clock()
        local list, err = yaml.parse(text, "p.yml")
        local got
        if list and list.kind == "list" then
          got = outcome(try({ kind = "patch", name = "p.yml", list = list }))
        else
          got = (list ~= nil or outcome(nil, err)) and "refused"
        end
        seen[got] = seen[got] + 1
        assert.is_true(os.clock() - start < 0.1, "seed " .. seed)
        assert.is_true(collectgarbage("count") - before < 64 << 10,
          "seed " .. seed)
      end
      assert.is_true(seen.composed > 100 and seen.refused > 1000)
    end)

  local LUA = { "return function(p)\n  p.insert({ id = 'n', name = 'm', "
    .. "config = { a = { 1, 2 } } }, { after = 'sandbox' })\n"
    .. "  p.merge('permission', { presets = { x = {} } })\n"
    .. "  if p.platform ~= 'windows' and p.row('sandbox') then\n"
    .. "    p.disable('terminal')\n  end\nend\n",
    h.read("profiles/windows.cordis.patch.lua") }
  local LUA_TOKENS = { "p.row", "p.insert", "(", ")", "{", "}", "nil", "p",
    "'sandbox'", "1e308", "function() end", "return ", "local x = ", "..",
    "#", "[[", "]]", "--", "\0", "\27", "end", "while true do end",
    "('x'):rep(1e9)", "error()", "p.merge(p, p)", "goto x", "::x::",
    "string.rep", "setmetatable", "_ENV", "...", "pcall", "~", "//" }

  it("in Lua: never a crash", function()
    local seen = { composed = 0, refused = 0 }
    TOKENS, LUA_TOKENS = LUA_TOKENS, TOKENS
    local steps = patch_lua.STEPS
    patch_lua.STEPS = 200000
    for seed = 1, 5000 do
      math.randomseed(seed)
      local text = mutate(LUA[math.random(#LUA)])
      local got = outcome(try(patch_lua.layer(text, "p.lua", HOST)))
      seen[got] = seen[got] + 1
    end
    patch_lua.STEPS = steps
    TOKENS, LUA_TOKENS = LUA_TOKENS, TOKENS
    assert.is_true(seen.composed > 50 and seen.refused > 500)
  end)
end)
