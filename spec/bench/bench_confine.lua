--- One call of confine from Lua, paths resolved each time.
local core = require("dsh.core")
local frame = require("frame")

-- Not under a temp root, so that it is a root of its own.
local root = core.sys.realpath("src")

-- What the machine is like just now: confine makes one such call at least.
frame.per_call("one lstat from Lua", function()
  return core.sys.kind(root)
end, { calls = 4000 })

for _, backend in ipairs({ "landlock", "bwrap" }) do
  local p <close> = assert(core.confine.provider({ backend = backend }))
  for _, mode in ipairs({ "read-only", "workspace-write" }) do
    local policy = { mode = mode, workspace_root = root }
    local argv = { "make", "-j2" }
    local r, err = p:confine(argv, policy)
    if r then
      frame.per_call(("confine, %s, %s"):format(backend, mode), function()
        return p:confine(argv, policy)
      end, { at_most = 6, calls = 4000 })
    else
      print(("  %s, %s: %s"):format(backend, mode, tostring(err)))
    end
  end
end
