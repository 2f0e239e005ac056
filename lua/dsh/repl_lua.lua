--- dsh.repl_lua: a Lua prompt over the live context. An expression is tried
-- first; unfinished input goes on; values are printed readably. The code is
-- the person's own and is not confined; commands it runs by ctx are.
local text = require("dsh.repl_text")

local M = {}

local DEPTH, ITEMS, WIDTH = 4, 50, 2000

local function key_text(key)
  if type(key) == "string" and key:match("^[%a_][%w_]*$") then
    return key
  end
  return "[" .. M.show(key, DEPTH) .. "]"
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    if not (math.type(key) == "integer" and key >= 1 and key <= #t) then
      keys[#keys + 1] = key
    end
  end
  table.sort(keys, function(a, b)
    if type(a) == type(b) and (type(a) == "string" or type(a) == "number") then
      return a < b
    end
    return type(a) < type(b)
  end)
  return keys
end

--- A value as text: tables by content, control characters visible.
function M.show(value, depth)
  depth = depth or 0
  if type(value) == "string" then
    return '"' .. text.visible(value, WIDTH) .. '"'
  elseif type(value) ~= "table" then
    return text.visible(tostring(value))
  end
  local meta = getmetatable(value)
  if type(meta) == "table" and meta.__tostring then
    return text.visible(tostring(value), WIDTH)
  elseif depth >= DEPTH then
    return "{...}"
  end
  local out, pad = {}, ("  "):rep(depth + 1)
  for i = 1, math.min(#value, ITEMS) do
    out[#out + 1] = M.show(value[i], depth + 1)
  end
  for _, key in ipairs(sorted_keys(value)) do
    if #out >= ITEMS then
      out[#out + 1] = "..."
      break
    end
    out[#out + 1] = key_text(key) .. " = " .. M.show(value[key], depth + 1)
  end
  local flat = "{ " .. table.concat(out, ", ") .. " }"
  if #flat < 70 and not flat:find("\n") then
    return #out == 0 and "{}" or flat
  end
  return "{\n" .. pad .. table.concat(out, ",\n" .. pad) .. "\n"
    .. ("  "):rep(depth) .. "}"
end

--- The names that Lua code at the prompt sees, above the globals.
function M.environment(app)
  if not app.lua_env then
    app.lua_env = setmetatable({ ctx = app.ctx, app = app,
      dsh = require("dsh"), session = app.session,
      show = function(value)
        print(M.show(value))
      end }, { __index = _G })
  end
  return app.lua_env
end

-- chunk, or nil, message, unfinished.
local function compile(app, code)
  local env = M.environment(app)
  local chunk = load("return " .. code, "=lua", "t", env)
  if chunk then
    return chunk
  end
  local why
  chunk, why = load(code, "=lua", "t", env)
  return chunk, why, why and why:match("<eof>$") ~= nil
end

local function perform(chunk)
  local results = table.pack(pcall(chunk))
  if not results[1] then
    text.say(text.visible(tostring(results[2]), WIDTH), "bad")
    return
  end
  for i = 2, results.n do
    print(M.show(results[i]))
  end
end

--- One line, or without one a prompt until Ctrl-D or "exit".
function M.run(app, code)
  if code and code:find("%S") then
    local chunk, why = compile(app, code)
    if not chunk then
      return text.say(text.visible(why), "bad")
    end
    return perform(chunk)
  end
  text.say("Lua; ctx is the live context. Ctrl-D or exit leaves.", "dim")
  local pending
  app.in_lua = true
  while true do
    local line, why = app.editor:read(pending and ">> " or "lua> ")
    if not line and why == "eof" or line == "exit" and not pending then
      io.stdout:write(line and "" or "\n")
      break
    elseif not line then
      pending = nil
      io.stdout:write("^C\n")
    else
      app.editor:remember(line)
      local source = pending and pending .. "\n" .. line or line
      local chunk, message, unfinished = compile(app, source)
      pending = unfinished and source or nil
      if chunk then
        perform(chunk)
      elseif not unfinished then
        text.say(text.visible(message), "bad")
      end
    end
  end
  app.in_lua = nil
end

return M
