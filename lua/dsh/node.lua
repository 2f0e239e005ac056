--- dsh.node: configuration values that know where they come from.
--
-- A node is what the YAML reader gives and what Lua values are turned into:
--   {kind = "scalar", text = "…", plain = bool}   plain: unquoted, so that a
--                                  schema may read it as a bool or number
--   {kind = "list", node, node, …}
--   {kind = "map", keys = {…in order…}, values = {key = node}}
--   {kind = "function", value = f}  from Lua only
-- with file, line and column of the value and, in a map, key_line and
-- key_column of its key. Nodes are never changed once made: layers that
-- change a value make a new node and share the rest.
local errors = require("dsh.errors")

local M = {}

--- "file:line:column" of a node, or of its key.
function M.where(node, key)
  local line = key and node.key_line or node.line
  local column = key and node.key_column or node.column
  local text = node.file or "?"
  if line then
    text = text .. ":" .. line
    if column then
      text = text .. ":" .. column
    end
  end
  return text
end

--- An error at a node: "file:line:column: message".
function M.fail(node, message, code, key)
  return errors.fail(code or "CONFIG_INVALID",
    M.where(node, key) .. ": " .. message, { stage = "config",
    path = node.file, line = node.line, column = node.column })
end

function M.scalar(text, plain, at)
  return { kind = "scalar", text = text, plain = plain or false,
    file = at.file, line = at.line, column = at.column }
end

function M.map(at)
  return { kind = "map", keys = {}, values = {}, file = at.file,
    line = at.line, column = at.column }
end

function M.list(at)
  return { kind = "list", file = at.file, line = at.line,
    column = at.column }
end

--- Sets a key of a map that is still being built.
function M.set(map, key, node)
  if not map.values[key] then
    map.keys[#map.keys + 1] = key
  end
  map.values[key] = node
end

local function sorted_keys(t)
  local keys = {}
  for k in pairs(t) do
    keys[#keys + 1] = k
  end
  table.sort(keys)
  return keys
end

local from_lua

local function from_table(value, at, depth, what)
  if depth > 100 then
    error(what .. ": nested deeper than 100", 0)
  end
  if value.__list or #value > 0 then
    local list, n = M.list(at), 0
    for k in pairs(value) do
      n = n + (k == "__list" and 0 or 1)
    end
    if n ~= #value then
      error(what .. ": a list with holes or other keys", 0)
    end
    for i, item in ipairs(value) do
      list[i] = from_lua(item, at, depth + 1, ("%s[%d]"):format(what, i))
    end
    return list
  end
  local map = M.map(at)
  for k in pairs(value) do
    if type(k) ~= "string" then
      error(what .. ": keys must be strings", 0)
    end
  end
  for _, k in ipairs(sorted_keys(value)) do
    M.set(map, k, from_lua(value[k], at, depth + 1, what .. "." .. k))
  end
  return map
end

function from_lua(value, at, depth, what)
  local kind = type(value)
  if kind == "string" then
    return M.scalar(value, false, at)
  elseif kind == "boolean" or kind == "number" then
    local n = M.scalar(math.type(value) == "float"
      and ("%.17g"):format(value) or tostring(value), true, at)
    n.value = value
    return n
  elseif kind == "function" then
    return { kind = "function", value = value, file = at.file,
      line = at.line }
  elseif kind == "table" then
    return from_table(value, at, depth, what)
  end
  error(("%s: a %s cannot be configuration"):format(what, kind), 0)
end

--- A Lua value as a node placed at `at` {file, line?}. An empty table is a
-- map; {__list = true} is an empty list. Raises for what cannot be one.
function M.from_lua(value, at, what)
  return from_lua(value, at, 1, what or "value")
end

--- The plain Lua value. A YAML scalar is a string, quoted or not (only a
-- schema reads it as more); what came from Lua as a bool or number is one.
function M.to_lua(node)
  if node.value ~= nil then
    return node.value
  elseif node.kind == "scalar" then
    return node.text
  end
  local t = {}
  if node.kind == "list" then
    for i, item in ipairs(node) do
      t[i] = M.to_lua(item)
    end
  else
    for _, k in ipairs(node.keys) do
      t[k] = M.to_lua(node.values[k])
    end
  end
  return t
end

--- Is this the YAML null (an empty, unquoted value)?
function M.is_null(node)
  return node.kind == "scalar" and node.plain
    and (node.text == "" or node.text == "~" or node.text == "null")
end

--- over's keys on top of base's; maps merge, all else is replaced.
function M.merge(base, over)
  if base == nil or base.kind ~= "map" or over.kind ~= "map" then
    return over
  end
  local out = M.map(base)
  out.key_line, out.key_column = base.key_line, base.key_column
  for _, k in ipairs(base.keys) do
    M.set(out, k, base.values[k])
  end
  for _, k in ipairs(over.keys) do
    M.set(out, k, M.merge(base.values[k], over.values[k]))
  end
  return out
end

-- Does it matter to a schema whether this text is quoted?
local function quotes_matter(text)
  return text == "" or text == "true" or text == "false" or text == "null"
    or text == "~" or text:find("^%-?%d") ~= nil
    or text:find("${", 1, true) ~= nil
end

--- Do two nodes say the same, wherever they stand?
function M.equal(a, b)
  if a == nil or b == nil or a.kind ~= b.kind then
    return a == b
  elseif a.kind == "scalar" then
    return a.text == b.text
      and (a.plain == b.plain or not quotes_matter(a.text))
  elseif a.kind == "function" then
    return a.value == b.value
  elseif a.kind == "list" then
    if #a ~= #b then
      return false
    end
    for i = 1, #a do
      if not M.equal(a[i], b[i]) then
        return false
      end
    end
    return true
  end
  if #a.keys ~= #b.keys then
    return false
  end
  for _, k in ipairs(a.keys) do
    if not M.equal(a.values[k], b.values[k]) then
      return false
    end
  end
  return true
end

-- ${NAME} and ${NAME:-default} ---------------------------------------------

-- One scalar's text with its variables filled in; nil, message on error.
local function expand(text, env)
  local out, at = {}, 1
  while true do
    local from = text:find("${", at, true)
    if not from then
      out[#out + 1] = text:sub(at)
      return table.concat(out)
    end
    out[#out + 1] = text:sub(at, from - 1)
    local close = text:find("}", from, true)
    if not close then
      return nil, "'${' without '}'"
    end
    local inner = text:sub(from + 2, close - 1)
    local name, default = inner:match("^([%a_][%w_]*)(.*)$")
    if not name or (default ~= "" and default:sub(1, 2) ~= ":-") then
      return nil, "'${" .. inner .. "}' is neither ${NAME} nor "
        .. "${NAME:-default}"
    end
    local value = env[name]
    if (value == nil or value == "") and default ~= "" then
      value = default:sub(3)
    elseif value == nil then
      return nil, "environment variable " .. name
        .. " is not set and has no default (${" .. name .. ":-…})"
    end
    out[#out + 1] = value
    at = close + 1
  end
end

--- The node with the variables of every string in it filled in; or nil, err.
function M.expand(node, env)
  if node.kind == "scalar" then
    if not node.text:find("${", 1, true) then
      return node
    end
    local text, why = expand(node.text, env)
    if not text then
      return M.fail(node, why)
    end
    local out = M.scalar(text, node.plain, node)
    out.key_line, out.key_column = node.key_line, node.key_column
    out.raw = node.text
    return out
  elseif node.kind == "function" then
    return node
  end
  local out = node.kind == "list" and M.list(node) or M.map(node)
  out.key_line, out.key_column = node.key_line, node.key_column
  for i, item in ipairs(node) do
    local value, err = M.expand(item, env)
    if not value then
      return nil, err
    end
    out[i] = value
  end
  for _, k in ipairs(node.keys or {}) do
    local value, err = M.expand(node.values[k], env)
    if not value then
      return nil, err
    end
    M.set(out, k, value)
  end
  return out
end

return M
