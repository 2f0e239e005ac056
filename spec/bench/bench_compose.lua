--- Composing the base profile: files read, parsed, patched, nothing started.
local dsh = require("dsh")
local frame = require("frame")

local function compose(platform)
  return function()
    assert(dsh.compose({ profile = "base", platform = platform, user = false,
      env = { HOME = "/home/x" } }))
  end
end

local opts = { calls = 50 }
local linux = frame.per_call("compose base, linux", compose("linux"), opts)
frame.per_call("compose base, windows (YAML patch)", compose("windows"), opts)
frame.per_call("compose base and a Lua patch", function()
  assert(dsh.compose({ profile = "base", platform = "linux", user = false,
    env = { HOME = "/home/x" },
    patches = { "profiles/windows.cordis.patch.lua" } }))
end, opts)
print(("  composing the base profile: %.2f ms  target 5.00: %s"):format(
  linux / 1000, linux <= 5000 and "met" or "MISSED"))
