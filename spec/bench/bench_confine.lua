--- One call of confine from Lua, paths resolved each time.
local core = require("dsh.core")
local frame = require("frame")

-- Not under a temp root, so that it is a root of its own.
local root = core.sys.realpath("src")

-- What the machine is like just now: confine makes one such call at least.
frame.per_call("one lstat from Lua", function()
  return core.sys.kind(root)
end, { calls = 4000 })

-- Processor time alone: what a machine that does other work leaves of the
-- figure above.
local function processor(title, fn)
  local list = {}
  for i = 1, 15 do
    local begin = os.clock()
    for _ = 1, 4000 do
      fn()
    end
    list[i] = (os.clock() - begin) / 4000 * 1e6
  end
  table.sort(list)
  print(("  %-38s %9.2f us of processor time"):format(title, list[8]))
end

for _, backend in ipairs({ "landlock", "bwrap" }) do
  local p <close> = assert(core.confine.provider({ backend = backend }))
  for _, mode in ipairs({ "read-only", "workspace-write" }) do
    local policy = { mode = mode, workspace_root = root }
    local argv = { "make", "-j2" }
    local r, err = p:confine(argv, policy)
    if r then
      local function call()
        return p:confine(argv, policy)
      end
      local title = ("confine, %s, %s"):format(backend, mode)
      frame.per_call(title, call, { at_most = 6, calls = 4000 })
      processor(title, call)
    else
      print(("  %s, %s: %s"):format(backend, mode, tostring(err)))
    end
  end
end
