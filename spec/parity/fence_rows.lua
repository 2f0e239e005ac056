-- The same targets through the fence and through a shell, under one backend:
--   fence_rows.lua BACKEND BASE
-- prints one line a row: policy, target, shell, fence, expected, each verdict
-- "written" or "refused", judged by what is on the disk. $TMPDIR is BASE/t.
local core = require("dsh.core")
local dsh = require("dsh")
local lfs = require("lfs")

local backend, base = arg[1], arg[2]
local W, O, T = base .. "/w", base .. "/o", base .. "/t"

local function slurp(path)
  local f = io.open(path, "rb")
  local text = f and f:read("a")
  if f then
    f:close()
  end
  return text
end

local function spill(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

for _, dir in ipairs({ W, W .. "/dir", W .. "/.git", W .. "/.git/hooks",
  W .. "x", O, O .. "/deep" }) do
  assert(lfs.mkdir(dir) or lfs.attributes(dir, "mode") == "directory")
end
for link, target in pairs({ [W .. "/l"] = "old", [W .. "/lo"] = "../o/old",
  [W .. "/ld"] = "../o", [O .. "/li"] = "../w/old",
  [base .. "/lk"] = "o/deep" }) do
  assert(lfs.link(target, link, true))
end

local unique = ("dsh-fence-%s"):format(base:match("[^/.]+$"))

-- name, what is written to, where the bytes would be, who grants it:
-- ws: workspace-write; always: no confined mode grants it.
local TARGETS = {
  { "inside, new", W .. "/new", W .. "/new", "ws" },
  { "inside, old", W .. "/old", W .. "/old", "ws" },
  { "inside, deeper", W .. "/dir/new", W .. "/dir/new", "ws" },
  { "outside, new", O .. "/new", O .. "/new" },
  { "outside, old", O .. "/old", O .. "/old" },
  { "a name that begins alike", W .. "x/new", W .. "x/new" },
  { "protected", W .. "/.git/hooks/x", W .. "/.git/hooks/x", "ws" },
  { "/tmp", "/tmp/" .. unique, "/tmp/" .. unique, "ws" },
  { "$TMPDIR", T .. "/new", T .. "/new", "ws" },
  { "link inside", W .. "/l", W .. "/old", "ws" },
  { "link to outside", W .. "/lo", O .. "/old" },
  { "under a link to outside", W .. "/ld/new", O .. "/new" },
  { "link from outside in", O .. "/li", W .. "/old", "ws" },
  { "dot dot inside", W .. "/dir/../new", W .. "/new", "ws" },
  { "dot dot to outside", W .. "/../o/new", O .. "/new" },
  { "dot dot after a link", W .. "/ld/../new", base .. "/new" },
  { "missing parents", W .. "/no/such/new", W .. "/no/such/new", "never" },
  { "missing parents outside", O .. "/no/new", O .. "/no/new", "never" },
  { "the root itself", W, W, "never" },
}

local POLICIES = {
  { "read-only", { mode = "read-only", workspace_root = W } },
  { "workspace-write", { mode = "workspace-write", workspace_root = W } },
  { "full", { mode = "danger-full-access", workspace_root = W } },
  { "grant of a directory", { mode = "read-only", workspace_root = W,
    extra_roots = { O } } },
  { "grant of a file", { mode = "read-only", workspace_root = W,
    extra_roots = { O .. "/old" } } },
  { "protected", { mode = "workspace-write", workspace_root = W,
    protected = { ".git/hooks" } } },
  { "root link/..", { mode = "workspace-write",
    workspace_root = base .. "/lk/.." } },
}

local function within(path, dir)
  return path == dir or path:sub(1, #dir + 1) == dir .. "/"
end

local function expected(name, t)
  local real, who = t[3], t[4]
  if who == "never" then
    return false
  elseif name == "full" then
    return true
  elseif name == "grant of a directory" then
    return within(real, O)
  elseif name == "grant of a file" then
    return real == O .. "/old"
  elseif name == "protected" then
    return who == "ws" and t[1] ~= "protected"
  elseif name == "root link/.." then
    return within(real, O) or t[1] == "/tmp" or t[1] == "$TMPDIR"
  end
  return name == "workspace-write" and who == "ws"
end

local ctx = assert(dsh.open { mode = "read-only", workspace_root = W,
  backend = backend })

local function fresh()
  for _, t in ipairs(TARGETS) do
    if t[3]:match("/old$") then
      spill(t[3], "old ")
    else
      os.remove(t[3]) -- the root itself is not empty and stays
    end
  end
end

-- One shell for all targets, each adding its number where it may.
local function by_shell(policy)
  local argv = { "/bin/sh", "-c", 'n=0; for t in "$@"; do n=$((n + 1)); '
    .. '{ printf "<%s>" $n >>"$t"; } 2>/dev/null; done; true', "sh" }
  for i, t in ipairs(TARGETS) do
    argv[4 + i] = t[2]
  end
  fresh()
  local r, err = ctx.sandbox:run(argv, { policy = policy })
  local out = {}
  for i, t in ipairs(TARGETS) do
    local text = slurp(t[3]) or ""
    out[i] = not r and "no such policy: " .. err.code
      or text:find("<" .. i .. ">", 1, true) and "written" or "refused"
  end
  return out
end

local function by_fence(policy, t, walk)
  fresh()
  core.fence.write(t[2], "evil", { policy = policy, no_openat2 = walk })
  return slurp(t[3]) == "evil" and "written" or "refused"
end

for _, p in ipairs(POLICIES) do
  local shell = by_shell(p[2])
  for i, t in ipairs(TARGETS) do
    local fence, walk = by_fence(p[2], t, false), by_fence(p[2], t, true)
    print(table.concat({ p[1], t[1], shell[i], fence == walk and fence
      or "differs", expected(p[1], t) and "written" or "refused" }, "\t"))
  end
end
fresh()
os.remove("/tmp/" .. unique)
ctx:close()
