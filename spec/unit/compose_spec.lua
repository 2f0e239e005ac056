local h = require("helpers")
local dsh = require("dsh")
local dump = require("dsh.dump")
local trace = require("fixtures.services.trace")

local S = "fixtures.services."
local POLICY = { id = "sandbox-policy", name = S .. "policy" }
local SANDBOX = { id = "sandbox", name = S .. "sandbox_one" }
local SHELL = { id = "bash-sandbox", name = S .. "shell" }

local function open(rows, more)
  local opts = { rows = rows, env = {} }
  for k, v in pairs(more or {}) do
    opts[k] = v
  end
  return dsh.open(opts)
end

-- The message with a file's name written as F.
local function short(err, file)
  local from, to = err.message:find(file, 1, true)
  return from and err.message:sub(1, from - 1) .. "F"
    .. err.message:sub(to + 1) or err.message
end

local function failure(...)
  local ctx, err = open(...)
  assert.is_nil(ctx)
  return err
end

describe("dsh.open", function()
  h.guard()
  before_each(function() trace.log = {} end)

  it("starts in order of need and ends in reverse", function()
    local ctx = assert(open({ SHELL, SANDBOX, POLICY }))
    assert.same({ "start sandbox one", "start policy", "start shell" },
      trace.log)
    trace.log = {}
    ctx:close()
    ctx:close()
    assert.same({ "close shell", "close policy", "close sandbox one" },
      trace.log)
  end)

  it("closes at the end of a block", function()
    do
      local ctx <close> = assert(open({ POLICY }))
      assert.is_table(ctx.sandbox_policy)
    end
    assert.same({ "start policy", "close policy" }, trace.log)
  end)

  it("gives a row only what it needs", function()
    local ctx <close> = assert(open({ SANDBOX, POLICY, SHELL }))
    local names = {}
    for name in pairs(ctx.shell.deps) do
      names[#names + 1] = name
    end
    table.sort(names)
    assert.same({ "sandbox", "sandbox_policy" }, names)
  end)

  it("swaps a provider without touching its consumer", function()
    local one <close> = assert(open({ SANDBOX, POLICY, SHELL }))
    local two <close> = assert(open({ SANDBOX, POLICY, SHELL }, {
      patches = { {
        { id = "sandbox", disabled = true },
        { insert = { { id = "other", name = S .. "sandbox_two" } },
          after = "sandbox" } } } }))
    assert.same({ "one", "two" }, { one.shell.run(), two.shell.run() })
  end)

  it("makes the workspace root absolute", function()
    local lfs = require("lfs")
    local ctx <close> = assert(open({ POLICY }, { workspace_root = "sub" }))
    assert.equal(lfs.currentdir() .. "/sub",
      ctx.sandbox_policy.config.workspace_root)
    local again <close> = assert(open({ { id = "sandbox-policy",
      name = S .. "policy", config = { workspaceRoot = "a/b" } } }))
    assert.equal(lfs.currentdir() .. "/a/b",
      again.sandbox_policy.config.workspace_root)
  end)

  it("lets its own fields win over every patch", function()
    local ctx <close> = assert(open({ POLICY }, { mode = "read-only",
      patches = { { { id = "sandbox-policy",
        merge = { mode = "danger-full-access" } } } },
      set = { "sandbox-policy.mode=workspace-write" } }))
    assert.equal("read-only", ctx.sandbox_policy.config.mode)
  end)

  it("refuses unknown options by name", function()
    assert.has_error(function() dsh.open({ modee = "read-only" }) end,
      "dsh.open: modee: unknown field")
    assert.has_error(function() dsh.open({ patches = "x" }) end,
      "dsh.open: patches: expected table, got string")
  end)

  it("reports a row whose module is missing", function()
    local err = failure({ { id = "x", name = "no.such.module" } })
    assert.equal("ROW_FAILED", err.code)
    assert.equal("dsh.open: row 'x' (no.such.module): there is no such Lua "
      .. "module", err.message)
  end)

  it("reports a row that cannot start, with id, cause, file and line",
    function()
      local d = h.scratch()
      local file = d.W .. "/p.yml"
      h.write(file, "- id: ok\n  name: " .. S .. "sandbox_one\n\n- id: bad\n"
        .. "  name: " .. S .. "broken\n")
      local ctx, err = dsh.open({ profile = file, env = {} })
      assert.is_nil(ctx)
      assert.equal("ROW_FAILED", err.code)
      assert.equal(file .. ":4:3: row 'bad' (" .. S .. "broken): cannot "
        .. "start: IO: disk on fire", err.message)
      assert.equal("IO", err.cause.code)
      assert.same({ "start sandbox one", "close sandbox one" }, trace.log)
      local raised = failure({ { id = "bad", name = S .. "broken",
        config = { how = "raise" } } })
      assert.truthy(raised.message:find("no luck", 1, true))
      local none = failure({ { id = "bad", name = S .. "broken",
        config = { how = "nothing" } } })
      assert.truthy(none.message:find("start returned nothing", 1, true))
    end)

  it("reports what nobody provides and two providers of one", function()
    assert.equal("dsh.open: row 'bash-sandbox' (" .. S .. "shell): needs "
      .. "'sandbox', which no enabled row provides",
      failure({ SHELL, POLICY }).message)
    assert.truthy(failure({ SANDBOX, { id = "second",
      name = S .. "sandbox_two" } }).message:find("provides 'sandbox', as row "
      .. "'sandbox'", 1, true))
  end)

  it("has exactly one shell", function()
    local err = failure({ SANDBOX, POLICY, SHELL,
      { id = "second", name = S .. "shell" } })
    assert.truthy(err.message:find("row 'second'", 1, true))
    assert.truthy(err.message:find("one provider of each", 1, true))
  end)

  it("reports a circle of needs", function()
    local err = failure({ { id = "a", name = S .. "loop_a" },
      { id = "b", name = S .. "loop_b" } })
    assert.truthy(err.message:find("needs itself: a -> b -> a", 1, true))
  end)

  it("swaps shell, fs and terminal together or not at all", function()
    local ctx <close> = assert(open({ { id = "away",
      name = S .. "elsewhere" } }))
    assert.equal("elsewhere", ctx.fs.where)
    package.preload["test.half"] = function()
      return { provides = "shell", place = "elsewhere",
        start = function() return {} end }
    end
    local err = failure({ { id = "away", name = "test.half" },
      { id = "fs", name = S .. "local_fs" } })
    package.preload["test.half"] = nil
    assert.truthy(err.message:find("shell, fs and terminal are replaced "
      .. "together", 1, true))
  end)

  it("checks the configuration at its place", function()
    local d = h.scratch()
    local file = d.W .. "/p.yml"
    local function try(config)
      h.write(file, "- id: p\n  name: " .. S .. "policy\n  config:\n    "
        .. config .. "\n")
      local ctx, err = dsh.open({ profile = file, env = {} })
      assert.is_nil(ctx)
      return short(err, file)
    end
    assert.equal("F:4:11: p.mode: expected one of read-only, "
      .. "workspace-write, danger-full-access, got \"open\"",
      try("mode: open"))
    assert.equal("F:4:5: p.mod: unknown key; known: mode, workspaceRoot",
      try("mod: read-only"))
    assert.equal("F:4:5: p.workspace_root: unknown key (spelled "
      .. "workspaceRoot)", try("workspace_root: /x"))
    assert.equal("F:4:11: p.mode: expected a string, got list",
      try("mode: [a]"))
    assert.equal("F:4:11: environment variable NOPE is not set and has no "
      .. "default (${NOPE:-…})", try("mode: ${NOPE}"))
    assert.equal("F:4:11: '${' without '}'", try("mode: ${NOPE"))
    assert.equal("F:4:11: '${A-b}' is neither ${NAME} nor ${NAME:-default}",
      try("mode: ${A-b}"))
  end)

  it("fills in variables, and the value is not read as more", function()
    local function mode(env, text)
      local ctx, err = dsh.open({ env = env, rows = { { id = "p",
        name = S .. "policy", config = { mode = text } } } })
      if not ctx then
        return err.message
      end
      local value = ctx.sandbox_policy.config.mode
      ctx:close()
      return value
    end
    local text = "${M:-workspace-write}"
    assert.equal("workspace-write", mode({}, text))
    assert.equal("workspace-write", mode({ M = "" }, text))
    assert.equal("read-only", mode({ M = "read-only" }, text))
    assert.truthy(mode({ M = "${X}" }, text):find("got \"${X}\"", 1, true))
    assert.equal("read-only", mode({ A = "only" }, "read-${A}"))
    assert.truthy(mode({}, "$M"):find('got "$M"', 1, true))
  end)
end)

-- files ----------------------------------------------------------------------

local function copy_profiles(d, names)
  for _, name in ipairs(names) do
    h.write(d.W .. "/" .. name, h.read("profiles/" .. name))
  end
end

local function rows_of(opts)
  local comp, host = dsh.compose(opts)
  assert(comp, tostring(host))
  return (dump.text(comp, host):gsub("#[^\n]*\n", ""):gsub("\n\n+", "\n"))
end

local function enabled(opts)
  local comp = assert(dsh.compose(opts))
  local patch = require("dsh.patch")
  local set = {}
  for _, row in ipairs(patch.flatten(comp, opts.platform)) do
    set[row.id] = row
  end
  return set
end

describe("layers", function()
  h.guard()

  it("come in order: profile, platform, user, --patch, --set", function()
    local d = h.scratch()
    h.write(d.W .. "/p.yml", "- {id: a, name: m, config: {v: profile}}\n")
    local function value(opts)
      opts.profile = d.W .. "/p.yml"
      opts.env = { DSH_HOME = d.O }
      opts.platform = "linux"
      local comp = assert(dsh.compose(opts))
      return comp.index.a.row.config.values.v.text
    end
    local function entry(v)
      return "- {id: a, merge: {v: " .. v .. "}}\n"
    end
    assert.equal("profile", value({}))
    h.write(d.W .. "/linux.cordis.patch.yml", entry("platform"))
    assert.equal("platform", value({}))
    h.write(d.O .. "/cordis.patch.yml", entry("user"))
    assert.equal("user", value({}))
    assert.equal("platform", value({ user = false }))
    h.write(d.O .. "/cordis.patch.lua",
      "return function(p) p.merge('a', {v = 'user lua'}) end\n")
    assert.equal("user lua", value({}))
    h.write(d.W .. "/one.yml", entry("one"))
    h.write(d.W .. "/two.lua", "return function(p) p.merge('a', "
      .. "{v = p.row('a').config.v .. ' two'}) end\n")
    assert.equal("one two", value({ patches = { d.W .. "/one.yml",
      d.W .. "/two.lua" } }))
    assert.equal("set", value({ patches = { d.W .. "/one.yml" },
      set = { "a.v=set" } }))
  end)

  it("that are absent are nothing, that are asked for an error", function()
    local d = h.scratch()
    h.write(d.W .. "/p.yml", "- {id: a, name: m}\n")
    assert(dsh.compose({ profile = d.W .. "/p.yml",
      env = { DSH_HOME = d.O .. "/none" } }))
    local comp, err = dsh.compose({ profile = d.W .. "/p.yml", env = {},
      patches = { d.W .. "/typo.yml" } })
    assert.is_nil(comp)
    assert.equal("cannot read " .. d.W .. "/typo.yml: No such file or "
      .. "directory", err.message)
  end)

  it("that are empty or no list are errors", function()
    local d = h.scratch()
    local file = d.W .. "/p.yml"
    local function try(text, as)
      h.write(file, text)
      local opts = as == "profile" and { profile = file, env = {} }
        or { rows = {}, patches = { file }, env = {} }
      if as ~= "profile" then
        opts.rows = { POLICY }
      end
      local comp, err = dsh.compose(opts)
      assert.is_nil(comp)
      return short(err, file)
    end
    assert.equal("F:1:1: a profile is empty, not a list", try("", "profile"))
    assert.equal("F:1:1: a patch is empty, not a list", try("# x\n"))
    assert.equal("F:1:1: a patch is a list, got a map", try("a: b\n"))
    assert.equal("F:1:1: a profile is a list, got a scalar",
      try("x\n", "profile"))
    h.write(d.O .. "/cordis.patch.yml", "")
    h.write(file, "- {id: a, name: m}\n")
    local comp, err = dsh.compose({ profile = file,
      env = { DSH_HOME = d.O } })
    assert.is_nil(comp)
    assert.truthy(err.message:find("cordis.patch.yml:1:1: a patch is empty",
      1, true))
  end)

  it("are bounded files", function()
    local d = h.scratch()
    local function try(path)
      local comp, err = dsh.compose({ rows = { POLICY }, env = {},
        patches = { path } })
      assert.is_nil(comp)
      return err.message
    end
    assert.equal("/dev/zero:1:1: longer than 1048576 bytes",
      try("/dev/zero"))
    assert.equal("cannot read " .. d.W .. ": Is a directory", try(d.W))
    h.write(d.W .. "/p.lua", "--" .. ("x"):rep(1 << 20))
    assert.equal(d.W .. "/p.lua:1:1: longer than 1048576 bytes",
      try(d.W .. "/p.lua"))
  end)

  it("--set names what is wrong", function()
    local function try(text)
      local comp, err = dsh.compose({ rows = { POLICY }, set = { text },
        env = {} })
      return comp and "composed" or err.message
    end
    assert.equal("composed", try("sandbox-policy.mode=read-only"))
    assert.truthy(try("mode"):find("expected row.key=value", 1, true))
    assert.truthy(try("zz.mode=x"):find("there is no row 'zz'", 1, true))
    assert.truthy(try("sandbox-policy.mode=[a"):find("--set", 1, true))
  end)
end)

describe("the base profile", function()
  h.guard()
  local PLATFORMS = { "linux", "macos", "windows" }

  it("has its rows", function()
    local set = enabled({ profile = "base", env = {}, platform = "linux" })
    for _, id in ipairs({ "sandbox", "sandbox-policy", "fs-sandbox",
      "bash-sandbox", "tool-bash", "tool-jobs", "tool-fs", "approval",
      "permission", "sessions", "terminal", "settings" }) do
      assert.is_table(set[id], id)
    end
    assert.is_nil(set["pwsh-sandbox"])
  end)

  it("on Windows has PowerShell, no bash, the same permission rows",
    function()
      local linux = enabled({ profile = "base", env = {},
        platform = "linux" })
      local windows = enabled({ profile = "base", env = {},
        platform = "windows" })
      local gone, new = {}, {}
      for id in pairs(linux) do
        gone[#gone + 1] = not windows[id] and id or nil
      end
      for id in pairs(windows) do
        new[#new + 1] = not linux[id] and id or nil
      end
      table.sort(gone)
      table.sort(new)
      assert.same({ "bash-sandbox", "tool-bash" }, gone)
      assert.same({ "pwsh-sandbox", "tool-pwsh" }, new)
      local node = require("dsh.node")
      for _, id in ipairs({ "permission", "approval", "sandbox-policy" }) do
        assert.is_true(node.equal(linux[id].config, windows[id].config))
        assert.equal(linux[id].name, windows[id].name)
      end
    end)

  it("composes to the same rows by the Lua twin, everywhere", function()
    for _, platform in ipairs(PLATFORMS) do
      local d = h.scratch()
      copy_profiles(d, { "base.cordis.yml", "windows.cordis.patch.lua" })
      local twin = rows_of({ profile = d.W .. "/base.cordis.yml", env = {},
        platform = platform,
        patches = { d.W .. "/windows.cordis.patch.lua" } })
      assert.equal(rows_of({ profile = "base", env = {},
        platform = platform }), twin)
      assert.equal(platform == "windows",
        twin:find("pwsh-sandbox", 1, true) ~= nil)
    end
  end)

  it("takes its mode from the environment, else workspace-write", function()
    local function mode(env)
      local comp, host = dsh.compose({ profile = "base", env = env })
      local text = assert(dump.text(comp, host, true))
      return text:match("\n    mode: (%S+)")
    end
    assert.equal("workspace-write", mode({}))
    assert.equal("workspace-write", mode({ DSH_PERMISSION_MODE = "" }))
    assert.equal("read-only", mode({ DSH_PERMISSION_MODE = "read-only" }))
  end)

  it("has a CI patch that sets the mode on purpose", function()
    local comp, host = dsh.compose({ profile = "base",
      env = { DSH_PERMISSION_MODE = "danger-full-access" },
      patches = { "profiles/ci.cordis.patch.yml" } })
    local text = assert(dump.text(comp, host, true))
    assert.equal("workspace-write", text:match("\n    mode: (%S+)"))
    assert.equal("never", text:match("\n    policy: (%S+)"))
  end)

  it("has a headless twin that asks nobody", function()
    local set = enabled({ profile = "headless", env = {},
      platform = "linux" })
    assert.is_nil(set.terminal)
    assert.equal("never", set.approval.config.values.policy.text)
  end)

  it("has a build preset that a patch can change", function()
    local comp = assert(dsh.compose({ profile = "base",
      env = { HOME = "/home/x" }, patches = { { { id = "permission",
        merge = { presets = { build = { grants = { "/opt/cache" } } } } } } }
    }))
    local build = comp.index.permission.row.config.values.presets.values.build
    assert.equal("workspace-write", build.values.sandbox.text)
    assert.equal("/opt/cache", build.values.grants[1].text)
    assert.equal(1, #build.values.grants)
  end)
end)

describe("a dump", function()
  h.guard()

  it("says where rows come from and what patched them", function()
    local d = h.scratch()
    h.write(d.W .. "/p.yml", "- {id: a, name: m}\n- {id: b, name: m}\n"
      .. "- {id: c, name: m, config: {x: 'true', y: true, z: ''}}\n")
    h.write(d.W .. "/q.yml", "- id: b\n  config: {k: [1, 'a b']}\n")
    local comp, host = dsh.compose({ profile = d.W .. "/p.yml", env = {},
      patches = { d.W .. "/q.yml" } })
    assert.equal(([[
# from W/p.yml
- id: a
  name: m

# from W/p.yml
# patched by W/q.yml:1 (config)
- id: b
  name: m
  config:
    k:
      - 1
      - "a b"

# from W/p.yml
- id: c
  name: m
  config:
    x: "true"
    y: true
    z: ""
]]):gsub("W/", d.W .. "/"), dump.text(comp, host))
  end)

  it("says what came into a group and what was patched there", function()
    local d = h.scratch()
    h.write(d.W .. "/p.yml", "- id: g\n  group:\n    - {id: a, name: m}\n")
    h.write(d.W .. "/q.yml", "- id: g\n  insert: [{id: b, name: m}]\n"
      .. "- {id: a, disabled: true}\n")
    local comp, host = dsh.compose({ profile = d.W .. "/p.yml", env = {},
      patches = { d.W .. "/q.yml" } })
    assert.equal(([[
# from W/p.yml
# patched by W/q.yml:3 (disabled) in a
# row b from W/q.yml
- id: g
  group:
    - id: a
      name: m
      disabled: true
    - id: b
      name: m
]]):gsub("W/", d.W .. "/"), dump.text(comp, host))
  end)

  it("can be loaded, and dumps to the same rows again", function()
    local d = h.scratch()
    local file = d.W .. "/dump.yml"
    for _, platform in ipairs({ "linux", "windows" }) do
      for _, patches in ipairs({ {}, { "profiles/ci.cordis.patch.yml" } }) do
        local comp, host = dsh.compose({ profile = "base", env = {},
          platform = platform, patches = patches })
        h.write(file, dump.text(comp, host))
        local once = dsh.compose({ profile = file, env = {},
          platform = platform })
        local text = dump.text(once, host)
        assert.equal(rows_of({ profile = "base", env = {},
          platform = platform, patches = patches }),
          (text:gsub("#[^\n]*\n", ""):gsub("\n\n+", "\n")))
        h.write(file, text)
        assert.equal(text, dump.text(dsh.compose({ profile = file, env = {},
          platform = platform }), host))
      end
    end
  end)

  it("resolved shows final values and defaults, each with its origin",
    function()
      local d = h.scratch()
      h.write(d.W .. "/p.yml", "- id: p\n  name: " .. S .. "policy\n"
        .. "  config:\n    workspaceRoot: ${R:-/w}\n")
      local comp, host = dsh.compose({ profile = d.W .. "/p.yml",
        env = { R = "/a b" } })
      local text = dump.text(comp, host, true)
      assert.truthy(text:find("    workspaceRoot: \"/a b\" # " .. d.W
        .. "/p.yml:4:20 ${R:-/w}\n", 1, true))
      assert.truthy(text:find("    mode: read-only # default of " .. S
        .. "policy\n", 1, true))
      h.write(d.W .. "/again.yml", text)
      assert(dsh.compose({ profile = d.W .. "/again.yml", env = {} }))
    end)

  it("survives any string", function()
    local yaml = require("dsh.yaml")
    local node = require("dsh.node")
    local texts = { "", " ", "a: b", "- x", "#", "a #b", "true", "null", "~",
      "1", "\t", "\n", "é", "plain",
      "a\nb\n", "\"", "\\", "'", "{", "}", "[", "]", ",",
      "&a", "*a", "!x", "|", ">", "%", "@", "`", "ö", "\u{FEFF}", "\u{85}",
      "\u{2028}", "a:", ":a", "?", "=", "<<", "\1", "\127", "---", "...",
      "x ", " x", "${A}", "${A:-b c}", "1e3", "0x1", ".5", ".inf", "yes" }
    for _, text in ipairs(texts) do
      local n = node.from_lua({ { [text .. "k"] = text, l = { text } } },
        { file = "t" })
      local out = table.concat(yaml.lines(n), "\n") .. "\n"
      local back, err = yaml.parse(out, "t")
      assert(back, ("%q: %s\n%s"):format(text, tostring(err), out))
      assert.is_true(node.equal(n, back), ("%q gives %s"):format(text, out))
    end
  end)
end)

describe("requiring one module", function()
  it("loads no backend and no C module", function()
    local r = h.exec({ "lua5.4", "-e", [[
      for _, name in ipairs({ "dsh.errors", "dsh.schema", "dsh.node",
        "dsh.patch", "dsh.compose", "dsh.escalation" }) do
        require(name)
      end
      if package.searchpath("dsh.sandbox", package.path) then
        require("dsh.sandbox")
      end
      for name in pairs(package.loaded) do
        if name:find("core", 1, true) or name:find("_local", 1, true) then
          print(name)
        end
      end]] }, { env = { LUA_PATH = "lua/?.lua;lua/?/init.lua;;",
        LUA_CPATH = "lua/?.so;;" } })
    assert.equal("", r.err)
    assert.equal("", r.out)
  end)
end)
