-- The command and the prompt: what dshsh itself adds, warm and cold.
local core = require("dsh.core")
local dsh = require("dsh")
local frame = require("frame")
local lib = frame.lib

local BUILD = os.getenv("DSH_BUILD") or "build"
local DSHSH = core.sys.realpath(BUILD .. "/dshsh")
local EXTRA_MS, UP_MS = 5, 30

local tmp = io.popen("mktemp -d"):read("l")
local env = core.sys.environ()
env.DSH_HOME = tmp .. "/home"

local function with_home(home, words)
  local argv = { "/usr/bin/env", "DSH_HOME=" .. home }
  return table.move(words, 1, #words, 3, argv)
end

for _, backend in ipairs({ "landlock", "bwrap" }) do
  local ctx <close> = assert(dsh.open({ mode = "read-only",
    workspace_root = tmp, backend = backend }))
  local plan = ctx.sandbox:confine({ "/bin/bash", "-c", "true" },
    { mode = "read-only", workspace_root = tmp })
  if plan then
    local words = { DSHSH, "--mode", "read-only", "--workspace", tmp,
      "--backend", backend, "-c", "true" }
    local warm = with_home(env.DSH_HOME, words)
    local bare = with_home(env.DSH_HOME, plan.argv)
    local medians = frame.medians("dshsh -c true, " .. backend, {
      { "bash -c true, confined", function()
        return lib.spawn(bare)
      end },
      { "dshsh -c true, warm", function()
        return lib.spawn(warm)
      end },
    }, { rounds = 40 })
    local limit = 1.5 * medians[1] + EXTRA_MS * 1e6
    print(("  %-38s %9.1f us  target %.1f us: %s"):format(
      "dshsh -c true, warm", medians[2] / 1000, limit / 1000,
      medians[2] <= limit and "met" or "MISSED"))
    frame.medians("dshsh -c true, cold (probes), " .. backend, {
      { "dshsh -c true, cold", function()
        os.execute("rm -rf '" .. tmp .. "/cold'")
        return lib.spawn(with_home(tmp .. "/cold", words))
      end } }, { rounds = 5 })
  end
end

-- Nanoseconds from the start to the first prompt on a terminal.
local function prompt_up(home)
  local list = {}
  for name, value in pairs(env) do
    list[#list + 1] = name .. "=" .. (name == "DSH_HOME" and home or value)
  end
  local begin = lib.now()
  local run <close> = assert(core.run.start({ argv = { DSHSH, "--mode",
    "read-only", "--workspace", tmp }, confined = false }, { env = list,
    pty = true, rows = 24, cols = 80, cwd = tmp, timeout_ms = 20000 }))
  local seen = ""
  repeat
    local more = run:read(1)
    seen = seen .. more
    if more == "" then
      assert(run:wait(1) ~= "finished", seen)
    end
  until seen:find("%[read%-only%]")
  return lib.now() - begin
end

local up = frame.medians("the prompt is up", {
  { "warm", function()
    return prompt_up(env.DSH_HOME)
  end } }, { rounds = 15 })[1]
print(("  target %d ms: %s"):format(UP_MS, up <= UP_MS * 1e6 and "met"
  or "MISSED"))
frame.medians("the prompt is up, cold (probes)", { { "cold", function()
  os.execute("rm -rf '" .. tmp .. "/cold'")
  return prompt_up(tmp .. "/cold")
end } }, { rounds = 3 })
os.execute("rm -rf '" .. tmp .. "'")
