--- What the fence adds to the system calls of an atomic write, and how fast it
-- edits where no disk is in the way.
local frame = require("frame")
local core = require("dsh.core")
local lib = frame.lib

local root = core.sys.cwd() .. "/build/bench-fence"
core.sys.mkdir(root, true)
local policy = { mode = "workspace-write", workspace_root = root,
  temp = "private", temp_dir = root }
local KB = ("0123456789abcdef"):rep(64)

frame.ratios("1 KB, written atomically with both fsyncs", {
  { "bare system calls", function()
    return lib.atomic_write(root, "bare", KB)
  end },
  { "fence.write", function()
    local begin = lib.now()
    assert(core.fence.write(root .. "/fence", KB, { policy = policy }))
    return lib.now() - begin
  end, at_most = 1.10 },
}, { rounds = 300 })

-- On a filesystem in memory an fsync costs nothing.
local shm = "/dev/shm/dshsh-bench"
if core.sys.mkdir(shm, true) then
  local text = ("a line of text \u{e9} and so on\n"):rep(33000) .. "<<mark>>\n"
  local two = { mode = "workspace-write", workspace_root = shm }
  local from, to = "<<mark>>", "<<kram>>"
  assert(core.fence.write(shm .. "/big", text, { policy = two }))
  local us = frame.per_call(("edit of a file of %d KB"):format(#text // 1024),
    function()
      assert(core.fence.edit(shm .. "/big", from, to, { policy = two }))
      from, to = to, from
    end, { calls = 10, at_most = #text / 200 })
  print(("  that is %.0f MB/s (target 200)"):format(#text / us))
  os.remove(shm .. "/big")
  os.remove(shm)
end
os.remove(root .. "/bare")
os.remove(root .. "/fence")
os.remove(root)
