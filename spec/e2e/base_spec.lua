-- The profiles that come with dsh open as they stand.
local h = require("helpers")
local dsh = require("dsh")

local function names(ctx)
  local list = {}
  for _, name in ipairs({ "sandbox", "sandbox_policy", "fs", "shell",
    "terminal", "permission", "approval", "sessions", "settings", "tool_bash",
    "tool_pwsh", "tool_jobs", "tool_fs" }) do
    if ctx[name] then
      list[#list + 1] = name
    end
  end
  return table.concat(list, " ")
end

local function open(d, opts)
  opts.workspace_root = d.W
  opts.env = { DSH_HOME = d.O .. "/home", HOME = d.O }
  return assert(dsh.open(opts))
end

describe("the base profile", function()
  h.guard()

  it("opens with every service", function()
    local d = h.scratch()
    local ctx <close> = open(d, { profile = "base" })
    assert.equal("sandbox sandbox_policy fs shell terminal permission "
      .. "approval sessions settings tool_bash tool_jobs tool_fs",
      names(ctx))
    assert.equal("workspace-write", ctx.sandbox_policy.default_mode)
    assert.same({ "build", "danger-full-access", "read-only",
      "workspace-write" }, ctx.permission:names())
    assert.same({}, ctx.warnings)
    local r = assert(ctx.shell:run({ command = "echo a > f; cat f",
      workdir = d.W }))
    assert.equal("a\n", r.stdout.text)
  end)

  it("has a build preset that opens the toolchains' caches", function()
    local d = h.scratch()
    local cache = d.O .. "/.cache"
    local lfs = require("lfs")
    assert(lfs.mkdir(cache) and lfs.mkdir(cache .. "/pip"))
    local ctx <close> = open(d, { profile = "base" })
    local s <close> = assert(ctx.sessions:create({ cwd = d.W }))
    local function touch(path)
      return assert(ctx.sandbox:run({ "/usr/bin/touch", path },
        { session = s })).exit_code == 0
    end
    assert.is_false(touch(cache .. "/pip/x"))
    assert(ctx.permission:set(s, "build"))
    assert.is_true(touch(cache .. "/pip/x"))
    assert.is_false(touch(cache .. "/y"))
    assert.is_false(touch(d.O .. "/y"))
    assert(ctx.permission:set(s, "workspace-write"))
    assert.is_false(touch(cache .. "/pip/z"))
  end)

  it("opens on Windows, by name, with PowerShell alone", function()
    local d = h.scratch()
    h.write(d.O .. "/pwsh", "#!/bin/sh\nexit 0\n")
    os.execute("chmod 755 " .. d.O .. "/pwsh")
    local ctx <close> = open(d, { profile = "base", platform = "windows",
      set = { "pwsh-sandbox.path=" .. d.O .. "/pwsh" } })
    assert.equal("sandbox sandbox_policy fs shell terminal permission "
      .. "approval sessions settings tool_pwsh tool_jobs tool_fs",
      names(ctx))
    assert.same({ "build", "danger-full-access", "read-only",
      "workspace-write" }, ctx.permission:names())
  end)
end)

describe("the headless profile", function()
  h.guard()

  it("opens without a terminal, and asks nobody", function()
    local d = h.scratch()
    local ctx <close> = open(d, { profile = "headless" })
    assert.equal("sandbox sandbox_policy fs shell permission approval "
      .. "sessions settings tool_bash tool_jobs tool_fs", names(ctx))
    assert.equal("read-only", ctx.sandbox_policy.default_mode)
    assert.equal("never", ctx.approval:policy(nil))
  end)
end)
