-- A file that a confined shell may write, the fence writes, and no other;
-- under each backend, as this user (the suite runs as two). What the fence
-- refuses beyond that it names.
local h = require("helpers")
local core = require("dsh.core")
local files = require("dsh.fs_files")

local ROWS = 7 * 19

for _, backend in ipairs(h.backends()) do
  describe("fence and shell under " .. backend, function()
    h.guard()

    it("give the same verdict for every target", function()
      local p <close> = assert(core.confine.provider({ backend = backend }))
      local found = assert(p:probe())[1]
      if not found.usable then
        pending(backend .. ": " .. tostring(found.cause))
        return
      end
      local d = h.scratch()
      os.execute("mkdir " .. d.base .. "/t")
      local r = h.exec({ "lua5.4", h.top .. "/spec/parity/fence_rows.lua",
        backend, d.base }, { env = { TMPDIR = d.base .. "/t",
          LUA_PATH = package.path, LUA_CPATH = package.cpath } })
      assert.equal(0, r.code, r.err)
      local rows, wrong, unsupported = 0, {}, 0
      for policy, target, shell, fence, expected in r.out:gmatch(
        "([^\t\n]+)\t([^\t]+)\t([^\t]+)\t([^\t]+)\t([^\t\n]+)\n") do
        rows = rows + 1
        if shell == "no such policy: POLICY_UNSUPPORTED" then
          unsupported = unsupported + 1 -- refused by name: nothing has run
          shell = expected
        end
        if fence ~= expected or shell ~= expected then
          wrong[#wrong + 1] = ("%s: %s: shell %s, fence %s, expected %s")
            :format(policy, target, shell, fence, expected)
        end
      end
      assert.equal("", table.concat(wrong, "\n"))
      assert.equal(ROWS, rows)
      -- Landlock alone cannot carve a protected place out of a root.
      assert.equal(backend == "landlock" and ROWS / 7 or 0, unsupported)
    end)
  end)
end

describe("what the fence alone refuses", function()
  h.guard()

  it("is named", function()
    local d = h.scratch()
    h.write(d.O .. "/secret", "S")
    os.execute(("cd %s && ln ../o/secret hard && mkfifo pipe && ln -s gone "
      .. "dangling && ln -s /dev/null device"):format(d.W))
    local fs = files.new(function()
      return { mode = "workspace-write", workspace_root = d.W }
    end, function()
      return d.W
    end)
    for name, code in pairs({ hard = "FS_SANDBOX_DENIED",
      pipe = "FS_NOT_REGULAR", dangling = "FS_NOT_FOUND",
      device = "FS_SANDBOX_DENIED" }) do
      local ok, err = fs:write_text(name, "evil")
      assert.is_nil(ok)
      assert.equal(code, err.code, name)
    end
    assert.equal("S", h.read(d.O .. "/secret"))
  end)
end)
