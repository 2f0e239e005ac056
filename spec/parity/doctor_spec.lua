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

  -- On hosts that lack something the claim is narrower, and still true: what
  -- the whole instrument finds open, the short form had named.
  local hosts = {
    { "the one listener is taken", { listener = true }, "metadata" },
    { "Landlock of version 5", { abi = 5 }, "abstract-socket", "landlock" },
    { "Landlock of version 2", { abi = 2 }, "truncate", "landlock" },
    { "no Landlock", { landlock = "EOPNOTSUPP" }, "stdio", "bwrap" },
  }
  for _, host in ipairs(hosts) do
    it("admits what is open where " .. host[1], function()
      local d = h.scratch()
      local r = h.exec(h.masked(host[2], { h.dshsh_path, "doctor", "--json",
        "--workspace", d.W, host[4] and "--backend", host[4] }))
      local data = json.decode(r.out)
      local named = {}
      for _, b in ipairs(data.backends) do
        for _, m in ipairs(b.modes) do
          for _, gap in ipairs(m.unclaimed) do
            error(("%s %s: %s (%s)"):format(b.backend, m.mode, gap.effect,
              gap.reason))
          end
          assert.equal(#m.gaps > 0 and "partial" or "full", m.claimed)
          for _, gap in ipairs(m.gaps) do
            named[gap.effect] = true
          end
        end
      end
      if #data.backends == 1 and not data.backends[1].usable then
        return pending("no backend is usable on such a host here")
      end
      assert.is_true(named[host[3]], host[3])
      assert.equal(0, r.code, table.concat(data.findings, "\n"))
    end)
  end

  it("refuses what it does not know", function()
    assert.equal(2, h.dshsh("doctor", "--nonsense").code)
    assert.equal(125, h.dshsh("doctor", "--workspace", "/no/such").code)
  end)
end)
