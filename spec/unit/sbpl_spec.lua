-- Seatbelt, model only: the golden profiles of spec/fixtures/plans read and
-- evaluated, against what each mode means (dsh.matrix.expected).
local h = require("helpers")
local sbpl = require("sbpl")
local matrix = require("dsh.matrix")

-- The words of a golden plan: the profile is the one of several lines.
local function golden(name)
  local text = assert(h.read("spec/fixtures/plans/" .. name))
  local runner, profile = text:match("^(.-)\n%-p\n(.*)\n%-%-\n$")
  return { runner, "-p", profile, "--" }, profile
end

local function profile(name)
  local _, text = golden(name)
  return assert(sbpl.read(text))
end

local HEAD = "(version 1)\n(allow default)\n"

describe("SBPL reader", function()
  h.guard()

  it("reads what the planner writes, escapes included", function()
    local p = profile("seatbelt-workspace-write")
    local seen
    for _, r in ipairs(p) do
      seen = seen or r.path == '/Users/u/w/a/b/"q\\x"'
    end
    assert.is_true(seen)
  end)

  for what, text in pairs({
    ["nothing"] = "",
    ["no version"] = "(allow default)",
    ["version 2"] = "(version 2)(allow default)",
    ["no default"] = "(version 1)(deny file-write*)",
    ["open list"] = HEAD .. "(deny file-write*",
    ["open string"] = HEAD .. '(deny file-write* (literal "/a))',
    ["stray close"] = HEAD .. ")",
    ["stray word"] = HEAD .. "deny",
    ["unknown verb"] = HEAD .. "(permit file-write*)",
    ["unknown operation"] = HEAD .. "(deny file-wrote*)",
    ["unknown filter"] = HEAD .. '(deny file-write* (prefix "/a"))',
    ["filter without path"] = HEAD .. "(deny file-write* (subpath))",
    ["two filters"] = HEAD
      .. '(deny file-write* (literal "/a") (literal "/b"))',
    ["two paths"] = HEAD .. '(deny file-write* (literal "/a" "/b"))',
    ["unquoted path"] = HEAD .. "(deny file-write* (literal a))",
    ["relative path"] = HEAD .. '(deny file-write* (literal "a"))',
    ["dotted path"] = HEAD .. '(deny file-write* (literal "/a/../b"))',
    ["trailing slash"] = HEAD .. '(deny file-write* (literal "/a/"))',
    ["unknown escape"] = HEAD .. '(deny file-write* (literal "/\\n"))',
    ["newline in string"] = HEAD .. '(deny file-write* (literal "/a\nb"))',
    ["NUL"] = HEAD .. "\0",
    ["a breakout"] = HEAD
      .. '(deny file-write* (literal "/a") (allow file-write*) "b"))',
    ["glued string"] = HEAD .. '(deny file-write* (literal "/a"b))',
    ["long string"] = HEAD .. '(deny file-write* (literal "/'
      .. ("x"):rep(1024) .. '"))',
  }) do
    it("rejects " .. what, function()
      local p, why = sbpl.read(text)
      assert.is_nil(p)
      assert.matches("^byte %d+: ", why)
    end)
  end

  it("takes a string of exactly 1024 bytes", function()
    assert(sbpl.read(HEAD .. '(deny file-write* (literal "/'
      .. ("x"):rep(1023) .. '"))'))
  end)

  it("survives random text", function()
    math.randomseed(7)
    local parts = { "(", ")", '"', "\\", " ", "\n", "version", "1", "allow",
      "deny", "default", "file-write*", "literal", "subpath", "/a", "\0" }
    for _ = 1, 5000 do
      local t = {}
      for i = 1, math.random(20) do
        t[i] = parts[math.random(#parts)]
      end
      local p, why = sbpl.read(table.concat(t))
      assert(p or why)
    end
  end)
end)

-- Where each place of the matrix lies under the golden roots.
local PLACES = {
  root = { "/Users/u/w/f", "/Users/u/w/d/g" },
  temp = { "/private/tmp/f", "/private/tmp/d/g" },
  ["root-to-temp"] = { "/Users/u/w/f", "/private/tmp/g" },
  outside = { "/Users/u/o/f", "/Users/u/o/g" },
  sibling = { "/Users/u/wide/f", "/Users/u/w2" }, -- no prefix match
  parent = { "/Users/u", "/Users/v" },
  system = { "/etc/hosts", "/usr/local/bin/x" },
  root_to_outside = { "/Users/u/w/f", "/Users/u/o/g" },
  outside_to_root = { "/Users/u/o/f", "/Users/u/w/g" },
}

describe("Seatbelt profile", function()
  h.guard()

  for _, mode in ipairs(matrix.MODES) do
    it("decides every cell of the write matrix under " .. mode, function()
      local p, n = profile("seatbelt-" .. mode), 0
      for place, paths in pairs(PLACES) do
        for effect, needs in pairs(sbpl.EFFECTS) do
          -- a cell counts for the places it touches
          local two = false
          for _, need in ipairs(needs) do
            two = two or need[2] == 2
          end
          local where = place
          if place == "root-to-temp" and not two then
            where = "root"
          elseif place == "root_to_outside" and not two then
            where = "root"
          elseif place == "outside_to_root" and effect == "link" then
            where = "root" -- only the new name is written: see the limit
          end
          local want = matrix.expected(mode, { kind = "by-place" }, where)
          local got = sbpl.allows(p, effect, paths[1], paths[2])
            and "done" or "refused"
          assert.are.equal(want, got, mode .. " " .. effect .. " " .. place)
          n = n + 1
        end
      end
      assert.are.equal(9 * 17, n)
    end)

    it("keeps /dev/null writable and /dev not under " .. mode, function()
      local p = profile("seatbelt-" .. mode)
      assert.is_true(sbpl.allows(p, "write", "/dev/null"))
      assert.is_false(sbpl.allows(p, "write", "/dev/disk0"))
      assert.is_false(sbpl.allows(p, "create", "/dev/null/x"))
    end)
  end

  it("grants one file under read-only, and only that", function()
    local p = profile("seatbelt-read-only-grant")
    assert.is_true(sbpl.allows(p, "write", "/Users/u/one file"))
    assert.is_false(sbpl.allows(p, "create", "/Users/u/one file/x"))
    assert.is_false(sbpl.allows(p, "write", "/Users/u/w/f"))
  end)

  it("protects paths, and their ancestors' names", function()
    local p = profile("seatbelt-workspace-write")
    local hooks = "/Users/u/w/.git/hooks"
    for effect in pairs(sbpl.EFFECTS) do
      local out = "/private/tmp/x"
      if effect ~= "link" then
        assert.is_false(sbpl.allows(p, effect, hooks, out), effect)
        assert.is_false(sbpl.allows(p, effect, hooks .. "/pre", out), effect)
      end
    end
    assert.is_false(sbpl.allows(p, "rename", "/Users/u/w/.git", "/Users/u/w/g"))
    assert.is_false(sbpl.allows(p, "rename", "/Users/u/w/a", "/Users/u/w/z"))
    assert.is_false(sbpl.allows(p, "rename", "/Users/u/w", "/private/tmp/w"))
    assert.is_false(sbpl.allows(p, "rename", "/Users/u/w/h", hooks))
    assert.is_false(sbpl.allows(p, "rename", "/Users/u/w/x", hooks .. "/pre"))
    assert.is_true(sbpl.allows(p, "create", "/Users/u/w/.git/index.lock"))
    assert.is_true(sbpl.allows(p, "chmod", "/Users/u/w/.git"))
  end)

  it("runs the stand-in with the argv unchanged", function()
    local d = h.scratch()
    local log = d.base .. "/log"
    h.write(d.base .. "/sandbox-exec", [[#!/bin/sh
for w; do printf '%s\0' "$w"; done >]] .. h.quote(log) .. [[

shift 3
exec "$@"
]])
    assert(os.execute("chmod +x " .. h.quote(d.base .. "/sandbox-exec")))
    local words = golden("seatbelt-workspace-write")
    assert.are.equal("/usr/bin/sandbox-exec", words[1])
    words[1] = d.base .. "/sandbox-exec"
    local argv = { "printf", "%s|", "a b", "", "--", "-p", '"\\' }
    table.move(argv, 1, #argv, #words + 1, words)
    local r = h.exec(words)
    assert.are.equal(0, r.code)
    assert.are.equal('a b||--|-p|"\\|', r.out)
    local seen = {}
    for w in h.read(log):gmatch("([^\0]*)\0") do
      seen[#seen + 1] = w
    end
    assert.are.same(table.move(words, 2, #words, 1, {}), seen)
  end)

  it("is refused by name on another platform", function()
    local r = h.dshsh("--backend", "seatbelt", "run", "--mode", "read-only",
      "--", "true")
    if r.code == 2 then
      r = h.dshsh("run", "--backend", "seatbelt", "--mode", "read-only", "--",
        "true")
    end
    assert.are.equal(125, r.code)
    assert.matches("refusing to run the command unconfined", r.err, 1, true)
  end)
end)
