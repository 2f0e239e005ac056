--- dsh.settings_edit: changes one leaf of a YAML text and nothing else.
-- Comments, order and spelling of everything around it survive. The result
-- is read again and compared: an edit that would change anything else is
-- refused. Pure.
local errors = require("dsh.errors")
local node = require("dsh.node")
local yaml = require("dsh.yaml")

local M = {}

local function refuse(message)
  return errors.fail("SETTINGS_INVALID", message, { stage = "edit" })
end

local function scalar_text(value)
  if type(value) == "string" then
    return yaml.quote(value)
  elseif type(value) == "boolean" or math.type(value) == "integer" then
    return tostring(value)
  elseif math.type(value) == "float" and value == value
    and value ~= math.huge and value ~= -math.huge then
    return ("%.17g"):format(value)
  end
end

-- A leaf as YAML on one line, or nil for what is none.
local function leaf_text(value)
  if type(value) ~= "table" then
    return scalar_text(value)
  end
  local items = {}
  for i, item in ipairs(value) do
    items[i] = type(item) ~= "table" and scalar_text(item) or nil
    if not items[i] then
      return nil
    end
    -- inside [ ] some more characters need quotes
    if type(item) == "string" and items[i]:find("[,%[%]{}]")
      and items[i]:sub(1, 1) ~= '"' then
      items[i] = '"' .. items[i] .. '"'
    end
  end
  return "[" .. table.concat(items, ", ") .. "]"
end

local function newline_of(text)
  return text:find("\r\n", 1, true) and "\r\n" or "\n"
end

local function splice(text, from, to, with)
  return text:sub(1, from) .. with .. text:sub(to + 1)
end

-- "a: b: value" written in block style at this indentation.
local function chain(keys, first, indent, leaf, nl)
  local out = {}
  for i = first, #keys do
    out[#out + 1] = (" "):rep(indent + 2 * (i - first)) .. yaml.quote(keys[i])
      .. ":" .. (i == #keys and " " .. leaf or "") .. nl
  end
  return table.concat(out)
end

-- The same in flow style: "a: {b: value}".
local function flow_chain(keys, first, leaf)
  local text = yaml.quote(keys[#keys]) .. ": " .. leaf
  for i = #keys - 1, first, -1 do
    text = yaml.quote(keys[i]) .. ": {" .. text .. "}"
  end
  return text
end

-- End of the line that byte offset `at` is in, newline included.
local function line_end(text, at)
  local _, stop = text:find("\n", at + 1, true)
  return stop or #text
end

-- Adds keys[first…] to a map that lacks keys[first].
local function add(text, map, keys, first, leaf)
  local nl = newline_of(text)
  if map.flow then
    local close = map.to - 1
    local before = text:sub(map.from + 1, close)
    local empty = not before:sub(2):find("%S")
    return splice(text, close, close, (empty and "" or ", ")
      .. flow_chain(keys, first, leaf))
  end
  local last = map.values[map.keys[#map.keys]]
  local at = last.to
  if text:sub(at, at) ~= "\n" then
    at = line_end(text, at)
  end
  local prefix = (at > 0 and text:sub(at, at) ~= "\n") and nl or ""
  return splice(text, at, at, prefix .. chain(keys, first,
    map.column - 1, leaf, nl))
end

-- Puts the leaf in the place of a value.
local function replace(text, old, leaf)
  local tail = text:sub(old.from + 1, old.to):match("\r?\n$") or ""
  local lead = old.from > 0 and text:sub(old.from, old.from):find("[:%-]")
    and " " or ""
  return splice(text, old.from, old.to, lead .. leaf .. tail)
end

-- Takes a key and its value out; a map left empty becomes {}.
local function remove(text, map, key)
  local value = map.values[key]
  if map.flow then
    local from, to = value.key_from, value.to
    local after = text:sub(to + 1):match("^%s*,%s*")
    if after then
      to = to + #after
    else
      from = from - #(text:sub(1, from):match(",%s*$") or "")
    end
    return splice(text, from, to, "")
  elseif #map.keys == 1 then
    return splice(text, map.from, value.to,
      "{}" .. (text:sub(value.to, value.to) == "\n" and "\n" or ""))
  end
  local from = text:sub(1, value.key_from):match("()[ ]*$") - 1
  local to = value.to
  if text:sub(to, to) ~= "\n" then
    to = line_end(text, to)
  end
  return splice(text, from, to, "")
end

-- The tree with the leaf changed, to compare the result with.
local function expected(root, keys, i, leaf)
  local out = node.map({})
  for _, k in ipairs(root and root.keys or {}) do
    node.set(out, k, root.values[k])
  end
  local key = keys[i]
  if not leaf and not out.values[key] then
    return out
  elseif i < #keys then
    local child = out.values[key]
    node.set(out, key, expected(child and child.kind == "map" and child or nil,
      keys, i + 1, leaf))
  elseif leaf then
    node.set(out, key, leaf)
  elseif out.values[key] then
    out.values[key] = nil
    for n, k in ipairs(out.keys) do
      if k == key then
        table.remove(out.keys, n)
        break
      end
    end
  end
  return out
end

-- Same content; an empty map equals nothing, order does not matter.
local function same(a, b)
  if (a and a.kind == "map") ~= (b and b.kind == "map") then
    return false
  elseif not a or a.kind ~= "map" then
    return node.equal(a, b)
  elseif #a.keys ~= #b.keys then
    return false
  end
  for _, k in ipairs(a.keys) do
    if not same(a.values[k], b.values[k]) then
      return false
    end
  end
  return true
end

-- The edited text, before it is checked.
local function edited(text, root, keys, leaf)
  local map = root
  for i, key in ipairs(keys) do
    local value = map.values[key]
    if value and value.shared then
      return refuse(("'%s' is an alias or has one: edit the file by hand")
        :format(key))
    elseif not value then
      return leaf and add(text, map, keys, i, leaf) or text
    elseif i == #keys then
      if not leaf then
        return remove(text, map, key)
      end
      return replace(text, value, leaf)
    elseif node.is_null(value) then
      return leaf and replace(text, value, "{" .. flow_chain(keys, i + 1,
        leaf) .. "}") or text
    elseif value.kind ~= "map" then
      return refuse(("'%s' is not a section"):format(key))
    end
    map = value
  end
end

--- The text with keys (a list) set to value (string, bool, number, a list of
-- these, or nil to take it out); or nil, err.
function M.set(text, keys, value, file)
  local leaf
  if value ~= nil then
    leaf = leaf_text(value)
    if not leaf then
      return refuse("a setting is a string, a boolean, a finite number or a "
        .. "list of these")
    end
  end
  local root, err = yaml.parse(text, file)
  if root == nil then
    return nil, err
  end
  local out
  if not root or (root.kind == "map" and #root.keys == 0) then
    local nl = newline_of(text)
    local base = root and splice(text, root.from, root.to, "") or text
    out = not leaf and text or base .. ((base == "" or base:sub(-1) == "\n")
      and "" or nl) .. chain(keys, 1, 0, leaf, nl)
  else
    out, err = edited(text, root, keys, leaf)
    if not out then
      return nil, err
    end
  end
  local want = expected(root or nil, keys, 1, leaf
    and yaml.parse("x: " .. leaf, file).values.x)
  local now = yaml.parse(out, file)
  if now == nil or not same(now or node.map({}), want) then
    return refuse(("'%s' cannot be changed without touching its "
      .. "surroundings: edit %s by hand"):format(table.concat(keys, "."),
      file))
  end
  return out
end

return M
