-- Power cuts of a guest. Slow (some 5 s a cut), and it needs qemu and a guest
-- kernel, so only on request: DSH_GUEST=DIR, an unpacked Debian linux-image
-- package, e.g. `apt-get download linux-image-6.1.0-57-cloud-amd64` and
-- `dpkg-deb -x`. DSH_CUTS is their number (20).
local h = require("helpers")

describe("power cuts", function()
  h.guard()

  it("lose nothing that was acknowledged", function()
    local guest = os.getenv("DSH_GUEST")
    if not guest then
      pending("slow, and needs a guest kernel: set DSH_GUEST")
      return
    end
    local r = h.exec({ "sh", h.top .. "/spec/e2e/power_cut.sh", guest,
      os.getenv("DSH_CUTS") or "20" }, { env = { DSH_BUILD = h.build },
      limit = 600 })
    assert.equal(0, r.code, r.out .. r.err)
  end)
end)
