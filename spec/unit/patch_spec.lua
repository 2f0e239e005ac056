local h = require("helpers")
local patch = require("dsh.patch")
local yaml = require("dsh.yaml")

local PROFILE = [[
- id: a
  name: m.a
  config: {mode: read-only, deep: {x: 1, y: 2}, list: [p, q]}
- id: tools
  group:
    - id: t1
      name: m.t
    - id: t2
      name: m.t
- id: b
  name: m.b
]]

local function compose(text, profile)
  local comp = patch.new()
  assert(patch.add_rows(comp, yaml.parse(profile or PROFILE, "base.yml"),
    { name = "base.yml" }))
  local ok, err = true, nil
  if text then
    ok, err = patch.apply(comp, yaml.parse(text, "p.yml"),
      { name = "p.yml" })
  end
  return ok and comp, err
end

local function ids(comp, platform)
  local out = {}
  for i, row in ipairs(patch.flatten(comp, platform or "linux")) do
    out[i] = row.id
  end
  return table.concat(out, " ")
end

local function refused(text, profile)
  if profile then
    local comp = patch.new()
    local ok, err = patch.add_rows(comp, yaml.parse(text, "base.yml"), {})
    assert.is_nil(ok)
    return err.message
  end
  local comp, err = compose(text)
  assert.is_nil(comp)
  assert.equal("CONFIG_INVALID", err.code)
  return err.message
end

describe("a patch", function()
  h.guard()

  it("inserts at the end, before, after and into a group", function()
    assert.equal("a t1 t2 b c",
      ids(compose("- insert: [{id: c, name: m}]")))
    assert.equal("a t1 t2 c d b",
      ids(compose("- insert: [{id: c, name: m}, {id: d, name: m}]\n"
        .. "  before: b\n")))
    assert.equal("a c t1 t2 b",
      ids(compose("- insert: [{id: c, name: m}]\n  after: a\n")))
    assert.equal("a t1 t2 c b",
      ids(compose("- id: tools\n  insert: [{id: c, name: m}]\n")))
    assert.equal("a t1 c t2 b",
      ids(compose("- insert: [{id: c, name: m}]\n  after: t1\n")))
  end)

  it("sees the rows that it has inserted itself", function()
    assert.equal("a t1 t2 b c", ids(compose("- insert: [{id: c, name: m}, "
      .. "{id: d, name: m}]\n- id: d\n  disabled: true\n")))
  end)

  it("replaces a value whole", function()
    local comp = compose("- id: a\n  config: {deep: {x: 3}}\n")
    local config = comp.index.a.row.config
    assert.same({ "deep" }, config.keys)
    assert.same({ "x" }, config.values.deep.keys)
  end)

  it("merges maps and replaces lists", function()
    local comp = compose("- id: a\n  merge: {deep: {x: 3, z: 4}, "
      .. "list: [r]}\n")
    local config = comp.index.a.row.config
    assert.same({ "mode", "deep", "list" }, config.keys)
    assert.same({ "x", "y", "z" }, config.values.deep.keys)
    assert.equal("3", config.values.deep.values.x.text)
    assert.equal("2", config.values.deep.values.y.text)
    assert.equal(1, #config.values.list)
  end)

  it("keeps where each value comes from", function()
    local comp = compose("- id: a\n  merge: {deep: {x: 3}}\n")
    local deep = comp.index.a.row.config.values.deep
    assert.same({ "p.yml", 2 }, { deep.values.x.file, deep.values.x.line })
    assert.same({ "base.yml", 3 }, { deep.values.y.file,
      deep.values.y.line })
  end)

  it("disables a row, a group, and by platform", function()
    assert.equal("a t1 t2", ids(compose("- {id: b, disabled: true}")))
    assert.equal("a b", ids(compose("- {id: tools, disabled: true}")))
    local comp = compose("- {id: b, disabled_on: [windows]}\n"
      .. "- {id: a, only_on: [linux, macos]}\n")
    assert.equal("a t1 t2 b", ids(comp))
    assert.equal("t1 t2", ids(comp, "windows"))
    assert.equal("a t1 t2 b", ids(comp, "macos"))
    local again = compose("- {id: b, disabled: true}\n"
      .. "- {id: b, disabled: false}\n")
    assert.equal("a t1 t2 b", ids(again))
  end)

  it("warns where an optional target is missing", function()
    local comp = compose("- {id: zz, disabled: true, optional: true}\n"
      .. "- {insert: [{id: c, name: m}], after: zz, optional: true}\n")
    assert.equal("a t1 t2 b", ids(comp))
    assert.equal(2, #comp.warnings)
    assert.equal("p.yml:1:8: id: there is no row 'zz' (optional, skipped)",
      comp.warnings[1])
  end)

  it("accepts a name that is the row's own", function()
    assert.equal("a t1 t2", ids(compose("- {id: b, name: m.b, "
      .. "disabled: true}")))
  end)

  local errors = {
    ["an unknown id"] = { "- id: zz\n  disabled: true\n",
      "p.yml:1:7: id: there is no row 'zz'" },
    ["an unknown before"] = { "- insert: [{id: c, name: m}]\n  before: zz\n",
      "p.yml:2:11: before: there is no row 'zz'" },
    ["a name that is not the row's"] = { "- id: b\n  name: m.c\n"
      .. "  disabled: true\n", "p.yml:2:9: row 'b' is named m.b, not m.c (to "
      .. "swap a provider, disable its row and insert another)" },
    ["a duplicate id"] = { "- insert:\n    - {id: a, name: m}\n",
      "p.yml:2:12: duplicate id 'a', first at base.yml:1:7" },
    ["an id of a row in a group"] = { "- insert: [{id: t1, name: m}]\n",
      "p.yml:1:17: duplicate id 't1', first at base.yml:6:11" },
    ["an unknown key"] = { "- id: a\n  dissabled: true\n",
      "p.yml:2:3: patch entry: unknown key 'dissabled'" },
    ["an unknown key of a row"] = { "- insert: [{id: c, name: m, cfg: 1}]\n",
      "p.yml:1:29: row: unknown key 'cfg'" },
    ["an unknown key beside insert"] = { "- insert: [{id: c, name: m}]\n"
      .. "  afetr: a\n", "p.yml:2:3: insert: unknown key 'afetr'" },
    ["a boolean in quotes"] = { "- id: a\n  disabled: 'true'\n",
      "p.yml:2:13: disabled: expected true or false, got \"true\"" },
    ["yes for true"] = { "- id: a\n  disabled: yes\n",
      "p.yml:2:13: disabled: expected true or false, got \"yes\"" },
    ["a config that is a list"] = { "- id: a\n  config: [x]\n",
      "p.yml:2:11: config: expected a map, got a list" },
    ["an unknown platform"] = { "- id: a\n  only_on: [linux, beos]\n",
      "p.yml:2:20: only_on: expected linux, macos or windows, got "
      .. "\"beos\"" },
    ["a platform that is no list"] = { "- id: a\n  only_on: linux\n",
      "p.yml:2:12: only_on: expected a list of platforms, got \"linux\"" },
    ["config and merge"] = { "- id: a\n  config: {}\n  merge: {}\n",
      "p.yml:3:3: 'config' and 'merge' exclude each other" },
    ["before and after"] = { "- insert: [{id: c, name: m}]\n  before: a\n"
      .. "  after: b\n", "p.yml:3:3: insert: 'before' and 'after' exclude "
      .. "each other" },
    ["an insert into a row"] = { "- id: a\n  insert: [{id: c, name: m}]\n",
      "p.yml:1:7: insert: row 'a' is not a group" },
    ["a config for a group"] = { "- id: tools\n  config: {x: 1}\n",
      "p.yml:1:3: row 'tools' is a group and has no config" },
    ["an entry that changes nothing"] = { "- id: a\n",
      "p.yml:1:3: patch entry: changes nothing of row 'a'" },
    ["an entry that names nothing"] = { "- disabled: true\n",
      "p.yml:1:3: patch entry: neither 'id' nor 'insert'" },
    ["an entry that is text"] = { "- a\n",
      "p.yml:1:3: patch entry: expected a map, got \"a\"" },
    ["a map instead of a list"] = { "id: a\n",
      "p.yml:1:1: a patch is a list of entries, got a map" },
    ["an insert that is no list"] = { "- insert: {id: c, name: m}\n",
      "p.yml:1:11: insert: expected a list of rows, got a map" },
  }
  for name, case in pairs(errors) do
    it("refuses " .. name, function()
      assert.equal(case[2], refused(case[1]))
    end)
  end

  local profile_errors = {
    ["a duplicate id"] = { "- {id: a, name: m}\n- {id: a, name: m}\n",
      "base.yml:2:8: duplicate id 'a', first at base.yml:1:8" },
    ["a row without an id"] = { "- name: m\n",
      "base.yml:1:3: row: id is missing" },
    ["a row without a name"] = { "- id: a\n",
      "base.yml:1:3: row 'a': name is missing" },
    ["a name that is no module"] = { "- {id: a, name: ../x}\n",
      "base.yml:1:17: row 'a': name: expected a module name, got \"../x\"" },
    ["a group with a name"] = { "- {id: a, name: m, group: []}\n",
      "base.yml:1:3: row 'a': a group has neither name nor config" },
    ["a map instead of a list"] = { "a: b\n",
      "base.yml:1:1: a profile is a list of rows, got a map" },
  }
  for name, case in pairs(profile_errors) do
    it("finds in a profile " .. name, function()
      assert.equal(case[2], refused(case[1], true))
    end)
  end
end)
