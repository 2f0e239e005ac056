-- README.md shows a real session: the same script made it.
local h = require("helpers")
local screen = require("screen")

describe("the transcript in README.md", function()
  it("is what the prompt shows", function()
    if not screen.available() then
      return pending("tmux is not installed")
    elseif not h.exists("README.md") then
      return pending("README.md is not part of this copy")
    elseif h.exec({ h.dshsh_path, "run", "--mode", "read-only", "--backend",
      "bwrap", "--json", "--", "true" }).out:find('"enforcement": "full"', 1,
      true) == nil then
      return pending("bwrap is not fully usable here")
    end
    if #h.scratch().base > 40 then
      return pending("the scratch directory's name is too long for the lines")
    end
    local readme = h.read("README.md")
    local shown = readme:match("\n```\n(dshsh %d.-)```\n")
    assert.equal(shown, require("transcript").make())
  end)
end)
