-- Files that decide a mode cannot be written from inside, wherever they lie.
local h = require("helpers")
local dsh = require("dsh")

describe("a file that decides the mode", function()
  h.guard()

  local function attempt(d, backend)
    local patch = d.W .. "/p.yml"
    h.write(patch, "- id: sandbox-policy\n  merge: {mode: workspace-write}\n")
    local ctx <close> = assert(dsh.open({ workspace_root = d.W,
      backend = backend, patches = { patch },
      settings = d.W .. "/settings.yaml",
      env = { DSH_HOME = d.O .. "/home" } }))
    assert(ctx.settings:set("permission.defaultPreset", "read-only"))
    local before = h.read(patch) .. h.read(d.W .. "/settings.yaml")
    local r, err = ctx.sandbox:run({ "/bin/sh", "-c", "cd " .. d.W .. "; "
      .. "echo x >> p.yml; echo x >> settings.yaml; rm -f p.yml; "
      .. "mv settings.yaml s; cp /bin/sh other; mv other p.yml; "
      .. "echo ok > free" })
    assert.equal(before, h.read(patch) .. h.read(d.W .. "/settings.yaml"))
    return r, err
  end

  it("on bwrap is read-only, and the rest is not", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local d = h.scratch()
    local r = assert(attempt(d, "bwrap"))
    assert.equal("workspace-write", r.sandbox.mode)
    assert.equal("ok\n", h.read(d.W .. "/free"))
  end)

  it("on Landlock is a policy that cannot be held", function()
    local d = h.scratch()
    local r, err = attempt(d, "landlock")
    assert.is_nil(r)
    assert.equal("POLICY_UNSUPPORTED", err.code)
    assert.is_false(h.exists(d.W .. "/free"))
  end)

  it("is not written through stdin either", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local d = h.scratch()
    local patch = d.W .. "/p.yml"
    local text = "- id: sandbox-policy\n  merge: {mode: workspace-write}\n"
    h.write(patch, text)
    os.execute(("DSH_HOME=%s/home build/dshsh run --backend bwrap --patch %s "
      .. "--workspace %s -- /bin/sh -c 'read first; cat; echo %s $first; "
      .. "echo x > /proc/self/fd/0' < %s > %s/said 2> %s/err"):format(d.O,
      patch, d.W, "saw", patch, d.O, d.O))
    assert.equal(text, h.read(patch))
    assert.equal("  merge: {mode: workspace-write}\n"
      .. "saw - id: sandbox-policy\n", h.read(d.O .. "/said"))
  end)
end)

describe("a Lua module", function()
  h.guard()

  it("is not taken from the directory where dshsh is started", function()
    local d = h.scratch()
    h.write(d.W .. "/planted.lua", "io.stdout:write('planted')")
    h.write(d.O .. "/p.yml", "- insert:\n    - {id: x, name: planted}\n")
    local here = io.popen("pwd"):read("l")
    os.execute(("cd %s && DSH_HOME=%s/home %s/build/dshsh run --patch "
      .. "%s/p.yml -- /bin/true > %s/said 2>&1"):format(d.W, d.O, here, d.O,
      d.O))
    local said = h.read(d.O .. "/said")
    assert.is_truthy(said:find("no such Lua module", 1, true), said)
  end)

  it("may be missing in a state directory that lies in a root", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local d = h.scratch()
    local home = d.W .. "/home"
    assert(os.execute("mkdir -m 700 " .. h.quote(home)))
    local r = h.exec({ h.dshsh_path, "--workspace", d.W, "--backend", "bwrap",
      "-c", ("cd %s && echo ok > free; touch home/settings.yaml; "
        .. "mv home other"):format(h.quote(d.W)) },
      { env = { DSH_HOME = home } })
    assert.equal("ok\n", h.read(d.W .. "/free"), r.err)
    assert.is_false(h.exists(home .. "/settings.yaml"))
    assert.is_true(h.exists(home))
  end)
end)
