--- dsh.session_names: where a session's log lies under the sessions root.
-- <root>/<project>/<session>/session.jsonl.zstd; both names hold nothing but
-- [A-Za-z0-9._-] and ~XXXX, a UTF-16 unit in upper hex.
local M = {}

local PROJECT_MAX = 251 -- bytes between the dashes
local NAME_MAX = 255 -- bytes of a file name

M.file = "session.jsonl.zstd"
M.raw_file = "session.jsonl"

local function unit(n)
  return ("~%04X"):format(n)
end

local function escape_code(code)
  if code < 0x10000 then
    return unit(code)
  end
  code = code - 0x10000
  return unit(0xD800 + (code >> 10)) .. unit(0xDC00 + (code & 0x3FF))
end

-- Bytes that are not UTF-8 count as U+FFFD, as they would in a JSON string.
local function escape(text)
  local out, at = {}, 1
  while at <= #text do
    local plain = text:match("^[%w._-]+", at)
    if plain then
      out[#out + 1] = plain
      at = at + #plain
    else
      local ok = utf8.len(text, at, at)
      local code = ok and utf8.codepoint(text, at) or 0xFFFD
      out[#out + 1] = escape_code(code)
      at = ok and utf8.offset(text, 2, at) or at + 1
    end
  end
  return table.concat(out)
end

--- The directory of a project, from the session's cwd (nil: it has none).
function M.project(cwd)
  if not cwd then
    return "_no-cwd"
  end
  local slug = escape((cwd:gsub("[/\\:]+", "-"):gsub("^%-+", "")))
  if slug == "" then
    slug = "root"
  end
  return "--" .. slug:sub(1, PROJECT_MAX) .. "--"
end

--- The directory of a session, from its id; nil, message for an id that
-- cannot be one. Two ids never give the same name.
function M.session(id)
  if id == "" or not utf8.len(id) then
    return nil, "a session id is UTF-8 text and not empty"
  end
  local name = escape(id)
  if id == "." or id == ".." then
    name = id:gsub("%.", unit(0x2E))
  end
  if #name > NAME_MAX then
    return nil, "the session id is too long"
  end
  return name
end

return M
