-- dshsh --dump-config, as a person uses it.
local h = require("helpers")

local function dump(d, ...)
  return h.exec({ "env", "-u", "DSH_PERMISSION_MODE", "DSH_HOME=" .. d.O,
    "HOME=" .. d.O, h.dshsh_path, ... })
end

describe("dshsh --dump-config", function()
  h.guard()

  it("shows which provider serves the sandbox", function()
    local d = h.scratch()
    local r = dump(d, "--dump-config")
    assert.equal("", r.err)
    assert.equal(0, r.code)
    assert.truthy(r.out:find("\n- id: sandbox\n  name: dsh.sandbox_local\n",
      1, true))
    assert.truthy(r.out:find("- id: sandbox-policy\n", 1, true))
    assert.equal(r.out, dump(d, "config").out)
  end)

  it("applies patches in order and says where values come from", function()
    local d = h.scratch()
    h.write(d.W .. "/one.yml", "- id: sandbox-policy\n  merge:\n"
      .. "    mode: read-only\n")
    h.write(d.W .. "/two.lua", "return function(p)\n"
      .. "  p.merge('approval', { policy = 'never' })\nend\n")
    local r = dump(d, "--dump-config", "--resolved", "--patch",
      d.W .. "/one.yml", "--patch", d.W .. "/two.lua", "--set",
      "sandbox.probeTimeoutMs=250")
    assert.equal("", r.err)
    assert.truthy(r.out:find("# patched by " .. d.W .. "/one.yml:1 (merge)",
      1, true))
    assert.truthy(r.out:find("    mode: read-only # " .. d.W
      .. "/one.yml:3:11\n", 1, true))
    assert.truthy(r.out:find("    policy: never # " .. d.W .. "/two.lua:2\n",
      1, true))
    assert.truthy(r.out:find("    probeTimeoutMs: 250 # --set ", 1, true))
  end)

  it("never shows the default after a typo", function()
    local d = h.scratch()
    local cases = {
      { "- id: sandbox-polcy\n  merge: {mode: read-only}\n",
        "p.yml:1:7: id: there is no row 'sandbox-polcy'" },
      { "- id: sandbox-policy\n  merg: {mode: read-only}\n",
        "p.yml:2:3: patch entry: unknown key 'merg'" },
      { "- id: sandbox-policy\n  merge:\n    mode: read-only\n"
        .. "    mode: danger-full-access\n",
        "p.yml:4:5: duplicate key 'mode', first at line 3" },
      { "", "p.yml:1:1: a patch is empty, not a list" },
    }
    for _, case in ipairs(cases) do
      h.write(d.W .. "/p.yml", case[1])
      local r = dump(d, "--dump-config", "--patch", d.W .. "/p.yml")
      assert.equal(125, r.code)
      assert.equal("", r.out)
      assert.truthy(r.err:find("^dshsh: "))
      assert.truthy(r.err:find(case[2], 1, true), r.err)
    end
    local r = dump(d, "--dump-config", "--patch", d.W .. "/none.yml")
    assert.equal(125, r.code)
    r = dump(d, "--dump-config", "--pacth", d.W .. "/p.yml")
    assert.equal(2, r.code)
  end)

  it("refuses a bad value of the environment where it is resolved",
    function()
      if not package.searchpath("dsh.sandbox_policy", package.path) then
        return pending("the policy service is not there")
      end
      local d = h.scratch()
      local r = h.exec({ "env", "DSH_PERMISSION_MODE=all", "DSH_HOME=" .. d.O,
        h.dshsh_path, "--dump-config", "--resolved" })
      assert.equal(125, r.code)
      assert.truthy(r.err:find("base.cordis.yml:18:11: sandbox-policy.mode: "
        .. "expected one of", 1, true), r.err)
    end)

  it("composes for another platform", function()
    local d = h.scratch()
    local r = dump(d, "--dump-config", "--platform", "windows")
    assert.truthy(r.out:find("- id: pwsh-sandbox", 1, true))
    assert.truthy(r.out:find("- id: bash-sandbox\n  name: dsh.shell_bash\n"
      .. "  disabled: true\n", 1, true))
  end)

  it("reads another profile, and its own dump", function()
    local d = h.scratch()
    local r = dump(d, "--dump-config", "--profile", "headless")
    assert.equal(0, r.code)
    assert.is_nil(r.out:find("- id: terminal", 1, true))
    h.write(d.W .. "/dump.yml", r.out)
    local again = dump(d, "--dump-config", "--profile", d.W .. "/dump.yml")
    local function rows(text)
      return (text:gsub("#[^\n]*\n", ""))
    end
    assert.equal(rows(r.out), rows(again.out))
  end)

  it("starts nothing and writes nothing", function()
    local d = h.scratch()
    dump(d, "--dump-config", "--resolved")
    local lfs = require("lfs")
    local n = 0
    for _ in lfs.dir(d.O) do
      n = n + 1
    end
    assert.equal(2, n) -- "." and ".."
  end)
end)

describe("dshsh run", function()
  h.guard()

  local function mode_of(d, env, ...)
    local words = { "env", "-u", "DSH_PERMISSION_MODE",
      "DSH_HOME=" .. d.O, "HOME=" .. d.O }
    for _, word in ipairs(env) do
      words[#words + 1] = word
    end
    for _, word in ipairs({ h.dshsh_path, "run", "--workspace", d.W,
      "--json", ... }) do
      words[#words + 1] = word
    end
    words[#words + 1] = "--"
    words[#words + 1] = "/bin/true"
    local r = h.exec(words)
    local record = r.code == 0 and require("dsh.json").decode(r.out)
    return record and record.sandbox.mode, record and record.sandbox.modeFrom,
      r
  end

  it("takes its mode from the layers and says from which", function()
    local d = h.scratch()
    local patch = d.O .. "/p.yml"
    h.write(patch, "- id: sandbox-policy\n  merge: {mode: read-only}\n")
    local mode, from = mode_of(d, {})
    assert.same({ "workspace-write", "base profile" }, { mode, from })
    mode, from = mode_of(d, { "DSH_PERMISSION_MODE=read-only" })
    assert.same({ "read-only", "$DSH_PERMISSION_MODE" }, { mode, from })
    mode, from = mode_of(d, {}, "--patch", patch)
    assert.same({ "read-only", patch .. ":2" }, { mode, from })
    mode, from = mode_of(d, {}, "--patch", patch, "--mode",
      "danger-full-access")
    assert.same({ "danger-full-access", "--mode" }, { mode, from })
    h.write(d.O .. "/cordis.patch.yml", h.read(patch))
    mode, from = mode_of(d, {})
    assert.same({ "read-only", d.O .. "/cordis.patch.yml:2" }, { mode, from })
  end)

  it("runs nothing under a patch that does not fit", function()
    local d = h.scratch()
    h.write(d.W .. "/p.yml", "- id: sandbox-polcy\n  merge: {mode: "
      .. "read-only}\n")
    local r = h.dshsh("run", "--workspace", d.W, "--patch", d.W .. "/p.yml",
      "--", "/usr/bin/touch", d.W .. "/ran")
    assert.equal(125, r.code)
    assert.truthy(r.err:find("there is no row 'sandbox-polcy'", 1, true))
    assert.is_false(h.exists(d.W .. "/ran"))
  end)
end)
