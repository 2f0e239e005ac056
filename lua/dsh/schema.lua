--- dsh.schema: checks a row's configuration and gives typed values.
--
-- A schema is a table from a key to what its value must be:
--   {type = "string", default = "read-only", enum = {…}, required = true}
-- type: string, boolean, integer, number, path (a string, made absolute),
--   list (items = a schema of the items), map (fields = a schema of keys,
--   or values = a schema of every value), function (from Lua only), any;
--   or a list of these, tried in order.
-- Further: min, max (numbers; of a list or string its length), non_blank,
-- single_line, check = function(value) return ok, message end.
-- Keys are written in snake_case in a schema and in camelCase in YAML:
-- workspace_root is spelled workspaceRoot there. The configuration that the
-- service gets is keyed as its schema is.
local node = require("dsh.node")

local M = {}

--- workspace_root -> workspaceRoot
function M.camel(key)
  return (key:gsub("_(%l)", string.upper):gsub("_(%d)", "%1"))
end

local value_of

local function mismatch(n, what, expected)
  local got = n.kind
  if n.kind == "scalar" then
    got = node.is_null(n) and "nothing"
      or ("%q"):format(n.text):gsub("\\\n", "\\n")
  end
  return node.fail(n, ("%s: expected %s, got %s"):format(what, expected, got))
end

local readers = {}

function readers.string(n, _, what)
  if n.kind ~= "scalar" or node.is_null(n) then
    return mismatch(n, what, "a string")
  end
  return n.text
end

function readers.path(n, spec, what, host)
  local text, err = readers.string(n, spec, what)
  if not text then
    return nil, err
  end
  if text == "" or text:find("\0", 1, true) then
    return mismatch(n, what, "a path")
  end
  if text:sub(1, 1) ~= "/" and not text:match("^%a:[/\\]") and host
    and host.cwd then
    text = host.cwd .. "/" .. text
  end
  return text
end

function readers.boolean(n, _, what)
  if n.kind == "scalar" and n.plain and n.text == "true" then
    return true
  elseif n.kind == "scalar" and n.plain and n.text == "false" then
    return false
  end
  return mismatch(n, what, "true or false")
end

function readers.integer(n, _, what)
  local ok = n.kind == "scalar" and n.plain and #n.text <= 20
    and n.text:match("^%-?%d+$")
  local value = ok and math.tointeger(tonumber(n.text))
  if not value then
    return mismatch(n, what, "an integer")
  end
  return value
end

function readers.number(n, _, what)
  local ok = n.kind == "scalar" and n.plain and #n.text <= 40
    and n.text:match("^%-?%d+%.?%d*[eE]?[+-]?%d*$")
  local value = ok and tonumber(n.text)
  if not value or value ~= value or value == math.huge
    or value == -math.huge then
    return mismatch(n, what, "a finite number")
  end
  return value
end

readers["function"] = function(n, _, what)
  if n.kind ~= "function" then
    return mismatch(n, what, "a function (from Lua)")
  end
  return n.value
end

function readers.list(n, spec, what, host)
  if n.kind ~= "list" then
    return mismatch(n, what, "a list")
  end
  local out = {}
  for i, item in ipairs(n) do
    local value, err = value_of(item, spec.items or { type = "any" },
      ("%s[%d]"):format(what, i), host)
    if err then
      return nil, err
    end
    out[i] = value
  end
  return out
end

function readers.map(n, spec, what, host)
  if n.kind ~= "map" then
    return mismatch(n, what, "a map")
  end
  if spec.fields then
    return M.check(n, spec.fields, what, host)
  end
  local out = {}
  for _, k in ipairs(n.keys) do
    local value, err = value_of(n.values[k], spec.values or { type = "any" },
      what .. "." .. k, host)
    if err then
      return nil, err
    end
    out[k] = value
  end
  return out
end

function readers.any(n)
  return node.to_lua(n)
end

readers.table = function(n, spec, what, host)
  if n.kind == "list" then
    return readers.list(n, spec, what, host)
  end
  return readers.map(n, spec, what, host)
end

local function in_list(list, value)
  for _, v in ipairs(list) do
    if v == value then
      return true
    end
  end
  return false
end

local function size(value)
  return (type(value) == "number" and value)
    or (type(value) == "string" or type(value) == "table") and #value or nil
end

-- What a value of the right type must still satisfy; a message, or nil.
local function complaint(value, spec)
  if spec.enum and not in_list(spec.enum, value) then
    return ("expected one of %s, got %q"):format(
      table.concat(spec.enum, ", "), tostring(value))
  elseif spec.non_blank and not value:find("%S") then
    return "must not be blank"
  elseif spec.single_line and value:find("[\r\n]") then
    return "must be a single line"
  end
  local n = size(value)
  if n and spec.min and n < spec.min then
    return ("must be at least %s"):format(spec.min)
  elseif n and spec.max and n > spec.max then
    return ("must be at most %s"):format(spec.max)
  end
  if spec.check then
    local ok, why = spec.check(value)
    if not ok then
      return why or "is not valid"
    end
  end
end

local function read_as(kind, n, spec, what, host)
  local reader = readers[kind]
  if not reader then
    error(("%s: the schema's type %q is unknown"):format(what,
      tostring(kind)), 0)
  end
  return reader(n, spec, what, host)
end

function value_of(n, spec, what, host)
  local kinds = type(spec.type) == "table" and spec.type
    or { spec.type or "any" }
  local value, err
  for _, kind in ipairs(kinds) do
    value, err = read_as(kind, n, spec, what, host)
    if not err then
      break
    end
  end
  if err then
    if #kinds > 1 then
      return mismatch(n, what, table.concat(kinds, " or "))
    end
    return nil, err
  end
  local why = complaint(value, spec)
  if why then
    return node.fail(n, what .. ": " .. why)
  end
  return value
end

--- One node's typed value by a spec {type=, enum=, …}; or nil, err. `what`
-- names it in messages.
function M.value(n, spec, what, host)
  return value_of(n, spec, what, host)
end

-- Schema keys by the name that YAML gives them.
local function by_yaml_name(fields)
  local names = {}
  for key, spec in pairs(fields) do
    names[M.camel(key)] = { key = key, spec = spec }
  end
  return names
end

local function known_names(names)
  local list = {}
  for name in pairs(names) do
    list[#list + 1] = name
  end
  table.sort(list)
  return #list > 0 and table.concat(list, ", ") or "no key at all"
end

--- Checks map node n (nil: empty) against fields; the typed table or
-- nil, err. `at` is a node for errors about what is missing.
function M.check(n, fields, what, host, at)
  local names, out = by_yaml_name(fields), {}
  if n and n.kind ~= "map" and not node.is_null(n) then
    return mismatch(n, what, "a map")
  end
  for _, key in ipairs(n and n.keys or {}) do
    local known, value = names[key], n.values[key]
    if not known then
      local hint = names[M.camel(key)] and " (spelled " .. M.camel(key) .. ")"
        or "; known: " .. known_names(names)
      return node.fail(value, ("%s.%s: unknown key%s"):format(what, key,
        hint), nil, true)
    end
    local typed, err = value_of(value, known.spec, what .. "." .. key, host)
    if err then
      return nil, err
    end
    out[known.key] = typed
  end
  for name, known in pairs(names) do
    if out[known.key] == nil then
      if known.spec.required then
        return node.fail(n or at or {}, ("%s.%s: is required"):format(what,
          name))
      end
      out[known.key] = known.spec.default
    end
  end
  return out
end

return M
