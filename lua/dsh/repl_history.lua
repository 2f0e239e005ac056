--- dsh.repl_history: the lines typed at the prompt, one file per user, 0600.
-- A line that begins with a blank is not kept. Newlines and backslashes are
-- escaped, so one entry is one line.
local core = require("dsh.core")

local M = {}

local KEEP = 5000

local function path()
  local home = require("dsh.paths").home()
  return home and home .. "/history"
end

local function escape(line)
  return (line:gsub("\\", "\\\\"):gsub("\n", "\\n"))
end

local function unescape(line)
  return (line:gsub("\\(.)", function(c)
    return c == "n" and "\n" or c
  end))
end

--- Gives every kept line to visit, oldest first.
function M.load(visit)
  local name = path()
  local file = name and io.open(name, "rb")
  if not file then
    return
  end
  local lines = {}
  for line in file:lines() do
    lines[#lines + 1] = line
  end
  file:close()
  for i = math.max(1, #lines - KEEP + 1), #lines do
    visit(unescape(lines[i]))
  end
  if #lines > 2 * KEEP then
    M.rewrite(name, lines)
  end
end

function M.rewrite(name, lines)
  local text = table.concat(lines, "\n", #lines - KEEP + 1, #lines) .. "\n"
  core.sys.write_private(name, text)
end

--- Appends one line; true when it was kept.
function M.add(line)
  local name = path()
  if not name or line:match("^%s") or line == "" or line:find("\0", 1, true)
  then
    return false
  end
  return core.sys.append_private(name, escape(line) .. "\n") == true
end

return M
