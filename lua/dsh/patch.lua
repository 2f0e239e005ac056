--- dsh.patch: rows, and the entries that change them.
--
-- A row: {id, name, config?, disabled?, disabled_on?, only_on?} or a group
-- {id, group = {rows}}. A patch entry inserts rows ({insert = {rows},
-- before|after = id} or {id = group, insert = {rows}}) or changes one row:
-- {id, name?, config|merge, disabled, disabled_on, only_on, optional}.
-- `config` and the others replace the row's value whole, `merge` merges maps;
-- `name` must be the row's own (it guards a patch against a row that has
-- become something else). Every error names file, line and column.
local node = require("dsh.node")

local M = {}

M.PLATFORMS = { linux = true, macos = true, windows = true }

local ROW_KEYS = { id = "string", name = "string", config = "map",
  disabled = "boolean", disabled_on = "platforms", only_on = "platforms",
  group = "rows" }
local CHANGE_KEYS = { id = "string", name = "string", config = "map",
  merge = "map", disabled = "boolean", disabled_on = "platforms",
  only_on = "platforms", optional = "boolean" }
local INSERT_KEYS = { id = "string", insert = "rows", before = "string",
  after = "string", optional = "boolean" }

-- reading --------------------------------------------------------------------

local function describe(n)
  return n.kind == "scalar" and (node.is_null(n) and "nothing"
    or ("%q"):format(n.text)) or "a " .. n.kind
end

local readers = {}

function readers.string(n, what)
  if n.kind ~= "scalar" or not n.text:find("%S") then
    return node.fail(n, ("%s: expected a string, got %s"):format(what,
      describe(n)))
  end
  return n.text
end

function readers.boolean(n, what)
  if n.kind == "scalar" and n.plain
    and (n.text == "true" or n.text == "false") then
    return n.text == "true"
  end
  return node.fail(n, ("%s: expected true or false, got %s"):format(what,
    describe(n)))
end

function readers.map(n, what)
  if n.kind == "map" then
    return n
  elseif node.is_null(n) then
    return node.map(n)
  end
  return node.fail(n, ("%s: expected a map, got %s"):format(what,
    describe(n)))
end

function readers.platforms(n, what)
  if n.kind ~= "list" then
    return node.fail(n, ("%s: expected a list of platforms, got %s"):format(
      what, describe(n)))
  end
  local set = { node = n }
  for _, item in ipairs(n) do
    if item.kind ~= "scalar" or not M.PLATFORMS[item.text] then
      return node.fail(item, ("%s: expected linux, macos or windows, got %s")
        :format(what, describe(item)))
    end
    set[item.text] = true
  end
  return set
end

function readers.rows(n, what)
  if n.kind ~= "list" then
    return node.fail(n, ("%s: expected a list of rows, got %s"):format(what,
      describe(n)))
  end
  return n
end

-- The typed fields of map n, all of them in `keys`; or nil, err.
local function fields(n, keys, what)
  local out = {}
  if n.kind ~= "map" then
    return node.fail(n, ("%s: expected a map, got %s"):format(what,
      describe(n)))
  end
  for _, key in ipairs(n.keys) do
    local value = n.values[key]
    if not keys[key] then
      return node.fail(value, ("%s: unknown key '%s'"):format(what, key), nil,
        true)
    end
    local typed, err = readers[keys[key]](value, key)
    if err then
      return nil, err
    end
    out[key] = typed
  end
  return out
end

local read_rows

local function read_row(n, layer, depth)
  local row, err = fields(n, ROW_KEYS, "row")
  if not row then
    return nil, err
  elseif not row.id then
    return node.fail(n, "row: id is missing")
  elseif row.group and (row.name or row.config) then
    return node.fail(n, ("row '%s': a group has neither name nor config")
      :format(row.id))
  elseif not row.group and not row.name then
    return node.fail(n, ("row '%s': name is missing"):format(row.id))
  elseif row.name and not row.name:match("^[%w_][%w_.-]*$") then
    return node.fail(n.values.name, ("row '%s': name: expected a module "
      .. "name, got %q"):format(row.id, row.name))
  end
  row.node, row.layer, row.changes = n, layer, {}
  if row.group then
    if depth >= 20 then
      return node.fail(n, "groups nested deeper than 20")
    end
    row.group, err = read_rows(row.group, layer, depth + 1)
    if not row.group then
      return nil, err
    end
  end
  return row
end

function read_rows(list, layer, depth)
  local rows = {}
  for i, n in ipairs(list) do
    local row, err = read_row(n, layer, depth)
    if not row then
      return nil, err
    end
    rows[i] = row
  end
  return rows
end

-- the composition ------------------------------------------------------------

--- An empty composition: {rows, index = {id = {row, list}}, warnings}.
function M.new()
  return { rows = {}, index = {}, warnings = {} }
end

-- Enters rows (already placed in `list`) into the index; ids are unique.
local function enter(comp, rows, list)
  for _, row in ipairs(rows) do
    local other = comp.index[row.id]
    if other then
      return node.fail(row.node.values.id, ("duplicate id '%s', first at %s")
        :format(row.id, node.where(other.row.node.values.id)))
    end
    comp.index[row.id] = { row = row, list = list }
    if row.group then
      local ok, err = enter(comp, row.group, row.group)
      if not ok then
        return nil, err
      end
    end
  end
  return true
end

--- Adds a profile's rows (a list node) to the composition.
function M.add_rows(comp, list, layer)
  if list.kind ~= "list" then
    return node.fail(list, ("a profile is a list of rows, got %s"):format(
      describe(list)))
  end
  local rows, err = read_rows(list, layer, 1)
  if not rows then
    return nil, err
  end
  table.move(rows, 1, #rows, #comp.rows + 1, comp.rows)
  return enter(comp, rows, comp.rows)
end

local function position(list, row)
  for i, r in ipairs(list) do
    if r == row then
      return i
    end
  end
end

-- The index entry of id; nil, err when there is none; nil alone when the
-- patch entry is optional and was skipped with a warning.
local function target(comp, entry, key, n)
  local found = comp.index[entry[key]]
  if found then
    return found
  end
  local message = ("%s: there is no row '%s'"):format(key, entry[key])
  if entry.optional then
    comp.warnings[#comp.warnings + 1] = node.where(n.values[key]) .. ": "
      .. message .. " (optional, skipped)"
    return nil
  end
  return node.fail(n.values[key], message)
end

-- Where the rows of an insert entry go: list, position; or nil, err?.
local function place(comp, entry, n)
  local keys = {}
  for _, key in ipairs({ "id", "before", "after" }) do
    keys[#keys + 1] = entry[key] and key
  end
  if #keys > 1 then
    return node.fail(n.values[keys[2]], ("insert: '%s' and '%s' exclude each "
      .. "other"):format(keys[1], keys[2]), nil, true)
  elseif #keys == 0 then
    return comp.rows, #comp.rows + 1
  end
  local found, err = target(comp, entry, keys[1], n)
  if not found then
    return nil, err
  elseif keys[1] == "id" then
    if not found.row.group then
      return node.fail(n.values.id, ("insert: row '%s' is not a group")
        :format(entry.id))
    end
    return found.row.group, #found.row.group + 1
  end
  local at = position(found.list, found.row)
  return found.list, keys[1] == "before" and at or at + 1
end

local function insert(comp, n, layer)
  local entry, err = fields(n, INSERT_KEYS, "insert")
  if not entry then
    return nil, err
  end
  local rows
  rows, err = read_rows(entry.insert, layer, 1)
  if not rows then
    return nil, err
  end
  local list, at = place(comp, entry, n)
  if not list then
    return not at, at
  end
  table.move(list, at, #list, at + #rows)
  table.move(rows, 1, #rows, at, list)
  return enter(comp, rows, list)
end

local VALUES = { "config", "disabled", "disabled_on", "only_on" }

local function check_change(entry, n, row)
  if entry.name and entry.name ~= row.name then
    return node.fail(n.values.name, ("row '%s' is named %s, not %s (to swap "
      .. "a provider, disable its row and insert another)"):format(row.id,
      row.name or "nothing: it is a group", entry.name))
  elseif entry.config and entry.merge then
    return node.fail(n.values.merge, "'config' and 'merge' exclude each "
      .. "other", nil, true)
  elseif row.group and (entry.config or entry.merge) then
    return node.fail(n, ("row '%s' is a group and has no config"):format(
      row.id))
  end
  return true
end

local function change(comp, n, layer)
  local entry, err = fields(n, CHANGE_KEYS, "patch entry")
  if not entry then
    return nil, err
  elseif not entry.id then
    return node.fail(n, "patch entry: neither 'id' nor 'insert'")
  end
  local found
  found, err = target(comp, entry, "id", n)
  if not found then
    return not err, err
  end
  local row = found.row
  local ok
  ok, err = check_change(entry, n, row)
  if not ok then
    return nil, err
  end
  local keys = {}
  for _, key in ipairs(VALUES) do
    if entry[key] ~= nil then
      row[key] = entry[key]
      keys[#keys + 1] = key
    end
  end
  if entry.merge then
    row.config = node.merge(row.config or node.map(entry.merge), entry.merge)
    keys[#keys + 1] = "merge"
  end
  if #keys == 0 and not entry.name then
    return node.fail(n, ("patch entry: changes nothing of row '%s'"):format(
      row.id))
  end
  if #keys > 0 then
    row.changes[#row.changes + 1] = { layer = layer, node = n, keys = keys }
  end
  return true
end

--- Applies one patch (a list node) to the composition; true or nil, err.
function M.apply(comp, list, layer)
  if list.kind ~= "list" then
    return node.fail(list, ("a patch is a list of entries, got %s"):format(
      describe(list)))
  end
  for _, n in ipairs(list) do
    local ok, err
    if n.kind == "map" and n.values.insert then
      ok, err = insert(comp, n, layer)
    else
      ok, err = change(comp, n, layer)
    end
    if not ok then
      return nil, err
    end
  end
  return true
end

--- Is the row meant for this platform and not disabled?
function M.enabled(row, platform)
  return not row.disabled and not (row.disabled_on
    and row.disabled_on[platform])
    and (not row.only_on or row.only_on[platform] or false)
end

--- The enabled rows in order, groups flattened.
function M.flatten(comp, platform)
  local flat = {}
  local function visit(rows)
    for _, row in ipairs(rows) do
      if M.enabled(row, platform) then
        if row.group then
          visit(row.group)
        else
          flat[#flat + 1] = row
        end
      end
    end
  end
  visit(comp.rows)
  return flat
end

return M
