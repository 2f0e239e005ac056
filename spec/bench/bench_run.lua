--- bench_run.lua: output at full speed, many runs at once, many runs in a
-- row. Every run goes the whole way: confine, start, drain, result.
local frame = require("frame")
local dsh = require("dsh")
local sys = require("dsh.core").sys
local lib = frame.lib

local GB <const> = 1 << 30
local RUNS <const> = tonumber(os.getenv("DSH_BENCH_RUNS")) or 10000

local ctx <close> = assert(dsh.open({ mode = "read-only",
  workspace_root = "/", rows = {
    { id = "sandbox", name = "dsh.sandbox_local",
      config = { backend = os.getenv("DSH_BENCH_BACKEND") or "landlock" } },
    { id = "sandbox-policy", name = "dsh.sandbox_policy" },
    { id = "bash-sandbox", name = "dsh.shell_bash" },
  } }))

local function memory_kb()
  for line in io.lines("/proc/self/status") do
    local kb = line:match("^VmRSS:%s+(%d+)")
    if kb then
      return tonumber(kb)
    end
  end
end

local function count(dir)
  return #assert(sys.list(dir))
end

local function children()
  local n = 0
  for _, task in ipairs(assert(sys.list("/proc/self/task"))) do
    local f = io.open("/proc/self/task/" .. task .. "/children")
    for _ in (f and f:read("a") or ""):gmatch("%d+") do
      n = n + 1
    end
    if f then
      f:close()
    end
  end
  return n
end

-- Output ----------------------------------------------------------------------

local BYTES = { "head", "-c", tostring(GB), "/dev/zero" }

local function captured()
  local begin = lib.now()
  local r = assert(ctx.sandbox:run(BYTES, { env = {} }))
  assert(r.stdout.total == GB and #r.stdout.text == 64000)
  if r.stdout.spill_path then
    os.remove(r.stdout.spill_path)
  end
  return lib.now() - begin
end

print("1 GB on stdout")
frame.ratios("time for 1 GB", {
  { "head | cat >/dev/null", function()
    return (lib.spawn({ "/bin/sh", "-c", table.concat(BYTES, " ")
      .. " | cat >/dev/null" }))
  end },
  { "captured, with its spill file", captured, at_most = 1.2 },
}, { rounds = 5 })
local before = memory_kb()
local took = captured()
print(("  %.2f GB/s; memory %+d kB"):format(GB / took, memory_kb() - before))

-- At once ---------------------------------------------------------------------

local function at_once(n)
  local handles, slowest, begin = {}, 0, lib.now()
  for i = 1, n do
    handles[i] = assert(ctx.sandbox:start({ "sh", "-c",
      "seq 1 20000; exit " .. i % 256 }))
  end
  local started = lib.now() - begin
  for i, h in ipairs(handles) do
    local r = assert(h:wait())
    assert(r.exit_code == i % 256 and r.stdout.total == 108894)
    slowest = math.max(slowest, r.wall_ms)
    if r.stdout.spill_path then
      os.remove(r.stdout.spill_path)
    end
    h:close()
  end
  return started / 1e6, (lib.now() - begin) / 1e6, slowest
end

at_once(4)
print(("64 runs at once, 109 kB each: started in %.0f ms, all over after "
  .. "%.0f ms, the slowest took %d ms"):format(at_once(64)))

-- In a row --------------------------------------------------------------------

local function in_a_row(n, start)
  for _ = 1, n do
    start()
  end
end

local function growth(title, n, start)
  in_a_row(200, start)
  collectgarbage()
  local fds, threads = count("/proc/self/fd"), count("/proc/self/task")
  local processes = children()
  local kb, begin = memory_kb(), lib.now()
  in_a_row(n, start)
  local ms = (lib.now() - begin) / 1e6
  collectgarbage()
  print(("%s: %d in %.1f s (%.2f ms each): descriptors %+d, threads %+d, "
    .. "processes %+d, memory %+d kB"):format(title, n, ms / 1e3, ms / n,
    count("/proc/self/fd") - fds, count("/proc/self/task") - threads,
    children() - processes, memory_kb() - kb))
end

growth("runs", RUNS, function()
  assert(ctx.sandbox:run({ "/bin/true" })).exit_code = nil
end)
growth("jobs", RUNS, function()
  local job = assert(ctx.shell:start({ command = "echo x" }))
  assert(job:wait().exit_code == 0 and job:read() == "x\n")
end)
