-- The instrument: it must be seen to succeed bare, and to find gaps.
local h = require("helpers")
local lfs = require("lfs")

local probe = h.build .. "/dsh-probe"

local function split(line)
  local list = {}
  for field in (line .. "\t"):gmatch("(.-)\t") do
    list[#list + 1] = field
  end
  return list
end

local function places()
  local d = h.scratch()
  for _, name in ipairs({ "e", "s", "t" }) do
    assert(lfs.mkdir(d.base .. "/" .. name))
  end
  return d
end

local function matrix(d, opts, prefix)
  local argv = { probe, "--matrix", "--root", d.W, "--outside", d.O,
    "--extra", d.base .. "/e", "--temp", d.base .. "/t", "--state",
    d.base .. "/s", "--self", probe }
  table.move(opts, 1, #opts, #argv + 1, argv)
  table.move({ "--line", "x", tostring(#prefix + 3) }, 1, 3, #argv + 1, argv)
  table.move(prefix, 1, #prefix, #argv + 1, argv)
  table.move({ probe, "--inside", d.base .. "/s/spec" }, 1, 3, #argv + 1,
    argv)
  local r = h.exec(argv)
  assert(r.code == 0, r.err)
  local cells = {}
  for line in r.out:gmatch("cell\tx\t(.-)\n") do
    local f = split(line)
    cells[#cells + 1] = { op = f[1], place = f[2], form = f[3], actor = f[4],
      verdict = f[5], errno = f[6], bare = f[7] }
  end
  return cells, r
end

describe("dsh-probe", function()
  h.guard()

  it("knows at least 60 operations of class F, each once", function()
    local r = h.exec({ probe, "--list" })
    local count, seen = { F = 0, N = 0 }, {}
    for line in r.out:gmatch("(.-)\n") do
      local f = split(line)
      assert.is_nil(seen[f[1]], f[1])
      seen[f[1]] = true
      count[f[2]] = count[f[2]] + 1
      if f[2] == "N" then
        assert.is_true(#f[5] > 20, f[1] .. " says what is promised")
      end
    end
    assert.is_true(count.F >= 60, count.F)
    assert.is_true(count.N >= 10, count.N)
  end)

  it("succeeds bare, and calls nothing else a refusal", function()
    local d = places()
    local cells = matrix(d, { "--quick" }, {})
    local done, impossible = 0, 0
    for _, c in ipairs(cells) do
      if c.verdict == "done" then
        done = done + 1
      elseif c.verdict == "impossible" then
        impossible = impossible + 1
      elseif not (c.op:match("^proc%-1%-") or c.op:match("^race%-")) then
        -- a race is run shortly when confined: it need not hit
        error(("%s %s: %s (%s)"):format(c.op, c.place, c.verdict, c.errno))
      end
    end
    assert.is_true(done > 350, done)
    assert.is_true(impossible < done / 3, impossible)
  end)

  it("finds what bwrap alone lets through", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local d = places()
    local cells = matrix(d, { "--quick" }, { "/usr/bin/bwrap", "--ro-bind",
      "/", "/", "--dev", "/dev", "--proc", "/proc", "--" })
    local done = {}
    for _, c in ipairs(cells) do
      done[c.op] = done[c.op] or c.verdict == "done"
    end
    assert.is_true(done["stdin-reopen"])
    assert.is_true(done["inherited-write"])
    assert.is_true(done["io-uring-setup"])
    assert.is_false(done["open-write"])
    assert.is_false(done["chmod"])
  end)

  it("leaves no target behind", function()
    local d = places()
    matrix(d, { "--only", "chmod" }, {})
    for _, dir in ipairs({ d.W, d.O, d.base .. "/t", d.base .. "/e",
      d.base .. "/s" }) do
      for name in lfs.dir(dir) do
        assert.is_truthy(name:match("^%.%.?$"), dir .. "/" .. name)
      end
    end
  end)

  it("answers in short, bare and confined", function()
    local d = h.scratch()
    local words = { probe, "--short", "--root", d.W, "--outside", d.O }
    local bare = h.exec(table.move({ "--bare" }, 1, 1, #words + 1,
      table.move(words, 1, #words, 1, {})))
    assert.equal(0, bare.code, bare.err)
    assert.is_truthy(bare.out:match("\nwrite\tdone\t%-\topen%-write\n"))
    assert.is_truthy(bare.out:match("\nmetadata\tdone\t%-\tchmod\n"))
    if h.exists("/usr/bin/bwrap") then
      local r = h.exec(table.move(words, 1, #words, 6, { "/usr/bin/bwrap",
        "--ro-bind", "/", "/", "--" }))
      assert.is_truthy(r.out:match("\nwrite\trefused\tEROFS\topen%-write\n"))
      assert.is_truthy(r.out:match("\ninside\trefused\tEROFS"))
    end
  end)

  it("answers in short within 50 ms", function()
    local core, runner = require("dsh.core"), require("dsh.runner")
    local d = h.scratch()
    local words = { probe, "--short", "--root", d.W, "--outside", d.O }
    h.exec(table.move({ "--bare" }, 1, 1, #words + 1,
      table.move(words, 1, #words, 1, {})))
    local p <close> = assert(core.confine.provider({ backend = "landlock" }))
    local record, err = p:confine(words, { mode = "read-only",
      workspace_root = d.W })
    if not record then
      return pending("no Landlock here: " .. tostring(err))
    end
    local best = math.huge
    for _ = 1, 7 do -- the best: other work on this machine is not ours
      local r = assert(runner.run(record, { cwd = "/", observe = false }))
      assert.equal(0, r.exit_code, r.stderr.text)
      best = math.min(best, r.wall_ms)
    end
    assert.is_true(best < 50, best .. " ms")
  end)

  it("refuses words it does not know", function()
    assert.equal(2, h.exec({ probe }).code)
    assert.equal(2, h.exec({ probe, "--short", "--root", "x" }).code)
    assert.equal(2, h.exec({ probe, "--matrix", "--line", "x", "3",
      "true" }).code)
  end)
end)
