--- dsh.repl_complete: what Tab offers. Nothing is executed unconfined: names
-- of files come from directories, names of bash from the confined shell.
local core = require("dsh.core")
local text = require("dsh.repl_text")

local M = {}

local SHOWN = 200 -- candidates listed at most

local function common(list)
  local first = list[1]
  local n = #first
  for i = 2, #list do
    while n > 0 and list[i]:sub(1, n) ~= first:sub(1, n) do
      n = n - 1
    end
  end
  while n > 0 and n < #first and first:byte(n + 1) & 0xC0 == 0x80 do
    n = n - 1 -- not inside a character
  end
  return first:sub(1, n)
end

-- The list below the line, in columns that fit.
local function columns(list)
  local width, longest = math.min(text.columns(), 200) - 1, 0
  local shown = {}
  for i = 1, math.min(#list, SHOWN) do
    shown[i] = text.visible(list[i], 200)
    longest = math.max(longest, core.term.width(shown[i]))
  end
  local per = math.max(1, width // (longest + 2))
  local out = {}
  for i, name in ipairs(shown) do
    local pad = (" "):rep(longest + 2 - core.term.width(name))
    out[#out + 1] = name .. ((i % per == 0 or i == #shown) and "\n" or pad)
  end
  if #list > SHOWN then
    out[#out + 1] = ("and %d more\n"):format(#list - SHOWN)
  end
  return table.concat(out)
end

local function starting(list, prefix)
  local out, seen = {}, {}
  for _, name in ipairs(list) do
    if name:sub(1, #prefix) == prefix and not seen[name] then
      seen[name] = true
      out[#out + 1] = name
    end
  end
  table.sort(out)
  return out
end

-- file names ------------------------------------------------------------------

local function unescape(word)
  return (word:gsub("\\(.)", "%1"))
end

local function escape(name)
  if name:find("%c") then
    return "$'" .. name:gsub("[%c'\\]", function(c)
      return ("\\%03o"):format(c:byte())
    end) .. "'"
  end
  return (name:gsub("([ \t\"'\\$`!*?%[%](){}<>|&;#~])", "\\%1"))
end

local function directory_of(app, prefix)
  local home = os.getenv("HOME") or ""
  local dir = prefix:match("^(.*/)[^/]*$") or ""
  local real = dir:gsub("^~/", home .. "/")
  if real:sub(1, 1) ~= "/" then
    real = (app.shell and app.shell.cwd or ".") .. "/" .. real
  end
  return dir, real
end

--- Paths that begin with `prefix` (as typed); directories end with "/".
function M.files(app, prefix, only)
  local plain = unescape(prefix)
  local dir, real = directory_of(app, plain)
  local base = plain:sub(#dir + 1)
  local out = {}
  for _, name in ipairs(core.sys.list(real) or {}) do
    if name ~= "." and name ~= ".." and name:sub(1, #base) == base
      and (base ~= "" or name:sub(1, 1) ~= ".") then
      local path = real .. name
      local is_dir = core.sys.list(path) ~= nil
      if is_dir or not only or only(path) then
        out[#out + 1] = dir .. name .. (is_dir and "/" or "")
      end
    end
  end
  table.sort(out)
  return out
end

-- Programs on PATH; kept for the life of the prompt, as names seldom change.
local function programs(app)
  if not app.programs then
    local list = {}
    for dir in ((app.env.PATH or "") .. ":"):gmatch("([^:]+):") do
      for _, name in ipairs(core.sys.list(dir) or {}) do
        list[#list + 1] = name
      end
    end
    app.programs = list
  end
  return app.programs
end

local function commands(app, word)
  if word:find("/", 1, true) then
    return M.files(app, word, core.sys.executable)
  end
  local list = table.move(programs(app), 1, #programs(app), 1, {})
  for _, name in ipairs(app.shell:names()) do
    list[#list + 1] = name
  end
  return starting(list, word)
end

-- slash words and Lua ---------------------------------------------------------

local function slash(app, line)
  local table_ = require("dsh.repl_slash").commands
  local name, rest = line:match("^%s*/([%w-]*)(.*)$")
  if rest == "" then
    local names = {}
    for known in pairs(table_) do
      names[#names + 1] = "/" .. known
    end
    return starting(names, "/" .. name), "/" .. name
  end
  local entry = table_[name]
  local word = rest:match("(%S*)$")
  if entry and entry.args and rest:match("^%s+%S*$") then
    return starting(entry.args(app), word), word
  end
  return M.files(app, word), word
end

local function lua_names(app, line)
  local path, word = line:match("([%w_.:]*[.:])([%w_]*)$")
  if not path then
    path, word = "", line:match("([%w_]*)$")
  end
  local at = require("dsh.repl_lua").environment(app)
  local names = {}
  for step in path:gmatch("([%w_]+)[.:]") do
    at = type(at) == "table" and rawget(at, step)
      or type(at) == "table" and at == app.lua_env and rawget(_G, step) or nil
  end
  local function add(t)
    for key in pairs(type(t) == "table" and t or {}) do
      if type(key) == "string" and key:match("^[%a_][%w_]*$") then
        names[#names + 1] = key
      end
    end
  end
  add(at)
  local meta = type(at) == "table" and getmetatable(at)
  add(type(meta) == "table" and rawget(meta, "__index"))
  return starting(names, word), word
end

-- the word at the cursor ------------------------------------------------------

-- The last word as bash would split it, roughly: blanks that are not escaped.
local function last_word(line)
  local at = 1
  local i = 1
  while i <= #line do
    local c = line:sub(i, i)
    if c == "\\" then
      i = i + 1
    elseif c:match("[%s;|&()<>=]") then
      at = i + 1
    end
    i = i + 1
  end
  return line:sub(at), line:sub(1, at - 1)
end

local function candidates(app, line)
  if app.in_lua or line:match("^%s*=") then
    return lua_names(app, line)
  end
  local first = line:match("^%s*(/[%w-]*)")
  if first and not line:match("^%s*/[%w-]*/")
    and (line:match("^%s*/[%w-]*$") or app:slash_word(line)) then
    local list, word = slash(app, line)
    if #list > 0 or not line:match("^%s*/[%w-]*$") then
      return list, word
    end
  end
  local word, before = last_word(line)
  if before:match("^%s*$") or before:match("[;|&(]%s*$") then
    return commands(app, word), word
  end
  return M.files(app, word), word, true
end

--- For the line editor: characters to replace, text, and a list to show.
function M.complete(app, line, cursor)
  local list, word, quote = candidates(app, line:sub(1, cursor))
  if #list == 0 then
    return 0, ""
  end
  local chars = utf8.len(word) or #word
  local fit = escape
  if not quote then
    fit = function(name)
      return name
    end
  end
  if #list == 1 then
    local name = list[1]
    return chars, fit(name) .. (name:sub(-1) == "/" and "" or " ")
  end
  local longest = common(list)
  if #longest > #unescape(word) then
    return chars, fit(longest)
  end
  return 0, "", columns(list)
end

return M
