--- Session logs against the zstd command line, on a generated log of 200 MB
-- (decoded) in 40,000 frames; and appends against a bare write and fsync.
local frame = require("frame")
local core = require("dsh.core")
local lib = frame.lib

local function sh(fmt, ...)
  assert(os.execute(fmt:format(...)), "failed: " .. fmt:format(...))
end

local function capture(command)
  local p = assert(io.popen(command))
  local text = p:read("a")
  p:close()
  return text
end

local function timed(fn, ...)
  local args = { ... }
  return function()
    local begin = lib.now()
    assert(fn(table.unpack(args)))
    return lib.now() - begin
  end
end

local function zstd_test(path)
  local program = capture("command -v zstd"):gsub("\n", "")
  return { "zstd -t", function()
    local ns, status = lib.spawn({ program, "-q", "-t", path })
    assert(status == 0)
    return ns
  end }
end

-- The peak resident set, in kB, of a fresh process that runs this chunk.
local function peak(chunk)
  return tonumber(capture(([[lua5.4 -e '
    local replay = require("dsh.core").replay
    %s
    for line in io.lines("/proc/self/status") do
      local kb = line:match("^VmHWM:%%s+(%%d+)")
      if kb then print(kb) end
    end']]):format(chunk)))
end

local dir = capture("mktemp -d"):gsub("\n", "")

local function figures()
  local near, none = dir .. "/near.zstd", dir .. "/none.zstd"
  sh("%s -O2 -o %s/loggen spec/bench/loggen.c -lzstd", os.getenv("CC") or "cc",
    dir)
  sh("%s/loggen %s 200 40000 5 && %s/loggen %s 200 40000 0", dir, near, dir,
    none)
  frame.ratios("a log of 200 MB in 40,000 frames, read", {
    zstd_test(none),
    { "mode, last switch near the end", timed(core.replay.fold, near,
      "mode") },
    { "mode, no switch at all", timed(core.replay.fold, none, "mode"),
      at_most = 0.65 },
    { "full verification, one thread", timed(core.replay.verify, near),
      at_most = 0.65 },
    { "full verification, two threads", timed(core.replay.verify, near,
      { threads = 2 }), at_most = 0.40 },
  }, { rounds = 5 })
  frame.per_call("mode near the end, in one process",
    timed(core.replay.fold, near, "mode"),
    { calls = 5, batches = 9, at_most = 15000 })
  local program = os.getenv("DSH_BUILD") or "build"
  frame.per_call("dshsh mode, the whole process", function()
    lib.spawn({ program .. "/dshsh", "mode", near })
  end, { calls = 3, batches = 9 })
  for _, case in ipairs({
    { "mode near the end", 'assert(replay.fold("' .. near .. '", "mode"))' },
    { "full verification, two threads", 'assert(replay.verify("' .. near
      .. '", {threads = 2}))' } }) do
    local kb = peak(case[2])
    print(("  %-38s %9.1f MB resident at most  target 10.0: %s"):format(
      case[1], kb / 1024, kb <= 10240 and "met" or "MISSED"))
  end
end

-- One event of some 300 bytes; the bare loop writes what ours would.
local function appends()
  local data = '{"text":"' .. ("a few words of text, "):rep(12) .. '"}'
  local w <close> = assert(core.logwrite.create(dir .. "/a.jsonl.zstd",
    '{"type":"session","version":0,"id":"b","createdAt":1,'
    .. '"delegationDepth":0}'))
  assert(w:append({ { type = "x", data = data } }))
  local bytes = ("b"):rep(130)
  frame.ratios("an append", {
    { "bare write and fsync", function()
      return lib.sync_append(dir .. "/bare", bytes)
    end },
    { "one event", timed(w.append, w, { { type = "x", data = data } }),
      at_most = 1.10 },
  }, { rounds = 400 })
end

local ok, err = pcall(function()
  figures()
  appends()
end)
sh("rm -rf %s", dir)
assert(ok, err)
