--- dsh.yaml: reads and writes the strict YAML dialect.
-- Nodes are those of dsh.node. The dialect: src/yamlread.h.
local core = require("dsh.core").yaml
local errors = require("dsh.errors")

local M = {}

--- The node of a text, false when it holds no value, or nil, err (with line
-- and column); `file` names it in messages.
M.parse = core.parse

M.BYTES = 1 << 20 -- the longest file of configuration, as in yamlread.h

--- A file's bytes; nil, err with errno when it cannot be read, and nil, nil,
-- when it does not exist and `optional` is true.
function M.slurp(path, optional)
  local f, why, errno = io.open(path, "rb")
  if not f then
    if optional and errno == 2 then
      return nil
    end
    return errors.fail("CONFIG_INVALID", "cannot read " .. why,
      { stage = "open", errno = errno, path = path })
  end
  local text, failure = f:read(M.BYTES + 1)
  f:close()
  if failure then
    return errors.fail("CONFIG_INVALID", ("cannot read %s: %s"):format(path,
      failure), { stage = "read", path = path })
  elseif text and #text > M.BYTES then
    return errors.fail("CONFIG_INVALID", ("%s:1:1: longer than %d bytes")
      :format(path, M.BYTES), { stage = "read", path = path, line = 1,
      column = 1 })
  end
  return text or ""
end

-- writing --------------------------------------------------------------------

local WORDS = { ["true"] = true, ["false"] = true, null = true, ["~"] = true,
  yes = true, no = true, on = true, off = true, [""] = true }

-- Would this text, unquoted, be read back as the same text and as a string?
local function is_plain(text)
  return not WORDS[text:lower()] and #text < 200
    and text:find("^[%a_/][%w_/.+@:~-]*$") ~= nil
    and text:sub(-1) ~= ":"
end

-- Unquoted text whose variables were filled in may be anything by now.
local function is_typed(text)
  return text == "true" or text == "false"
    or text:find("^%-?%d+%.?%d*$") ~= nil
end

local ESCAPES = { ["\n"] = "\\n", ["\t"] = "\\t", ["\r"] = "\\r",
  ['"'] = '\\"', ["\\"] = "\\\\" }

local function unicode(c)
  return ("\\u%04X"):format(utf8.codepoint(c))
end

--- A string as YAML: unquoted where that is certain to be read back so.
function M.quote(text)
  if is_plain(text) then
    return text
  end
  if not utf8.len(text) then
    text = text:gsub("[\x80-\xFF]", "\u{FFFD}") -- YAML has no bytes
  end
  text = text:gsub('[%c"\\]', function(c)
    return ESCAPES[c] or ("\\x%02X"):format(c:byte())
  end)
  -- line breaks and marks of Unicode: U+0080 to U+009F, U+2028, U+2029, BOM
  text = text:gsub("\xC2[\x80-\x9F]", unicode)
  text = text:gsub("\xE2\x80[\xA8\xA9]", unicode)
  return '"' .. text:gsub("\xEF\xBB\xBF", unicode) .. '"'
end

local function scalar(n)
  if n.plain and n.text == "" then
    return "null"
  elseif n.plain and not n.text:find("[\r\n]")
    and (not n.raw or is_typed(n.text)) then
    return n.text
  end
  return M.quote(n.text)
end

local emit

-- The value on one line, where it fits on one: nil for what has children.
local function short(n)
  if n.kind == "scalar" then
    return scalar(n)
  elseif n.kind == "function" then
    return "null # a function, given from Lua"
  elseif n.kind == "list" then
    return #n == 0 and "[]" or nil
  end
  return #n.keys == 0 and "{}" or nil
end

-- What follows `lead`, which is "- " or "key:" with its indentation.
local function tail(n, indent, out, lead, remark)
  local text = short(n)
  if text then
    local note = remark and remark(n)
    out[#out + 1] = lead .. " " .. text .. (note and " # " .. note or "")
  elseif lead:sub(-1) == "-" then
    local first = #out + 1
    emit(n, indent + 2, out, remark)
    out[first] = lead .. " " .. out[first]:sub(indent + 3)
  else
    out[#out + 1] = lead
    emit(n, indent + 2, out, remark)
  end
end

function emit(n, indent, out, remark)
  local pad = (" "):rep(indent)
  for _, item in ipairs(n) do
    tail(item, indent, out, pad .. "-", remark)
  end
  for _, key in ipairs(n.keys or {}) do
    tail(n.values[key], indent, out, pad .. M.quote(key) .. ":", remark)
  end
end

--- Lines of YAML for a non-empty list or map node, each indented by so many
-- spaces; remark(node) gives a comment for a value, or nil.
function M.lines(n, indent, remark)
  local out = {}
  emit(n, indent or 0, out, remark)
  return out
end

return M
