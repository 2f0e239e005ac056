-- Verdicts kept across processes: believed only when nothing changed.
local h = require("helpers")
local confine = require("dsh.core").confine

describe("a kept verdict", function()
  h.guard()
  local dir

  local function probe(again)
    local p <close> = assert(confine.provider({ backend = "landlock",
      verdict_dir = dir }))
    if again then
      p:reprobe()
    end
    return assert(p:probe())[1]
  end

  local function file()
    return dir .. "/landlock-" .. h.uid
  end

  -- Plants a gap that no probe would find, to see whether it is believed.
  local function plant()
    local text = assert(h.read(file()))
    text = text:gsub("grade\t0\t%a+\n", "grade\t0\tpartial\n"
      .. "gap\t0\tplanted\tby the test\n", 1)
    h.write(file(), text)
  end

  local function planted(finding)
    local gap = finding.grades["read-only"].gaps[1]
    return gap ~= nil and gap.effect == "planted"
  end

  before_each(function()
    dir = h.scratch().base .. "/verdicts"
  end)

  it("is believed while nothing changed", function()
    if not probe().usable then
      return pending("Landlock is not usable here")
    end
    plant()
    assert.is_true(planted(probe()))
    assert.is_false(planted(probe(true)))
    assert.is_false(planted(probe())) -- the new probe wrote it anew
  end)

  it("is not believed when anybody else could have written it", function()
    if not probe().usable then
      return pending("Landlock is not usable here")
    end
    plant()
    os.execute("chmod 622 " .. h.quote(file()))
    assert.is_false(planted(probe()))
    plant()
    os.execute(("mv %s %s.real; ln -s %s.real %s"):format(file(), file(),
      file(), file()))
    assert.is_false(planted(probe()))
  end)

  it("is not believed for another key, or when cut short", function()
    if not probe().usable then
      return pending("Landlock is not usable here")
    end
    plant()
    local good = h.read(file())
    h.write(file(), (good:gsub("\n(%S+)|", "\nx%1|", 1)))
    assert.is_false(planted(probe()))
    for _, cut in ipairs({ 0, 10, 100, #good - 1, #good - 4 }) do
      h.write(file(), good:sub(1, cut))
      assert.is_false(cut < #good - 1 and planted(probe()))
    end
  end)

  it("is neither kept nor believed under a seccomp filter", function()
    if not probe().usable then
      return pending("Landlock is not usable here")
    end
    plant()
    local r = h.exec(h.masked({ abi = 3 }, { "lua5.4", "-e", ([[
      local p = assert(require("dsh.core").confine.provider({
        backend = "landlock", verdict_dir = %q }))
      local gap = p:probe()[1].grades["read-only"].gaps[1]
      print(gap and gap.effect)]]):format(dir) }), { env = {
      LUA_PATH = h.top .. "/lua/?.lua;;", LUA_CPATH = h.top
        .. "/lua/?.so;;" } })
    assert.is_nil(r.out:find("planted", 1, true), r.err)
    assert.is_true(planted(probe()))
  end)
end)
