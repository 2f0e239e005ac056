-- dshsh doctor: content only when what is claimed was proven.
local h = require("helpers")
local json = require("dsh.json")

describe("doctor", function()
  h.guard()

  it("proves what is claimed, and counts the limits", function()
    local d = h.scratch()
    h.write(d.O .. "/older", "x")
    assert(os.execute(("ln %s/older %s/link"):format(d.O, d.W)))
    local r = h.dshsh("doctor", "--json", "--workspace", d.W)
    local data = json.decode(r.out)
    assert.equal(0, r.code, table.concat(data.findings or {}, "\n") .. r.err)
    assert.is_true(data.ok)
    local modes = 0
    for _, b in ipairs(data.backends) do
      for _, m in ipairs(b.modes) do
        modes = modes + 1
        assert.is_true(m.proven)
        assert.is_true(m.refused > 100)
        assert.equal(0, m.broken)
      end
    end
    assert.is_true(modes >= 2)
    local counts = {}
    for _, limit in ipairs(data.limits) do
      counts[limit.effect] = limit.count or false
    end
    assert.equal(1, counts["older-hard-links"])
    assert.equal("number", type(counts["outside-daemons"]))
  end)

  it("says the cause and one fix where Landlock is missing", function()
    local d = h.scratch()
    local r = h.exec(h.masked({ landlock = "ENOSYS" }, { h.dshsh_path,
      "doctor", "--json", "--backend", "landlock", "--workspace", d.W }))
    assert.equal(1, r.code, r.err)
    local data = json.decode(r.out)
    assert.is_false(data.ok)
    assert.is_false(data.backends[1].usable)
    assert.equal("landlock-missing", data.backends[1].cause)
    assert.is_true(#data.backends[1].fix > 10)
    assert.is_truthy(data.findings[1]:match("no backend is usable"))
  end)

  it("admits, and does not hide, what bwrap without Landlock leaves",
    function()
      if not h.exists("/usr/bin/bwrap") then
        return pending("no bwrap here")
      end
      local d = h.scratch()
      local r = h.exec(h.masked({ landlock = "EOPNOTSUPP" }, { h.dshsh_path,
        "doctor", "--json", "--backend", "bwrap", "--workspace", d.W }))
      local data = json.decode(r.out)
      local b = data.backends[1]
      if not b.usable then
        return pending("bwrap cannot be used here: " .. tostring(b.cause))
      end
      for _, m in ipairs(b.modes) do
        assert.equal("partial", m.claimed)
        local found = {}
        for _, gap in ipairs(m.found) do
          found[gap.effect] = true
        end
        assert.is_true(found.stdio, m.mode)
      end
    end)

  it("refuses what it does not know", function()
    assert.equal(2, h.dshsh("doctor", "--nonsense").code)
    assert.equal(125, h.dshsh("doctor", "--workspace", "/no/such").code)
  end)
end)
