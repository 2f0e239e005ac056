--- Writes of 1 KiB with fsync against the bare calls, on this disk; and an
-- edit of 1 MiB in memory, where a sync costs nothing.
local core = require("dsh.core")
local frame = require("frame")
local lib = frame.lib

local function made(where)
  local p = assert(io.popen("mktemp -d " .. where .. "/dsh-bench-XXXXXX"))
  local dir = p:read("l")
  p:close()
  return assert(dir, "no directory in " .. where)
end

local function policy(dir)
  return { policy = { mode = "workspace-write", workspace_root = dir,
    temp = "private", temp_dir = dir } }
end

local function writes(dir)
  local kib, opts = ("k"):rep(1023) .. "\n", policy(dir)
  frame.ratios("a write of 1 KiB with fsync", {
    { "bare calls", function()
      return lib.sync_replace(dir, kib)
    end },
    { "the fence", function()
      local begin = lib.now()
      assert(core.fence.write(dir .. "/a", kib, opts))
      return lib.now() - begin
    end, at_most = 1.10 },
  }, { rounds = 500 })
end

local MIB = 1 << 20

local function edits(dir)
  local line = "some words of a line that is like many others\n"
  local half = line:rep(MIB // 2 // #line)
  local f = assert(io.open(dir .. "/a", "wb"))
  f:write(half, "<<mark 0>>\n", half)
  f:close()
  local opts, at, rounds, best = policy(dir), 0, 60, math.huge
  local total = 0
  for _ = 1, rounds do
    local begin = lib.now()
    assert(core.fence.edit(dir .. "/a", ("<<mark %d>>"):format(at),
      ("<<mark %d>>"):format(at + 1), opts))
    local ns = lib.now() - begin
    at, total, best = at + 1, total + ns, math.min(best, ns)
  end
  local rate = rounds * MIB / (total / 1e9) / 1e6
  print(("an edit of 1 MiB in memory (%d rounds)\n  %-28s %7.0f MB/s, best "
    .. "%.0f  target 200: %s"):format(rounds, "the fence", rate,
    MIB / best * 1000, rate > 200 and "met" or "MISSED"))
end

for where, measure in pairs({ ["/var/tmp"] = writes, ["/dev/shm"] = edits }) do
  local dir = made(where)
  local ok, err = pcall(measure, dir)
  os.execute("rm -rf " .. dir)
  assert(ok, err)
end
