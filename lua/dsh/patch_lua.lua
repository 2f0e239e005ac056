--- dsh.patch_lua: patches written in Lua.
--
-- A patch file returns `function(p) … end`. It runs in a Lua state of its
-- own, as text, without files or processes; limits of memory and steps
-- guard against mistakes. It is trusted configuration, not a boundary. A
-- patch function given to dsh.open runs in the caller's own state and may
-- hand functions to rows.
--
--   p.insert(row, {before|after = id} or {into = group, optional = true})
--   p.replace(id, keys)   p.merge(id, config)   p.disable(id)
--   p.row(id) → the row as it stands, or nil    p.platform   p.env
--
-- Key names are YAML's. Each call is one patch entry with file and line.
local core = require("dsh.core")
local node = require("dsh.node")
local patch = require("dsh.patch")

local M = {}

M.MEMORY = 64 << 20 -- bytes
M.STEPS = 10000000  -- VM instructions

-- Makes p inside the script's state; host(op, …) records one entry.
local PRELUDE = [[
local chunk, arg, host = ...
local p = { platform = arg.platform, env = arg.env }
function p.insert(row, place) host("insert", row, place) end
function p.replace(id, keys) host("replace", id, keys) end
function p.merge(id, config) host("merge", id, config) end
function p.disable(id) host("disable", id) end
function p.row(id) return host("row", id) end
local patch = chunk()
if type(patch) ~= "function" then
  error(arg.name .. ":1: a Lua patch returns function(p) … end", 0)
end
patch(p)
]]

-- The row as plain data, with YAML's key names.
local function row_data(row)
  local t = { id = row.id, name = row.name, disabled = row.disabled }
  t.config = row.config and node.to_lua(row.config)
  for _, key in ipairs({ "disabled_on", "only_on" }) do
    t[key] = row[key] and node.to_lua(row[key].node)
  end
  if row.group then
    t.group = {}
    for i, r in ipairs(row.group) do
      t.group[i] = row_data(r)
    end
  end
  return t
end

local function want(kind, value, what)
  if type(value) ~= kind then
    error(("%s: expected a %s, got %s"):format(what, kind, type(value)), 0)
  end
  return value
end

local ops = {}

function ops.insert(row, place)
  local entry = { insert = { want("table", row, "insert: row") } }
  for key, value in pairs(want("table", place or {}, "insert: place")) do
    if key ~= "into" and key ~= "before" and key ~= "after"
      and key ~= "optional" then
      error(("insert: unknown key '%s'"):format(tostring(key)), 0)
    end
    entry[key == "into" and "id" or key] = value
  end
  return entry
end

function ops.replace(id, keys)
  local entry = { id = want("string", id, "replace: id") }
  for key, value in pairs(want("table", keys, "replace: keys")) do
    if key == "id" then
      error("replace: a row's id cannot change", 0)
    end
    entry[key] = value
  end
  return entry
end

function ops.merge(id, config)
  return { id = want("string", id, "merge: id"),
    merge = want("table", config, "merge: config") }
end

function ops.disable(id)
  return { id = want("string", id, "disable: id"), disabled = true }
end

-- One call of the patch: applied at once, so that later calls see it.
local function record(comp, layer, at, op, ...)
  if op == "row" then
    local found = comp.index[want("string", (...), "row: id")]
    return found and row_data(found.row) or nil
  end
  local n = node.from_lua({ ops[op](...) }, at, op)
  local ok, err = patch.apply(comp, n, layer)
  if not ok then
    local own = node.where(at) .. ": "
    local text = err.message
    error(text:sub(1, #own) == own and text:sub(#own + 1) or text, 0)
  end
end

--- A layer for the text of a Lua patch; file is its name in messages.
function M.layer(text, file, host)
  return { kind = "script", name = file, apply = function(comp, layer)
    local result, err = core.script.run(text, "@" .. file, PRELUDE,
      function(line, op, ...)
        return record(comp, layer, { file = file, line = line }, op, ...)
      end, { memory = M.MEMORY, steps = M.STEPS,
        arg = { platform = host.platform, env = host.env, name = file } })
    if err then
      return nil, err
    end
    return result == nil
  end }
end

-- File and line of the function that called p.op.
local function caller()
  local info = debug.getinfo(3, "Sl")
  return { file = info and info.short_src or "a Lua patch",
    line = info and info.currentline > 0 and info.currentline or nil }
end

--- A layer for a patch function of the caller's own state.
function M.function_layer(f, host)
  local info = debug.getinfo(f, "S")
  local name = info.short_src .. ":" .. info.linedefined
  return { kind = "script", name = name, apply = function(comp, layer)
    local p = { platform = host.platform, env = host.env }
    for _, op in ipairs({ "insert", "replace", "merge", "disable", "row" }) do
      p[op] = function(...)
        local at = caller()
        local ok, result = pcall(record, comp, layer, at, op, ...)
        if not ok then
          error(node.where(at) .. ": " .. tostring(result), 0)
        end
        return result
      end
    end
    local ok, why = pcall(f, p)
    if not ok then
      return node.fail({ file = name }, tostring(why))
    end
    return true
  end }
end

return M
