--- dsh.repl_text: what the prompt writes, made safe and made to fit.
local core = require("dsh.core")

local M = {}

local COLOURS = { ["read-only"] = "32", ["workspace-write"] = "33",
  ["danger-full-access"] = "1;31", dim = "2", bold = "1", bad = "31" }
local SHORT = { ["read-only"] = "ro", ["workspace-write"] = "ws",
  ["danger-full-access"] = "full" }

--- Puts a terminal back into a known state, whatever was written before: no
-- attributes, plain characters, visible cursor, whole screen scrolls, wrap,
-- no origin or insert mode, no mouse or paste reports. It does not move the
-- cursor (the scroll region's reset would: hence save and restore).
M.RESET = "\27[0m\27(B\15\27[?25h\27[?7h\27[4l\0277\27[?6l\27[?69l\27[r\0278"
  .. "\27[?1l\27>\27[?1000l\27[?1002l\27[?1003l\27[?1006l\27[?2004l"

function M.coloured()
  local no = os.getenv("NO_COLOR")
  local term = os.getenv("TERM")
  return not (no and no ~= "") and term ~= "dumb" and core.sys.isatty(1)
end

--- Text in the colour of a mode, or "dim", "bold", "bad".
function M.paint(kind, text)
  local code = M.coloured() and COLOURS[kind]
  return code and "\27[" .. code .. "m" .. text .. "\27[0m" or text
end

-- Zero-width and direction-changing characters, which could make a question
-- read as another one.
local function hidden(c)
  return c >= 0x80 and c <= 0x9F or c == 0xAD or c == 0x61C or c == 0x180E
    or c >= 0x200B and c <= 0x200F or c >= 0x2028 and c <= 0x202E
    or c >= 0x2060 and c <= 0x206F or c == 0xFEFF or c >= 0xFFF9 and c <= 0xFFFB
    or c >= 0xE0000 and c <= 0xE0FFF
end

local function plain(c)
  if c < 32 then
    return "^" .. string.char(c + 64)
  elseif c == 127 then
    return "^?"
  elseif hidden(c) then
    return ("\\u{%X}"):format(c)
  end
  local text = utf8.char(c)
  return c < 128 and text
    or core.term.width(text) >= 0 and text or ("\\u{%X}"):format(c)
end

--- The bytes with everything invisible made visible. Never a control
-- character, never broken UTF-8. max: bytes shown at most (the rest counted).
function M.visible(bytes, max)
  local out, at = {}, 1
  local cut = max and #bytes > max
  if cut then
    bytes, max = bytes:sub(1, max), #bytes - max
  end
  while at <= #bytes do
    local good, bad = utf8.len(bytes, at)
    local last = good and #bytes or bad - 1
    if last >= at then
      for _, c in utf8.codes(bytes:sub(at, last)) do
        out[#out + 1] = plain(c)
      end
    end
    if good then
      break
    end
    out[#out + 1] = ("\\x%02X"):format(bytes:byte(bad))
    at = bad + 1
  end
  return table.concat(out) .. (cut and (" ...(%d bytes more)"):format(max)
    or "")
end

function M.columns()
  return core.sys.winsize(1) or 80
end

--- Words of text in lines of at most `width` columns, each after the blanks
-- that the text begins with.
function M.wrap(text, width)
  local lines, line = {}, nil
  local indent = text:match("^ *")
  for word in text:gmatch("%S+") do
    local longer = line and line .. " " .. word or indent .. word
    local w = core.term.width(longer)
    if line and (w < 0 and #longer or w) > width then
      lines[#lines + 1] = line
      line = indent .. word
    else
      line = longer
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

--- One paragraph on the terminal, wrapped to it.
function M.say(text, kind)
  local out = M.wrap(text, math.min(M.columns(), 80) - 1)
  io.stdout:write(kind and M.paint(kind, out) or out, "\n")
  io.stdout:flush()
end

--- The directory with the home as "~", its middle cut to fit `width`.
function M.directory(path, width)
  local home = os.getenv("HOME")
  if home and home ~= "" and home ~= "/"
    and (path == home or path:sub(1, #home + 1) == home .. "/") then
    path = "~" .. path:sub(#home + 1)
  end
  path = M.visible(path)
  if width and core.term.width(path) > width then
    path = ".../" .. (path:match("([^/]+)/*$") or path)
    while core.term.width(path) > width and #path > 5 do
      path = path:sub(1, utf8.offset(path, -1) - 1)
    end
  end
  return path
end

--- The prompt. Colours are marked for the line editor by \1.
function M.prompt(state)
  local columns = M.columns()
  local narrow = columns < 60
  local dir = M.directory(state.cwd, columns // (narrow and 4 or 3))
  local outside = state.outside and (narrow and "!" or " outside") or ""
  local mode = narrow and SHORT[state.mode] or state.mode
  local text = ("%s%s [%s]"):format(dir, outside, mode)
  if M.coloured() then
    text = "\1\27[" .. COLOURS[state.mode] .. "m\1" .. text .. "\1\27[0m\1"
  end
  return text .. (core.sys.uid() == 0 and "# " or "$ ")
end

return M
