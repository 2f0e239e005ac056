--- helpers.lua: what the specs share.
--
--   local h = require("helpers")
--   describe("x", function()
--     h.guard()                      -- leak check around every `it` here
--     it("...", function()
--       local d = h.scratch()        -- {W=, O=, base=}: W the workspace, O
--                                    -- outside it, neither under a temp
--                                    -- root; removed after the test
--       local r = h.dshsh("run", "--", "true")   -- {code, signal, out, err}
--     end)
--   end)
--
-- The build tree is $DSH_BUILD, or build/ in this checkout.
local lfs = require("lfs")

local M = {}

local function canonical(path)
  local p = assert(io.popen("cd '" .. path .. "' && pwd -P"))
  local line = p:read("l")
  p:close()
  return line
end

M.top = canonical(".")
M.build = os.getenv("DSH_BUILD") or M.top .. "/build"
M.dshsh_path = M.build .. "/dshsh"
M.launcher = M.build .. "/landlock-run"
M.hostmask = M.build .. "/test/hostmask"

--- One word for the shell, quoted.
function M.quote(word)
  return "'" .. tostring(word):gsub("'", [['\'']]) .. "'"
end

local function quoted(words)
  local out = {}
  for i, word in ipairs(words) do
    out[i] = M.quote(word)
  end
  return table.concat(out, " ")
end

function M.read(path)
  local f = io.open(path, "rb")
  if not f then
    return nil
  end
  local text = f:read("a")
  f:close()
  return text
end

function M.write(path, text)
  local f = assert(io.open(path, "wb"))
  assert(f:write(text))
  assert(f:close())
end

function M.exists(path)
  return lfs.symlinkattributes(path, "mode") ~= nil
end

-- The user's numbers, without a module for them.
local function uid()
  for line in io.lines("/proc/self/status") do
    local id = line:match("^Uid:%s+%d+%s+(%d+)")
    if id then
      return tonumber(id)
    end
  end
end
M.uid = uid()
M.root = M.uid == 0

--- Runs argv (a list) by the shell; opts {env=, stdin=, cwd=, limit=s}.
-- Returns {code=, signal=, out=, err=}; a run over its limit is killed and
-- raises. env replaces nothing: it is added.
function M.exec(argv, opts)
  opts = opts or {}
  local out, errf, inf = os.tmpname(), os.tmpname(), os.tmpname()
  M.write(inf, opts.stdin or "")
  local words = { "timeout", "-s", "KILL", tostring(opts.limit or 60) }
  local cmd = quoted(words) .. " " .. quoted(argv)
  if opts.env then
    local pairs_ = { "env" }
    for k, v in pairs(opts.env) do
      pairs_[#pairs_ + 1] = k .. "=" .. v
    end
    cmd = quoted(pairs_) .. " " .. cmd
  end
  if opts.cwd then
    cmd = "cd " .. M.quote(opts.cwd) .. " && " .. cmd
  end
  local _, how, code = os.execute(("{ %s ; } <%s >%s 2>%s"):format(cmd, inf,
    out, errf))
  local r = { out = M.read(out), err = M.read(errf) }
  os.remove(out)
  os.remove(errf)
  os.remove(inf)
  if how == "exit" then
    r.code = code
  else
    r.signal = code
  end
  assert(code ~= 137 or opts.may_be_killed,
    "killed (time limit?): " .. cmd .. "\n" .. r.err)
  return r
end

--- Runs build/dshsh with these words.
function M.dshsh(...)
  return M.exec({ M.dshsh_path, ... })
end

--- Which backends this host has at all: names, for loops in specs. A backend
-- is listed when its program is there; whether it works is the spec's matter.
function M.backends()
  local list = {}
  if M.exists("/usr/bin/bwrap") then
    list[#list + 1] = "bwrap"
  end
  list[#list + 1] = "landlock"
  return list
end

-- scratch ------------------------------------------------------------------

-- A place that no default temp root covers: $HOME unless that is itself
-- under /tmp, else /var/tmp.
local function scratch_base()
  local home = os.getenv("HOME")
  for _, dir in ipairs({ home or "/nonexistent", "/var/tmp" }) do
    local real = lfs.attributes(dir, "mode") == "directory" and canonical(dir)
    if real and real ~= "/" and not (real .. "/"):match("^/tmp/") then
      local probe = real .. "/.dshsh-probe-" .. tostring(math.random(1 << 40))
      if lfs.mkdir(probe) then
        lfs.rmdir(probe)
        return real
      end
    end
  end
  error("no place for scratch directories outside /tmp")
end

local made = {}

--- {base=, W=, O=}: fresh directories, removed after the test (h.guard) or
-- by h.clean().
function M.scratch()
  local p = assert(io.popen("mktemp -d " .. M.quote(scratch_base()
    .. "/dshsh-spec.XXXXXXXX")))
  local base = p:read("l")
  p:close()
  assert(base and base ~= "", "mktemp failed")
  made[#made + 1] = base
  local d = { base = base, W = base .. "/w", O = base .. "/o" }
  assert(lfs.mkdir(d.W))
  assert(lfs.mkdir(d.O))
  return d
end

function M.clean()
  for _, dir in ipairs(made) do
    os.execute("chmod -R u+rwx " .. M.quote(dir) .. " 2>/dev/null; rm -rf "
      .. M.quote(dir))
  end
  made = {}
end

-- users --------------------------------------------------------------------

--- argv that runs argv as uid 65534 (root only; home a directory it owns).
function M.as_nobody(argv, home)
  local words = { "setpriv", "--reuid=65534", "--regid=65534",
    "--clear-groups", "env", "HOME=" .. (home or "/nonexistent") }
  return table.move(argv, 1, #argv, #words + 1, words)
end

--- Runs Lua source as uid 65534 in this tree's environment; the module path
-- is this tree's. Returns what exec returns.
function M.lua_as_nobody(source, opts)
  opts = opts or {}
  local env = { LUA_PATH = M.top .. "/lua/?.lua;" .. M.top
    .. "/lua/?/init.lua;" .. M.top .. "/spec/?.lua;;",
    LUA_CPATH = M.top .. "/lua/?.so;;" }
  return M.exec(M.as_nobody({ "lua5.4", "-e", source }, opts.home),
    { env = env, cwd = opts.cwd, stdin = opts.stdin, limit = opts.limit })
end

--- argv under a masked host: {landlock = "ENOSYS"|"EOPNOTSUPP"|"EPERM",
-- abi = N, userns = false, namespaces = false, listener = true}; see
-- spec/hostmask.c.
function M.masked(opts, argv)
  local words = { M.hostmask }
  if opts.landlock then
    words[#words + 1] = "--landlock-errno"
    words[#words + 1] = opts.landlock
  end
  if opts.abi then
    words[#words + 1] = "--landlock-abi"
    words[#words + 1] = tostring(opts.abi)
  end
  if opts.userns == false then
    words[#words + 1] = "--no-userns"
  end
  if opts.namespaces == false then
    words[#words + 1] = "--no-namespaces"
  end
  if opts.listener then
    words[#words + 1] = "--listener"
  end
  words[#words + 1] = "--"
  return table.move(argv, 1, #argv, #words + 1, words)
end

-- leaks --------------------------------------------------------------------

-- Descriptors as "number target". The one of the listing itself is left out.
local function descriptors()
  local set = {}
  for name in lfs.dir("/proc/self/fd") do
    local target = tonumber(name)
      and lfs.symlinkattributes("/proc/self/fd/" .. name, "target")
    if target and not target:match("^/proc/%d+/fd$") then
      set[name .. " " .. target] = true
    end
  end
  return set
end

local function children()
  local set = {}
  for task in lfs.dir("/proc/self/task") do
    local text = tonumber(task)
      and M.read("/proc/self/task/" .. task .. "/children") or ""
    for pid in text:gmatch("%d+") do
      set[pid] = true
    end
  end
  return set
end

local function mounts()
  local set = {}
  for line in io.lines("/proc/self/mountinfo") do
    set[line:match("^%S+ %S+ %S+ (.-) %- ") or line] = true
  end
  return set
end

local function entries(dir)
  local set = {}
  if dir and lfs.attributes(dir, "mode") == "directory" then
    for name in lfs.dir(dir) do
      set[name] = true
    end
  end
  return set
end

-- The test run's own temp directory, when it was given one (spec/run.sh);
-- a shared /tmp belongs to others too.
local own_temp = os.getenv("DSH_TEST_TMP")

function M.snapshot()
  return { descriptor = descriptors(), child = children(), mount = mounts(),
    ["temp entry"] = entries(own_temp), cwd = { [lfs.currentdir()] = true } }
end

-- The core keeps one background thread with a few descriptors of its own
-- for the whole process; they appear once, at the first run.
local service = { budget = 8 }

local function is_service(key)
  if service[key] then
    return true
  end
  if (key:match("anon_inode:") or key:match(" pipe:")
    or key:match(" socket:")) and service.budget > 0 then
    service.budget = service.budget - 1
    service[key] = true
    return true
  end
  return false
end

--- What `now` has and `before` had not, as "kind: key" lines. first: the
-- process's first run happened in between.
function M.leaks(before, now, first)
  local found = {}
  for kind, set in pairs(now) do
    for key in pairs(set) do
      if not before[kind][key]
        and not (kind == "descriptor" and first and is_service(key)) then
        found[#found + 1] = kind .. ": " .. key
      end
    end
  end
  table.sort(found)
  return found
end

-- busted gives its words only to the spec file itself: take them from the
-- environment of the caller.
local function busted_words()
  local caller = debug.getinfo(3, "f").func
  for i = 1, 255 do
    local name, value = debug.getupvalue(caller, i)
    if name == "_ENV" then
      return value
    end
  end
  return _G
end

local runs_seen = false

--- Around every test of the enclosing describe: no descriptor, child, mount,
-- working directory or temp entry may stay; scratch directories are removed.
function M.guard()
  local before
  local words = busted_words()
  words.before_each(function()
    collectgarbage()
    before = M.snapshot()
  end)
  words.after_each(function()
    M.clean()
    collectgarbage()
    collectgarbage()
    local found
    for _ = 1, 20 do -- a killed child is reaped a moment later
      found = M.leaks(before, M.snapshot(), not runs_seen)
      if #found == 0 then
        break
      end
      os.execute("sleep 0.05")
    end
    if package.loaded["dsh.core"] then
      local extra = M.leaks(before, M.snapshot(), false)
      runs_seen = runs_seen or #extra > 0
    end
    assert(#found == 0, "left behind: " .. table.concat(found, "; "))
  end)
end

return M
