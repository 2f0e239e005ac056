-- A disk that is full half way through an append.
local h = require("helpers")

local SCRIPT = [[
local core = require("dsh.core")
local sessions = require("dsh.sessions").start({}, { root = arg[1] .. "/s" })
local s = assert(sessions:create({ id = "s" }))
local noise = {}
local function event()
  for i = 1, 3000 do
    noise[i] = string.char(math.random(33, 91))
  end
  return { type = "a", data = { text = table.concat(noise) } }
end
local n, err = 0, nil
while n < 1000 do
  local ok, why = s:append(event())
  if not ok then
    err = why
    break
  end
  n = n + 1
end
print("full", n > 3 and n < 100, err.code, err.errno_name)
local v = assert(core.replay.verify(s.path))
print("kept", v.events == n, v.tail.torn)
os.remove(arg[1] .. "/filler")
print("later", s:append(event()) == n)
s:close()
v = assert(core.replay.verify(s.path))
print("clean", v.events == n + 1, v.tail.torn)
]]

describe("a full disk", function()
  h.guard()

  it("costs the append that met it and nothing else", function()
    local d = h.scratch()
    h.write(d.W .. "/script.lua", SCRIPT)
    h.exec({ "mkdir", d.W .. "/disk" })
    local r = h.exec({ "unshare", h.root and "-m" or "-rm", "sh", "-c",
      "mount -t tmpfs -o size=96k none \"$1/disk\" && "
      .. "head -c 32000 /dev/zero >\"$1/disk/filler\" && "
      .. "exec lua5.4 \"$1/script.lua\" \"$1/disk\"", "sh", d.W },
      { env = { LUA_PATH = h.top .. "/lua/?.lua;;",
        LUA_CPATH = h.top .. "/lua/?.so;;" } })
    if r.err:find("unshare", 1, true) or r.err:find("mount", 1, true) then
      pending("needs a mount namespace")
      return
    end
    assert.equal("", r.err)
    assert.equal("full\ttrue\tIO\tENOSPC\nkept\ttrue\tfalse\nlater\ttrue\n"
      .. "clean\ttrue\tfalse\n", r.out)
  end)
end)
