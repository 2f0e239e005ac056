--- dsh.compose: from layers to rows, from rows to running services.
--
-- compose(layers) gives a composition; resolve(comp, host) loads the
-- enabled rows' modules, checks needs and config and orders them; start()
-- starts them in that order and dispose() ends them in reverse. Nothing
-- before start() runs any service.
local errors = require("dsh.errors")
local node = require("dsh.node")
local patch = require("dsh.patch")
local schema = require("dsh.schema")

local M = {}

-- compose --------------------------------------------------------------------

--- layers: list of {kind = "profile"|"patch", name, list = node} or
-- {kind = "script", name, apply = function(comp, layer) → true | nil, err}.
function M.compose(layers)
  local comp = patch.new()
  comp.layers = layers
  for _, layer in ipairs(layers) do
    local ok, err
    if layer.kind == "profile" then
      ok, err = patch.add_rows(comp, layer.list, layer)
    elseif layer.kind == "patch" then
      ok, err = patch.apply(comp, layer.list, layer)
    else
      ok, err = layer.apply(comp, layer)
    end
    if not ok then
      return nil, err
    end
  end
  return comp
end

-- resolve --------------------------------------------------------------------

local function row_error(row, message, cause)
  return errors.fail("ROW_FAILED", ("%s: row '%s' (%s): %s"):format(
    node.where(row.node), row.id, row.name, message),
    { stage = "compose", path = row.node.file, line = row.node.line,
      row = row.id, cause = cause })
end

local function load_module(row)
  local name = row.name
  if not package.loaded[name] and not package.preload[name] then
    local path = package.searchpath(name, package.path)
    if not path then
      return row_error(row, "there is no such Lua module")
    end
  end
  local ok, module = pcall(require, name)
  if not ok then
    return row_error(row, "cannot be loaded: " .. tostring(module), module)
  elseif type(module) ~= "table" or type(module.start) ~= "function"
    or not module.provides then
    return row_error(row, "is not a service module (provides, start)")
  end
  return module
end

local function as_list(value)
  return type(value) == "table" and value or { value }
end

-- Which row provides what; nil, err for two providers of one name.
local function providers(parts)
  local by_name = {}
  for _, part in ipairs(parts) do
    for _, name in ipairs(part.provides) do
      local other = by_name[name]
      if other then
        return row_error(part.row, ("provides '%s', as row '%s' (%s) does; a "
          .. "composition has one provider of each"):format(name,
          other.row.id, node.where(other.row.node)))
      end
      by_name[name] = part
    end
  end
  return by_name
end

-- Services that only make sense together, in one place.
local GROUP = { "shell", "fs", "terminal" }

local function check_group(by_name)
  local first
  for _, name in ipairs(GROUP) do
    local part = by_name[name]
    if part then
      local where = part.module.place or "local"
      first = first or { name = name, where = where, part = part }
      if where ~= first.where then
        return row_error(part.row, ("provides '%s' in place '%s', but '%s' is "
          .. "in place '%s' (row '%s'): shell, fs and terminal are replaced "
          .. "together"):format(name, where, first.name, first.where,
          first.part.row.id))
      end
    end
  end
  return true
end

-- Depth first, in row order: a part comes after all that it needs.
local function visit(part, by_name, ordered, path)
  if part.state == "done" then
    return true
  elseif part.state == "open" then
    path[#path + 1] = part.row.id
    return row_error(part.row, "needs itself: "
      .. table.concat(path, " -> "))
  end
  part.state = "open"
  path[#path + 1] = part.row.id
  for _, need in ipairs(part.needs) do
    local provider = by_name[need.name]
    if provider then
      local ok, err = visit(provider, by_name, ordered, path)
      if not ok then
        return nil, err
      end
    elseif not need.optional and need.name ~= "host" then
      return row_error(part.row, ("needs '%s', which no enabled row "
        .. "provides"):format(need.name))
    end
  end
  path[#path] = nil
  part.state = "done"
  ordered[#ordered + 1] = part
  return true
end

local function read_needs(module)
  local needs = {}
  for _, need in ipairs(module.needs or {}) do
    local name, mark = need:match("^([%w_]+)(%??)$")
    needs[#needs + 1] = { name = name or need, optional = mark == "?" }
  end
  return needs
end

local function read_config(row, module, host)
  local config, err = node.expand(row.config or node.map(row.node), host.env)
  if not config then
    return nil, err
  end
  row.resolved = config
  if not module.schema then
    return node.to_lua(config)
  end
  local ok, typed, why = pcall(schema.check, config, module.schema, row.id,
    host, row.node)
  if not ok then
    return row_error(row, tostring(typed))
  end
  return typed, why
end

local function read_part(row, host)
  local module, err = load_module(row)
  if not module then
    return nil, err
  end
  local config
  config, err = read_config(row, module, host)
  if not config then
    return nil, err
  end
  return { row = row, module = module, config = config,
    provides = as_list(module.provides), needs = read_needs(module) }
end

--- The parts to start, in dependency order; or nil, err.
-- host: {env, platform, cwd, home?, warn}, given to who needs "host".
-- wanted(row), if given, says which rows are started at all.
function M.resolve(comp, host, wanted)
  local parts, ordered = {}, {}
  for _, row in ipairs(patch.flatten(comp, host.platform)) do
    if not wanted or wanted(row) then
      local part, err = read_part(row, host)
      if not part then
        return nil, err
      end
      parts[#parts + 1] = part
    end
  end
  local by_name, err = providers(parts)
  if not by_name then
    return nil, err
  end
  local ok
  ok, err = check_group(by_name)
  if not ok then
    return nil, err
  end
  for _, part in ipairs(parts) do
    ok, err = visit(part, by_name, ordered, {})
    if not ok then
      return nil, err
    end
  end
  return ordered
end

-- start, dispose -------------------------------------------------------------

local function has_close(service)
  if type(service) == "table" or type(service) == "userdata" then
    local ok, close = pcall(function() return service.close end)
    return ok and close
  end
end

-- The services of one started part: {name = service}; or nil, err.
local function collect(part, result)
  local out = {}
  if #part.provides == 1 then
    out[part.provides[1]] = result
    return out
  end
  for _, name in ipairs(part.provides) do
    if type(result) ~= "table" or result[name] == nil then
      return row_error(part.row, ("promises '%s' and does not return it")
        :format(name))
    end
    out[name] = result[name]
  end
  return out
end

local function start_part(part, services, host)
  local deps = {}
  for _, need in ipairs(part.needs) do
    deps[need.name] = need.name == "host" and host or services[need.name]
  end
  local ok, result, err = xpcall(part.module.start, function(e)
    return errors.is(e) and e or debug.traceback(tostring(e), 2)
  end, deps, part.config)
  if not ok then
    return row_error(part.row, "cannot start: " .. tostring(result), result)
  elseif result == nil then
    return row_error(part.row, "cannot start: "
      .. tostring(err or "start returned nothing"), err)
  end
  local out
  out, err = collect(part, result)
  if not out then
    return nil, err
  end
  part.result = result
  return out
end

-- Closes what a part returned, each object once; problems are warnings.
local function close_part(part, host)
  local seen = {}
  local function close(service)
    if service == nil or seen[service] or not has_close(service) then
      return
    end
    seen[service] = true
    local ok, why = pcall(service.close, service)
    if not ok and host.warn then
      host.warn(("row '%s' did not close: %s"):format(part.row.id,
        tostring(why)))
    end
  end
  if #part.provides > 1 and type(part.result) == "table" then
    for i = #part.provides, 1, -1 do
      close(part.result[part.provides[i]])
    end
  end
  close(part.result)
  part.result = nil
end

--- Ends what start() started, in reverse order.
function M.dispose(parts, host)
  for i = #parts, 1, -1 do
    if parts[i].result ~= nil then
      close_part(parts[i], host)
    end
  end
end

--- Starts the parts; the services by name, or nil, err with everything that
-- had started ended again.
function M.start(parts, host)
  local services = {}
  for _, part in ipairs(parts) do
    local out, err = start_part(part, services, host)
    if not out then
      M.dispose(parts, host)
      return nil, err
    end
    for name, service in pairs(out) do
      services[name] = service
    end
  end
  return services
end

return M
