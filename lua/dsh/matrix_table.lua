--- dsh.matrix_table: the parity matrix as text. Pure.
local matrix = require("dsh.matrix")

local M = {}

local function columns(report)
  local seen, list = {}, {}
  for _, cell in ipairs(report.cells) do
    local key = cell.backend .. "\t" .. cell.mode
    if not seen[key] then
      seen[key] = true
      list[#list + 1] = { backend = cell.backend, mode = cell.mode }
    end
  end
  return list
end

-- Counts of one row (an operation or an effect) in one column.
local function tally(index, row, col)
  return index[row] and index[row][col.backend .. "\t" .. col.mode]
    or { right = 0, refused = 0, done = 0, gap = 0, broken = 0, impossible = 0,
      accepted = 0, note = 0 }
end

local function index_by(report, key)
  local index, order = {}, {}
  for _, cell in ipairs(report.cells) do
    local row = cell[key]
    if not index[row] then
      index[row] = {}
      order[#order + 1] = row
    end
    local col = cell.backend .. "\t" .. cell.mode
    local t = index[row][col]
    if not t then
      t = tally({}, nil, { backend = "", mode = "" })
      index[row][col] = t
    end
    t[cell.judgement] = t[cell.judgement] + 1
    if cell.judgement ~= "impossible" then
      local word = cell.verdict == "done" and "done" or "refused"
      t[word] = t[word] + 1
    end
  end
  return index, order
end

-- "refused 30", "done 15 of 30", "OPEN 2 of 30", "-" (impossible here).
local function cell_text(t)
  local all = t.refused + t.done
  if t.gap > 0 then
    return ("OPEN %d of %d"):format(t.gap, all)
  elseif t.broken > 0 then
    return ("BROKEN %d of %d"):format(t.broken, all)
  elseif all == 0 then
    return t.impossible > 0 and "impossible" or "-"
  elseif t.done == 0 then
    return ("refused %d"):format(t.refused)
  elseif t.refused == 0 then
    return ("done %d"):format(t.done)
  end
  return ("refused %d, done %d"):format(t.refused, t.done)
end

local function header(cols, first)
  local head, rule = { "| " .. first }, { "|---" }
  for _, col in ipairs(cols) do
    head[#head + 1] = (" | %s, %s"):format(col.backend, col.mode)
    rule[#rule + 1] = "|---"
  end
  return table.concat(head) .. " |\n" .. table.concat(rule) .. "|"
end

local function rows(report, key, keep, first)
  local cols = columns(report)
  local index, order = index_by(report, key)
  local out = { header(cols, first) }
  for _, row in ipairs(order) do
    if keep(row) then
      local line = { "| " .. row }
      for _, col in ipairs(cols) do
        line[#line + 1] = " | " .. cell_text(tally(index, row, col))
      end
      out[#out + 1] = table.concat(line) .. " |"
    end
  end
  return table.concat(out, "\n")
end

--- One row an operation.
function M.operations(report)
  return rows(report, "op", function()
    return true
  end, "operation")
end

--- One row a class of effect; class is "F" or "N".
function M.effects(report, class)
  local of = {}
  for _, op in ipairs(report.operations) do
    if op.class == class then
      of[op.effect] = true
    end
  end
  local only = {}
  for _, cell in ipairs(report.cells) do
    if cell.class == class then
      only[#only + 1] = cell
    end
  end
  return rows({ cells = only }, "effect", function(row)
    return of[row]
  end, class == "F" and "file effect" or "other")
end

--- The text that the README carries: both classes, and what the numbers are.
function M.readme(report)
  local users = {}
  for i, user in ipairs(report.users) do
    users[i] = "uid " .. user
  end
  local c = report.counts
  local parts = { M.effects(report, "F"), "", M.effects(report, "N"), "",
    ("%d operations in %d cells (%s; modes %s), each first seen to succeed "
      .. "without confinement in the same run. Open: %d. Broken: %d. "
      .. "Backends disagree: %d. Known differences (EXDEV between two granted "
      .. "roots; terminals made inside): %d. Impossible on the host that "
      .. "made this table: %d."
    ):format(#report.operations, #report.cells, table.concat(users, " and "),
      table.concat(matrix.MODES, " and "), c.gap, c.broken, #report.disagree,
      c.accepted, c.impossible) }
  return table.concat(parts, "\n")
end

return M
