local h = require("helpers")
local dsh = require("dsh")
local fake = require("fixtures.fake_session")

local function open(config, settings, env)
  local ctx, err = dsh.open({ env = env or { HOME = "/home/x" }, rows = {
    { id = "sandbox-policy", name = "fixtures.services.policy" },
    { id = "approval", name = "dsh.approval" },
    { id = "permission", name = "dsh.permission", config = config },
  }, settings = settings or {} })
  return ctx, err
end

local PRESETS = {
  ro = { sandbox = "read-only", approval = "ask" },
  ws = { sandbox = "workspace-write", approval = "ask" },
  full = { sandbox = "danger-full-access", approval = "never" },
  build = { sandbox = "workspace-write", approval = "ask",
    grants = { "/opt/a", "/opt/b" } },
}

describe("presets", function()
  h.guard()
  local ctx

  after_each(function()
    if ctx then
      ctx:close()
    end
    ctx = nil
  end)

  it("of the base profile are a table that patches change", function()
    local comp = assert(dsh.compose({ profile = "base", env = {} }))
    local presets = comp.index.permission.row.config.values.presets
    assert.same({ "read-only", "workspace-write", "danger-full-access",
      "build" }, presets.keys)
    local function pair(name)
      local v = presets.values[name].values
      return v.sandbox.text .. " " .. v.approval.text
    end
    assert.equal("read-only ask", pair("read-only"))
    assert.equal("workspace-write ask", pair("workspace-write"))
    assert.equal("danger-full-access never", pair("danger-full-access"))
  end)

  it("switch in one frame", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    assert(ctx.permission:set(s, "full"))
    assert.equal("permission/preset sandbox/mode approval/policy", s:types())
    assert.equal(1, s.frames)
    assert.equal("full", ctx.permission:current(s))
    assert.equal("danger-full-access",
      ctx.sandbox_policy:resolve({ session = s }).mode)
    assert.equal("never", ctx.approval:policy(s))
  end)

  it("write nothing when the preset stands", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    assert(ctx.permission:set(s, "build"))
    local n = #s.events
    assert(ctx.permission:set(s, "build"))
    assert.equal(n, #s.events)
    assert.equal("build", ctx.permission:current(s))
  end)

  it("that are unknown change nothing", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    local ok, err = ctx.permission:set(s, "rw")
    assert.is_nil(ok)
    assert.equal("PRESET_UNKNOWN", err.code)
    assert.equal("there is no preset 'rw' (known: build, full, ro, ws)",
      err.message)
    assert.equal("", s:types())
  end)

  it("change nothing when the log cannot be written", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    s.fail = true
    assert.is_nil((ctx.permission:set(s, "full")))
    assert.equal("read-only",
      ctx.sandbox_policy:resolve({ session = s }).mode)
  end)

  it("are custom where none matches", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    assert.equal("ro", ctx.permission:current(s))
    s:append({ { type = "approval/policy", data = { policy = "never" } } })
    assert.equal("custom", ctx.permission:current(s))
    assert(ctx.permission:set(s, "ws"))
    s:append({ { type = "sandbox/mode", data = { mode = "read-only" } } })
    assert.equal("ro", ctx.permission:current(s))
  end)

  it("cannot be called custom", function()
    local _, err = open({ presets = { custom = PRESETS.ro } })
    assert.truthy(err.message:find("cannot be called 'custom'", 1, true))
  end)

  it("bring their grants and take them along again", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    s:append({ { type = "sandbox/grant", data = { id = "mine",
      grants = { { id = "mine", path = "/mine", access = "write" } } } } })
    assert(ctx.permission:set(s, "build"))
    local paths = {}
    for i, grant in ipairs(s:grants()) do
      paths[i] = grant.path
    end
    assert.same({ "/mine", "/opt/a", "/opt/b" }, paths)
    assert.equal(2, s.frames)
    assert(ctx.permission:set(s, "ws"))
    assert.equal(1, #s:grants())
    assert.equal("/mine", s:grants()[1].path)
  end)

  it("are refused by a guard before anything is written", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    ctx.sandbox_policy:add_guard(function(_, mode)
      if mode ~= "read-only" then
        return nil, require("dsh.errors").new("SESSION_BUSY", "open")
      end
      return true
    end)
    local ok, err = ctx.permission:set(s, "ws")
    assert.is_nil(ok)
    assert.equal("SESSION_BUSY", err.code)
    assert.equal("", s:types())
    assert(ctx.permission:set(s, "ro"))
  end)
end)

describe("the default preset", function()
  h.guard()
  local ctx

  after_each(function()
    if ctx then
      ctx:close()
    end
    ctx = nil
  end)

  it("comes from the settings and pins new sessions only", function()
    ctx = assert(open({ presets = PRESETS, default = "ro" },
      { permission = { defaultPreset = "ws" } }))
    local s = fake.new()
    assert(ctx.permission:begin(s))
    assert.equal("ws", ctx.permission:current(s))
    local n = #s.events
    assert(ctx.permission:begin(s))
    assert.equal(n, #s.events)
    local old = fake.new()
    old:append({ { type = "sandbox/mode", data = { mode = "read-only" } } })
    assert(ctx.permission:begin(old))
    assert.equal("sandbox/mode", old:types())
  end)

  it("that does not exist fails at the start", function()
    local none, err = open({ presets = PRESETS },
      { permission = { defaultPreset = "wx" } })
    assert.is_nil(none)
    assert.truthy(err.message:find("there is no preset 'wx'", 1, true))
  end)

  it("is nothing where nothing says so", function()
    ctx = assert(open({ presets = PRESETS }))
    local s = fake.new()
    assert(ctx.permission:begin(s))
    assert.equal("", s:types())
  end)

  local function scripted(text, env)
    local d = h.scratch()
    h.write(d.W .. "/presets.lua", text)
    local opened, err = open({ presets = PRESETS,
      presetsFile = d.W .. "/presets.lua" }, nil, env)
    ctx = opened
    return opened, err, d.W .. "/presets.lua"
  end

  it("is chosen by a Lua file from facts", function()
    local text = [[
      return {
        presets = { ci = { sandbox = "read-only", approval = "never" } },
        select = function(facts)
          assert(type(facts.hostname) == "string")
          assert(facts.platform == "linux")
          if facts.ci then return "ci" end
          if facts.cwd:find("/trusted/", 1, true) then return "ws" end
          if facts.repository then return "build" end
          return "ro"
        end,
      }]]
    assert(scripted(text, { CI = "true" }))
    local s = fake.new()
    assert(ctx.permission:begin(s))
    assert.equal("ci", ctx.permission:current(s))
    ctx:close()
    assert(scripted(text, {}))
    local trusted = fake.new({ cwd = "/home/x/trusted/repo" })
    assert(ctx.permission:begin(trusted))
    assert.equal("ws", ctx.permission:current(trusted))
    local d = h.scratch()
    assert(require("lfs").mkdir(d.W .. "/.git"))
    assert(require("lfs").mkdir(d.W .. "/sub"))
    local repository = fake.new({ cwd = d.W .. "/sub" })
    assert(ctx.permission:begin(repository))
    assert.equal("build", ctx.permission:current(repository))
    local other = fake.new({ cwd = "/srv" })
    assert(ctx.permission:begin(other))
    assert.equal("ro", ctx.permission:current(other))
  end)

  it("whose choice fails starts no session", function()
    for _, body in ipairs({ "error('no')", "return nil", "return 'nobody'",
      "return os.getenv('X')", "while true do end" }) do
      assert(scripted("return { select = function(facts) " .. body
        .. " end }"))
      local s = fake.new()
      local ok, err = ctx.permission:begin(s)
      assert.is_nil(ok)
      assert.is_table(err)
      assert.equal("", s:types())
      ctx:close()
      ctx = nil
    end
  end)

  it("from a file with an error fails at the start, with its line",
    function()
      local none, err, file = scripted("return {\n  presets = nope }")
      assert.is_nil(none)
      assert.truthy(err.message:find(file .. ":2: unknown global 'nope'", 1,
        true))
      none, err, file = scripted("return { presets = { x = "
        .. "{ sandbox = 'all', approval = 'ask' } } }")
      assert.is_nil(none)
      assert.truthy(err.message:find(file .. ": preset 'x'", 1, true))
    end)
end)
