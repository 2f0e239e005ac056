--- dsh.dump: a composition as YAML that can be loaded again.
-- Before each run of rows a comment says where they come from and what
-- patched them; `resolved` shows the final values, each with its origin.
-- Nothing is started.
local node = require("dsh.node")
local schema = require("dsh.schema")
local yaml = require("dsh.yaml")

local M = {}

local ORDER = { "disabled", "disabled_on", "only_on", "config", "group" }

-- One line's worth of text: a file name could hold anything.
local function clean(text)
  return (text:gsub("[%c]", "?"))
end

-- What patched the row; for a group also what came into it and what patched
-- the rows inside.
local function add_changes(lines, row, inside)
  for _, change in ipairs(row.changes) do
    lines[#lines + 1] = ("# patched by %s (%s)%s"):format(clean(node.where(
      { file = change.node.file, line = change.node.line })),
      table.concat(change.keys, ", "), inside)
  end
  for _, r in ipairs(row.group or {}) do
    if r.layer ~= row.layer then
      lines[#lines + 1] = ("# row %s from %s"):format(clean(r.id),
        clean(r.layer.name))
    end
    add_changes(lines, r, " in " .. clean(r.id))
  end
end

local function provenance(row)
  local lines = { "# from " .. clean(row.layer.name) }
  add_changes(lines, row, "")
  return table.concat(lines, "\n")
end

-- The row as a node, in one order of keys.
local function row_node(row, config)
  local at = row.node
  local n = node.map(at)
  node.set(n, "id", row.node.values.id)
  if row.name then
    node.set(n, "name", row.node.values.name)
  end
  for _, key in ipairs(ORDER) do
    local value = row[key]
    if key == "config" then
      value = config
    elseif key == "disabled" and value ~= nil then
      value = node.scalar(tostring(value), true, at)
    elseif key == "group" and value then
      local list = node.list(at)
      for i, r in ipairs(value) do
        list[i] = row_node(r, r.config)
      end
      value = list
    elseif value then
      value = value.node
    end
    if value and not (key == "config" and #value.keys == 0) then
      node.set(n, key, value)
    end
  end
  return n
end

-- The config with its variables filled in and its schema's defaults.
local function final_config(row, host)
  local config, err = node.expand(row.config or node.map(row.node), host.env)
  if not config then
    return nil, err
  end
  local found, module = pcall(require, row.name)
  local fields = found and type(module) == "table" and module.schema
  if not fields then
    return config
  end
  local ok
  ok, err = schema.check(config, fields, row.id, host, row.node)
  if not ok then
    return nil, err
  end
  local keys = {}
  for key, spec in pairs(fields) do
    if not config.values[schema.camel(key)] and spec.default ~= nil then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    local default = fields[key].default
    if type(default) == "table" and next(default) == nil then
      default = fields[key].type == "list" and { __list = true } or default
    end
    node.set(config, schema.camel(key), node.from_lua(default,
      { file = "default of " .. row.name }, key))
  end
  return config
end

local function origin(n)
  local text = clean(node.where(n))
  if n.raw then
    text = text .. " " .. clean(n.raw)
  end
  return text
end

local function block(row, host, resolved)
  local config = row.config
  if resolved and row.name and not row.disabled then
    local final, err = final_config(row, host)
    if not final then
      return nil, err
    end
    config = final
  end
  local list = node.list(row.node)
  list[1] = row_node(row, config)
  return table.concat(yaml.lines(list, 0, resolved and origin), "\n")
end

--- The text of the composition; or nil, err (resolving may fail).
function M.text(comp, host, resolved)
  local out, last = {}, nil
  for _, row in ipairs(comp.rows) do
    local from = provenance(row)
    local text, err = block(row, host, resolved)
    if not text then
      return nil, err
    end
    if from ~= last then
      out[#out + 1] = (last and "\n" or "") .. from
      last = from
    end
    out[#out + 1] = text
  end
  if #out == 0 then
    return "[]\n"
  end
  return table.concat(out, "\n") .. "\n"
end

return M
