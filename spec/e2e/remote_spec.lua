-- examples/remote.lua over a real second boundary: a chroot of its own, with
-- bash, a few programs and the static launcher.
local h = require("helpers")
local dsh = require("dsh")

local PROGRAMS = { "/bin/bash", "/bin/sh", "/bin/cat", "/bin/stty",
  "/bin/ls", "/bin/touch" }

-- Copies programs and the libraries that ldd names.
local function build(root)
  local lines = { "set -e", "mkdir -p " .. root .. "/work " .. root
    .. "/etc " .. root .. "/bin " .. root .. "/dev" }
  for _, program in ipairs(PROGRAMS) do
    lines[#lines + 1] = ([[
      cp -L %s %s/bin/
      for l in $(ldd %s | grep -o '/[^ )]*'); do
        mkdir -p %s$(dirname $l); cp -Ln $l %s$l; done]]):format(program,
      root, program, root, root)
  end
  lines[#lines + 1] = ("cp %s %s/bin/"):format(h.launcher, root)
  local r = h.exec({ "sh", "-c", table.concat(lines, "\n") })
  return r.code == 0, r.err
end

-- The command that leads there; without root a user namespace helps.
local function door(root)
  if h.root then
    return { "/usr/sbin/chroot", root }
  end
  return { "/usr/bin/unshare", "-r", "/usr/sbin/chroot", root }
end

local function open(d)
  package.path = h.top .. "/examples/?.lua;" .. package.path
  return dsh.open({ env = { DSH_HOME = "/nonexistent/dsh" },
    mode = "workspace-write", workspace_root = d.W, patches = { {
      { id = "bash-sandbox", disabled = true, optional = true },
      { id = "fs-sandbox", disabled = true, optional = true },
      { id = "terminal", disabled = true },
      { insert = { { id = "remote", name = "remote", config = {
        command = door(d.W .. "/far"), workspace = "/work" } } } },
    } } })
end

describe("shell, fs and terminal elsewhere", function()
  h.guard()
  local saved = package.path
  after_each(function() package.path = saved end)

  local function ready(d)
    local ok, err = build(d.W .. "/far")
    if not ok then
      pending("cannot build a chroot here: " .. err)
      return false
    end
    local words = door(d.W .. "/far")
    words[#words + 1] = "/bin/bash"
    words[#words + 1] = "-c"
    words[#words + 1] = "exit 0"
    if h.exec(words).code ~= 0 then
      pending("no chroot for this user here")
      return false
    end
    return true
  end

  it("run in the other place, under its own confinement", function()
    local d = h.scratch()
    if not ready(d) then
      return
    end
    local far = d.W .. "/far"
    local ctx <close> = assert(open(d))
    local r = assert(ctx.shell:run({ command = "echo hi > /work/a; pwd; "
      .. "ls -d /proc 2>/dev/null; echo x > /etc/b" }))
    assert.equal("/work\n", r.stdout.text)
    assert.equal("hi\n", h.read(far .. "/work/a"))
    assert.is_false(h.exists(far .. "/etc/b"))
    assert.equal(1, r.exit_code)
    assert.equal("workspace-write", r.sandbox.mode)
    assert.is_true(r.sandbox.denied)
    r = assert(ctx.shell:run({ command = "echo no > /work/c",
      mode = "read-only" }))
    assert.equal(1, r.exit_code)
    assert.is_false(h.exists(far .. "/work/c"))

    assert.equal("hi\n", ctx.fs:read_text("/work/a"))
    assert(ctx.fs:write_text("/work/f", "text ü\n"))
    assert.equal("text ü\n", h.read(far .. "/work/f"))
    local ok, err = ctx.fs:write_text("/etc/b", "x")
    assert.is_nil(ok)
    assert.equal("FS_SANDBOX_DENIED", err.code)
    ok, err = ctx.fs:write_text("/work/g", "x", { mode = "read-only" })
    assert.is_nil(ok)
    assert.equal("FS_SANDBOX_DENIED", err.code)
    assert.is_false(h.exists(far .. "/work/g"))

    local t <close> = assert(ctx.terminal:open())
    r = assert(t:run({ command = "cd /; X=1; echo t > /work/t",
      timeout_ms = 20000 }))
    assert.equal(0, r.exit_code)
    assert.equal("t\n", h.read(far .. "/work/t"))
    assert.equal("/ 1\n", assert(t:run({ command = "echo $PWD $X",
      timeout_ms = 20000 })).output.text)
    assert.equal(1, assert(t:run({ command = "echo x > /etc/b",
      timeout_ms = 20000 })).exit_code)
    assert.is_false(h.exists(far .. "/etc/b"))
  end)

  it("is refused when its launcher is not there", function()
    local d = h.scratch()
    if not ready(d) then
      return
    end
    h.write(d.W .. "/far/bin/landlock-run", "#!/bin/bash\n"
      .. "echo 'landlock-run: nothing here' >&2; exit 125\n")
    local ctx <close> = assert(open(d))
    local r, err = ctx.shell:run({ command = "echo x > /work/x" })
    assert.is_nil(r)
    assert.equal("SANDBOX_UNAVAILABLE", err.code)
    assert.is_false(h.exists(d.W .. "/far/work/x"))
  end)

  it("only as a whole", function()
    local d = h.scratch()
    package.path = h.top .. "/examples/?.lua;" .. package.path
    local ctx, err = dsh.open({ env = { DSH_HOME = "/nonexistent" },
      workspace_root = d.W, rows = {
        { id = "sandbox", name = "dsh.sandbox_local" },
        { id = "sandbox-policy", name = "dsh.sandbox_policy" },
        { id = "terminal", name = "dsh.terminal" },
        { id = "remote", name = "remote", config = { command = { "/x" },
          workspace = "/work" } },
      } })
    assert.is_nil(ctx)
    assert.truthy(err.message:find("provides 'terminal'", 1, true))
  end)
end)
