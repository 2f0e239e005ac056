-- Each restriction left out on purpose: the instrument must name what opens.
local h = require("helpers")
local core = require("dsh.core")
local matrix = require("dsh.matrix")

local faulty = h.build .. "/test/landlock-run-faulty"

-- The plan of a backend, with --fault NAME for every stage of the launcher.
local function plan_with(fault, edit)
  return function(launcher, backend, mode, argv, policy)
    local p <close> = assert(core.confine.provider({ backend = backend,
      launcher = launcher }))
    policy.mode = mode
    local record, err = p:confine(argv, policy)
    if not record then
      return nil, err
    end
    local out = {}
    for i, word in ipairs(record.argv) do
      out[#out + 1] = word
      if fault and (i == 1 or word == "--inner") then
        out[#out + 1] = "--fault"
        out[#out + 1] = fault
      end
    end
    record.argv = edit and edit(out, policy) or out
    return record
  end
end

local function run(backend, only, fault, edit, modes)
  local report, err = matrix.run({ backends = { backend },
    users = { h.uid }, quick = true, only = only, modes = modes,
    program = h.build .. "/dsh-probe", launcher = faulty,
    plan = plan_with(fault, edit) })
  return assert(report, tostring(err))
end

local function effects(report, mode)
  local set = {}
  for _, gap in ipairs(matrix.gaps(report, nil, mode)) do
    set[gap.effect] = gap.reason
  end
  return set
end

local function each(backends, visit)
  for _, backend in ipairs(backends) do
    if backend ~= "bwrap" or h.exists("/usr/bin/bwrap") then
      visit(backend)
    end
  end
end

describe("a restriction left out", function()
  h.guard()

  if not h.exists(faulty) then
    pending("the launcher with faults is not built")
    return
  end

  it("is not there by itself: no fault, no gap", function()
    each({ "bwrap", "landlock" }, function(backend)
      local r = run(backend, "fchmod", nil)
      assert.equal(0, r.counts.gap, backend)
      assert.is_true(r.counts.right > 0)
    end)
  end)

  it("no seccomp program: metadata", function()
    local r = run("landlock", "chmod", "no-seccomp")
    for _, mode in ipairs(matrix.MODES) do
      local found = effects(r, mode)
      assert.is_truthy(found.metadata and found.metadata:find("fchmod"), mode)
      assert.is_truthy(found.metadata:find("stdin-fchmod", 1, true), mode)
    end
  end)

  it("no seccomp program under bwrap: metadata by descriptor", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local found = effects(run("bwrap", "-fchmod", "no-seccomp"), "read-only")
    assert.is_truthy(found.metadata)
    assert.is_truthy(found.metadata:find("stdin-fchmod", 1, true))
    assert.is_truthy(found.metadata:find("received-fchmod", 1, true))
  end)

  it("no seccomp program: io_uring", function()
    each({ "bwrap", "landlock" }, function(backend)
      local r = run(backend, "io-uring-setup", "no-seccomp")
      if r.counts.impossible > 0 then
        return
      end
      assert.is_truthy(effects(r, "read-only")["system-calls"], backend)
    end)
  end)

  it("no capability drop: capabilities, as root", function()
    if not h.root then
      return pending("only root has capabilities to keep")
    end
    local found = effects(run("landlock", "capability", "no-capdrop"),
      "read-only")
    assert.is_truthy(found.capabilities)
    found = effects(run("landlock", "mknod", "no-capdrop"),
      "workspace-write")
    assert.is_truthy(found.create and found.create:find("block"))
  end)

  it("a descriptor left open: inherited", function()
    each({ "bwrap", "landlock" }, function(backend)
      local r = run(backend, "inherited", "keep-fd")
      for _, mode in ipairs(matrix.MODES) do
        local found = effects(r, mode)
        assert.is_truthy(found.inherited, backend .. " " .. mode)
      end
    end)
  end)

  it("scope off: abstract sockets, and signals without a pid namespace",
    function()
      each({ "bwrap", "landlock" }, function(backend)
        local r = run(backend, "abstract", "scope-off", nil,
          { "read-only" })
        assert.is_truthy(effects(r, "read-only")["abstract-socket"], backend)
      end)
      local found = effects(run("landlock", "signal-", "scope-off", nil,
        { "read-only" }), "read-only")
      assert.is_truthy(found.signal)
    end)

  it("no Landlock: everything alone, stdin and late mounts under bwrap",
    function()
      local found = effects(run("landlock", "open-", "no-landlock"),
        "read-only")
      for _, effect in ipairs({ "write", "create", "truncate" }) do
        assert.is_truthy(found[effect], effect)
      end
      if h.exists("/usr/bin/bwrap") then
        found = effects(run("bwrap", "stdin-", "no-landlock"), "read-only")
        assert.is_truthy(found.stdio and found.stdio:find("reopen"))
      end
    end)

  it("no stdio rule: breaks what is granted, opens nothing", function()
    local r = run("landlock", "std", "no-stdio", nil, { "read-only" })
    assert.equal(0, r.counts.gap)
    assert.is_true(r.counts.broken > 0)
  end)

  -- The planner's side: the directory outside becomes a writable bind.
  local function bind_outside(words, policy)
    local out, outside = {}, policy.workspace_root:gsub("/w$", "/o")
    for i, word in ipairs(words) do
      if word == "--remount-ro" and words[i - 1] ~= "/dev" then
        table.move({ "--bind", outside, outside }, 1, 3, #out + 1, out)
      end
      out[#out + 1] = word
      if word == "--inner" then
        table.move({ "--rw", outside }, 1, 2, #out + 1, out)
      end
    end
    return out
  end

  it("one bind writable: write, create, metadata and the rest", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local found = effects(run("bwrap", "open-", nil, bind_outside,
      { "workspace-write" }), "workspace-write")
    for _, effect in ipairs({ "write", "create", "truncate" }) do
      assert.is_truthy(found[effect], effect)
    end
  end)

  it("one bind writable alone: the inner layer still holds", function()
    if not h.exists("/usr/bin/bwrap") then
      return pending("no bwrap here")
    end
    local function bind_only(words, policy)
      local out = {}
      local skip = false
      for _, word in ipairs(bind_outside(words, policy)) do
        if word == "--rw" and out[#out] == "--inner" then
          skip = true
        elseif skip then
          skip = false
        else
          out[#out + 1] = word
        end
      end
      return out
    end
    local r = run("bwrap", "open-", nil, bind_only, { "workspace-write" })
    assert.equal(0, r.counts.gap)
  end)
end)
