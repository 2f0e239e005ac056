-- The list of writable roots says what a command can write: random trees,
-- links and policies, each path tried for real on every backend.
local core = require("dsh.core")
local h = require("helpers")
local lfs = require("lfs")
local runner = require("dsh.runner")

local ROUNDS, PATHS = 8, 30

-- Directories d0 … dn below base, some links between them.
local function make_tree(base)
  local dirs = { base }
  for i = 1, 12 do
    local parent = dirs[math.random(#dirs)]
    local path = ("%s/d%d"):format(parent, i)
    assert(lfs.mkdir(path))
    dirs[#dirs + 1] = path
  end
  local links = {}
  for i = 1, 4 do
    local path = ("%s/l%d"):format(dirs[math.random(#dirs)], i)
    assert(lfs.link(dirs[math.random(#dirs)], path, true))
    links[i] = path
  end
  return dirs, links
end

local function pick(list)
  return list[math.random(#list)]
end

local function some(list, most)
  local out = {}
  for i = 1, math.random(0, most) do
    out[i] = pick(list)
  end
  return out
end

local function random_policy(dirs, links, protect)
  local places = table.move(links, 1, #links, #dirs + 1,
    table.move(dirs, 1, #dirs, 1, {}))
  return { mode = math.random(4) == 1 and "read-only" or "workspace-write",
    workspace_root = pick(places), extra_roots = some(places, 2),
    protected = protect and some(dirs, 2) or nil }
end

-- name -> did the file appear? One run tries them all.
local function attempt(provider, policy, paths, dir)
  local confined, err = provider:confine({ "sh", "-c", [[
    while read -r p; do true > "$p"; done 2>/dev/null; true]] }, policy)
  if not confined then
    return nil, err
  end
  local r = assert(runner.run(confined, { cwd = dir, env = {},
    stdin = table.concat(paths, "\n") .. "\n" }))
  assert.equal(0, r.exit_code)
  local made = {}
  for _, path in ipairs(paths) do
    made[path] = h.exists(path)
  end
  return made
end

describe("what a policy grants is what can be written", function()
  h.guard()
  local seed = os.time()

  for _, backend in ipairs(h.backends()) do
    it("on " .. backend, function()
      local p <close> = assert(core.confine.provider({ backend = backend }))
      if not p:confine({ "true" }, { mode = "read-only",
        workspace_root = "/" }) then
        return pending(backend .. " is not usable here")
      end
      math.randomseed(seed)
      local tried = 0
      for round = 1, ROUNDS do
        local d = h.scratch()
        local dirs, links = make_tree(d.W)
        local policy = random_policy(dirs, links, round % 2 == 0)
        local paths, seen = {}, {}
        for i = 1, PATHS do
          local dir = math.random(3) == 1 and pick(links) or pick(dirs)
          paths[i] = ("%s/f%d"):format(dir, i)
          seen[i] = core.sys.realpath(dir) .. "/f" .. i
        end
        local made, err = attempt(p, policy, paths, d.base)
        if made then
          for i, path in ipairs(paths) do
            local want = core.confine.writable(policy, seen[i])
            assert(want == made[path], ("seed %d round %d: %s: %s, made: %s")
              :format(seed, round, path, want, made[path]))
            tried = tried + 1
          end
        else
          assert.equal("POLICY_UNSUPPORTED", err.code)
          for _, path in ipairs(paths) do
            assert.is_false(h.exists(path))
          end
        end
      end
      assert(tried > 0, "every policy was refused")
    end)
  end
end)
