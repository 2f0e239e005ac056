--- dsh: open a context and use its services.
--
--   local dsh = require("dsh")
--   local ctx <close> = assert(dsh.open{ mode = "read-only" })
--   local r = ctx.shell:run{ command = "echo hi" }
--
-- dsh.open{mode=, workspace_root=, profile=, patches=, set=, settings=,
-- backend=, runner=, env=, platform=, rows=, warn=} composes rows, starts their
-- services and gives a context, or nil, err. Without a profile it is a small
-- composition of its own, read-only unless `mode` says otherwise.
local sys = require("dsh.core").sys
local compose = require("dsh.compose")
local layers = require("dsh.layers")
local paths = require("dsh.paths")

local M = { version = require("dsh.core").version }

-- what was observed of a run -> verdict (contract, "Telling failures apart")
M.classify = require("dsh.core").confine.classify

local FIELDS = { mode = "string", workspace_root = "string",
  profile = "string", patches = "table", set = "table", settings = "any",
  backend = "string", env = "table", platform = "string", rows = "table",
  warn = "function", user = "boolean", only = "table",
  runner = "table" }

local function check_options(opts)
  if type(opts) ~= "table" then
    error("dsh.open: expected a table, got " .. type(opts), 3)
  end
  for key, value in pairs(opts) do
    local want = FIELDS[key]
    if not want then
      error(("dsh.open: %s: unknown field"):format(tostring(key)), 3)
    elseif want ~= "any" and type(value) ~= want then
      error(("dsh.open: %s: expected %s, got %s"):format(key, want,
        type(value)), 3)
    end
  end
end

local context = {}

--- Ends every service, in reverse order of their start. Idempotent.
function context.close(ctx)
  local parts = rawget(ctx, "_parts")
  if parts then
    rawset(ctx, "_parts", nil)
    compose.dispose(parts, rawget(ctx, "host"))
  end
end

local context_meta = {
  __index = context,
  __close = context.close,
  __gc = context.close,
  __name = "dsh.context",
}

local function hostname()
  local f = io.open("/proc/sys/kernel/hostname")
  local name = f and f:read("l")
  if f then
    f:close()
  end
  return name or os.getenv("HOSTNAME") or os.getenv("COMPUTERNAME") or ""
end

-- Files that decide a mode are never writable from inside (decision of the
-- design: control files). The core keeps the list for the whole process.
local function protect(host, path)
  if path:sub(1, 1) ~= "/" then
    path = host.cwd .. "/" .. path
  end
  return require("dsh.core").confine.control_add(path)
end

-- The files that a composition was read from; what comes with dsh and what
-- lies in DSH_HOME is protected by the sandbox row already.
local function protect_layers(comp, host)
  for _, layer in ipairs(comp.layers) do
    local covered = layer.file and (layer.file:find(paths.profiles, 1, true)
      == 1 or host.home and layer.file:find(host.home, 1, true) == 1)
    if layer.file and not covered then
      local ok, err = host.protect(layer.file)
      if not ok then
        return nil, err
      end
    end
  end
  return true
end

local function make_host(opts)
  local env = opts.env or sys.environ()
  local warnings = {}
  local home = env.DSH_HOME
  if (not home or home == "") and env.HOME and env.HOME ~= "" then
    home = env.HOME .. "/.dsh"
  end
  local host
  host = { env = env, platform = opts.platform or M.platform(),
    cwd = sys.cwd() or "/", home = home ~= "" and home or nil,
    warnings = warnings, hostname = hostname,
    warn = opts.warn or function(message)
      warnings[#warnings + 1] = message
    end,
    protect = function(path) return protect(host, path) end }
  return host
end

--- "linux", "macos" or "windows".
function M.platform()
  if package.config:sub(1, 1) == "\\" then
    return "windows"
  end
  return sys.kind("/proc/self") and "linux" or "macos"
end

--- The composition of these options, nothing started: comp, host; nil, err.
function M.compose(opts)
  opts = opts or {}
  check_options(opts)
  local host = make_host(opts)
  local list, err = layers.of(opts, host)
  if not list then
    return nil, err
  end
  local comp
  comp, err = compose.compose(list)
  if not comp then
    return nil, err
  end
  for _, warning in ipairs(comp.warnings) do
    host.warn(warning)
  end
  return comp, host
end

-- Of the profile's own rows only those with these ids; a row that a patch
-- has inserted is always wanted.
local function only_rows(only)
  local ids = {}
  for _, id in ipairs(only) do
    ids[id] = true
  end
  return function(row)
    return ids[row.id] or row.layer.kind ~= "profile"
  end
end

-- A patch may have made a wanted row need others: then all are started.
local function resolve(comp, host, only)
  if only then
    local parts = compose.resolve(comp, host, only_rows(only))
    if parts then
      return parts
    end
  end
  return compose.resolve(comp, host)
end

--- Where the value of a row's config key comes from: "$NAME" where a
-- variable of the environment was set and taken, "base profile" (and the
-- like) where nothing has changed the profile, else file and line.
function M.origin(ctx, id, key)
  local row = ctx.composition.index[id].row
  local n = row.resolved and row.resolved.values[key]
  if not n then
    return "default of " .. row.name
  end
  local name = n.raw and n.raw:match("^%${([%w_]+)")
  local value = name and ctx.host.env[name]
  if value and value ~= "" then
    return "$" .. name
  elseif n.file == row.layer.file then
    return (row.layer.file:match("([^/]+)%.cordis%.yml$")
      or row.layer.file) .. " profile"
  end
  return require("dsh.node").where({ file = n.file, line = n.line })
end

--- Opens a context; see the top of this file. only = {row ids}: start these
-- of the profile's rows and no others, for a program that needs few.
function M.open(opts)
  opts = opts or {}
  check_options(opts)
  local comp, host = M.compose(opts)
  if not comp then
    return nil, host
  end
  local ok, err = protect_layers(comp, host)
  if not ok then
    return nil, err
  end
  local parts
  parts, err = resolve(comp, host, opts.only)
  if not parts then
    return nil, err
  end
  local services
  services, err = compose.start(parts, host)
  if not services then
    return nil, err
  end
  local ctx = { composition = comp, host = host, warnings = host.warnings,
    _parts = parts }
  for name, service in pairs(services) do
    ctx[name] = service
  end
  return setmetatable(ctx, context_meta)
end

return M
