--- What confinement adds to starting a trivial command: ratios of medians in
-- one interleaved run. "third party" is confine's argv spawned by anybody;
-- "run" is our own spawn with keeper, thread and status socket.
local frame = require("frame")
local core = require("dsh.core")
local lib = frame.lib

local TRUE = { "/bin/true" }
local root = core.sys.cwd() .. "/build/bench-root"
core.sys.mkdir(root, true)

local function provider(name)
  local p = assert(core.confine.provider({ backend = name }))
  local found = assert(p:probe())[1]
  return found.usable and p or nil
end

local function policy(mode)
  return { mode = mode, workspace_root = root, temp = "private",
    temp_dir = root }
end

local function third_party(p, mode)
  local argv = assert(p:confine(TRUE, policy(mode))).argv
  return function()
    return lib.spawn(argv)
  end
end

local function own_run(p, mode, opts)
  local record = assert(p:confine(TRUE, policy(mode)))
  opts.env = { "PATH=/usr/bin:/bin" }
  opts.stdout, opts.stderr = "null", "null"
  return function()
    local begin = lib.now()
    local run <close> = assert(core.run.start(record, opts))
    run:wait()
    return lib.now() - begin
  end
end

local function by_hand()
  local argv = { "/usr/bin/bwrap", "--unshare-user-try", "--unshare-ipc",
    "--unshare-pid", "--unshare-uts", "--die-with-parent", "--ro-bind", "/",
    "/", "--dev", "/dev", "--proc", "/proc", "--remount-ro", "/dev",
    "--remount-ro", "/proc", "--cap-drop", "ALL", "--as-pid-1", "--",
    "/bin/true" }
  return function()
    return lib.spawn(argv)
  end
end

local function bare()
  return lib.spawn(TRUE)
end

local landlock, bwrap = provider("landlock"), provider("bwrap")
if landlock then
  frame.ratios("Landlock against a bare posix_spawn", {
    { "bare posix_spawn", bare },
    { "read-only, third party",
      third_party(landlock, "read-only"), at_most = 1.25 },
    { "read-only, direct, without keeper",
      own_run(landlock, "read-only", { no_keeper = true }), at_most = 1.10 },
    { "read-only, run with keeper", own_run(landlock, "read-only", {}) },
    { "workspace-write, run with keeper",
      own_run(landlock, "workspace-write", {}), at_most = 2.0 },
    { "workspace-write, keeper and records",
      own_run(landlock, "workspace-write", { observe = true }) },
  }, { rounds = 300 })
else
  print("Landlock is not usable here: no figures")
end
if bwrap then
  frame.ratios("bwrap against bwrap by hand, with the same flags", {
    { "bwrap by hand", by_hand() },
    { "read-only, third party", third_party(bwrap, "read-only"),
      at_most = 1.25 },
    { "read-only, run with keeper", own_run(bwrap, "read-only", {}) },
    { "workspace-write, run with keeper",
      own_run(bwrap, "workspace-write", {}) },
  }, { rounds = 100 })
else
  print("bwrap is not usable here: no figures")
end
