local h = require("helpers")
local json = require("dsh.json")

describe("dsh.json", function()
  h.guard()

  it("gives the same bytes for the same value", function()
    assert.equal('{"a":1,"b":[true,null],"c":"x"}',
      json.encode({ c = "x", b = { true, json.null }, a = 1 }))
  end)

  it("puts the keys of an order first", function()
    local t = json.object({ a = 1, z = 2, m = 3 }, { "z", "absent" })
    assert.equal('{"z":2,"a":1,"m":3}', json.encode(t))
  end)

  it("knows an empty array from an empty object", function()
    assert.equal('{"l":[],"o":{}}',
      json.encode({ l = json.array(), o = {} }))
    local back = assert(json.decode('{"l":[],"o":{}}'))
    assert.equal('{"l":[],"o":{}}', json.encode(back))
  end)

  it("keeps integers, floats, NUL bytes and wide characters", function()
    local text = '[9007199254740993,0.5,"a\\u0000b","żółć 日本"]'
    local v = assert(json.decode(text))
    assert.equal(9007199254740993, v[1])
    assert.equal("integer", math.type(v[1]))
    assert.equal(0.5, v[2])
    assert.equal("a\0b", v[3])
    assert.equal(text, json.encode(v))
  end)

  it("raises for what JSON cannot hold", function()
    for _, bad in ipairs({ { 0 / 0 }, { print }, { "\xff" }, { [1.5] = 1 },
      { [true] = 1 }, { ["a\0"] = 1 } }) do
      assert.has_error(function()
        json.encode(bad)
      end)
    end
    local loop = {}
    loop[1] = loop
    assert.has_error(function()
      json.encode(loop)
    end, "json.encode: cannot encode a value nested too deep")
  end)

  it("answers nil, err for broken text, at the limits too", function()
    for _, bad in ipairs({ "", "{", "[1]x", '{"a":1,"a":2}', "[1,]" }) do
      local v, err = json.decode(bad)
      assert.is_nil(v)
      assert.equal("CONFIG_INVALID", err.code)
    end
    assert.is_table(json.decode(("["):rep(100) .. ("]"):rep(100)))
    assert.is_nil(json.decode(("["):rep(102) .. ("]"):rep(102)))
    assert.is_nil(json.decode(("["):rep(50000)))
  end)
end)
