--- sbpl: a strict reader and an evaluator for the part of macOS's sandbox
-- profile language that backends/seatbelt.c writes. A model: it says what the
-- profile means by the language's rule (the last matching rule decides), not
-- what any macOS does.
--
--   local p = assert(sbpl.read(text))
--   sbpl.decide(p, "file-write-create", "/private/tmp/x")  --> true, rule
--   sbpl.allows(p, "rename", from, to)                     --> true or false
local M = {}

M.LITERAL_MAX = 1024
M.TEXT_MAX = 1 << 20

-- reader: text to nested lists ------------------------------------------------

local function fail(at, why)
  error({ sbpl = ("byte %d: %s"):format(at, why) }, 0)
end

-- A string literal from its opening quote at `at`.
local function read_string(text, at)
  local out, pos = {}, at + 1
  while true do
    local c = text:sub(pos, pos)
    if c == "" then
      fail(at, "string without an end")
    elseif c == '"' then
      break
    elseif c == "\\" then
      c = text:sub(pos + 1, pos + 1)
      if c ~= '"' and c ~= "\\" then
        fail(pos, "unknown escape")
      end
      pos = pos + 1
    elseif c:byte() < 0x20 or c:byte() == 0x7f then
      fail(pos, "control character in a string")
    end
    out[#out + 1] = c
    pos = pos + 1
  end
  if pos - at - 1 > M.LITERAL_MAX then
    fail(at, "string over 1024 bytes")
  end
  return { string = table.concat(out) }, pos + 1
end

local read_list

local function read_form(text, at)
  local c = text:sub(at, at)
  if c == "(" then
    return read_list(text, at)
  elseif c == '"' then
    local s, next_at = read_string(text, at)
    if not text:match("^[%s()]", next_at) then
      fail(next_at, "no space after a string")
    end
    return s, next_at
  end
  local word = text:match("^[%w%-%*]+", at)
  if not word then
    fail(at, c == "" and "unexpected end" or "unexpected character")
  end
  return { word = word }, at + #word
end

function read_list(text, at)
  local list, pos = {}, at + 1
  while true do
    pos = text:match("^[ \n]*()", pos)
    local c = text:sub(pos, pos)
    if c == ")" then
      return list, pos + 1
    elseif c == "" then
      fail(at, "list without an end")
    elseif #list >= 16 then
      fail(pos, "list too long")
    end
    list[#list + 1], pos = read_form(text, pos)
  end
end

-- meaning: lists to rules -----------------------------------------------------

local OPERATIONS = { ["file-write*"] = true, ["file-write-unlink"] = true,
  ["file-write-create"] = true, ["file-write-data"] = true,
  ["file-write-mode"] = true, ["file-write-owner"] = true,
  ["file-write-times"] = true, ["file-write-xattr"] = true,
  ["file-write-flags"] = true, ["default"] = true }

local function canonical(path)
  return path:sub(1, 1) == "/" and not path:find("//", 1, true)
    and (path == "/" or path:sub(-1) ~= "/")
    and not (path .. "/"):find("/%.%.?/")
end
M.canonical = canonical

local function rule_of(list, at)
  local verb = list[1] and list[1].word
  local operation = list[2] and list[2].word
  if verb ~= "allow" and verb ~= "deny" then
    fail(at, "expected allow or deny")
  elseif not OPERATIONS[operation or ""] then
    fail(at, "unknown operation")
  elseif #list > 3 then
    fail(at, "more than one filter")
  end
  local rule = { allow = verb == "allow", operation = operation }
  local filter = list[3]
  if filter then
    if #filter ~= 2 or not filter[2].string
      or (filter[1].word ~= "literal" and filter[1].word ~= "subpath") then
      fail(at, "expected (literal \"PATH\") or (subpath \"PATH\")")
    elseif not canonical(filter[2].string) then
      fail(at, "path is not absolute and canonical")
    end
    rule.filter, rule.path = filter[1].word, filter[2].string
  end
  return rule
end

local function read(text)
  if type(text) ~= "string" or #text > M.TEXT_MAX then
    fail(1, "not a text of at most 1 MiB")
  end
  local rules, pos, version = {}, 1, false
  while true do
    pos = text:match("^[ \n]*()", pos)
    if pos > #text then
      break
    end
    local at = pos
    if text:sub(pos, pos) ~= "(" then
      fail(pos, "expected a list")
    end
    local list
    list, pos = read_list(text, pos)
    if not version then
      if #list ~= 2 or list[1].word ~= "version" or list[2].word ~= "1" then
        fail(at, "expected (version 1) first")
      end
      version = true
    else
      rules[#rules + 1] = rule_of(list, at)
    end
  end
  if not version or not rules[1] or rules[1].operation ~= "default" then
    fail(1, "no version or no default")
  end
  return rules
end

--- The rules of a profile, or nil and where it is malformed.
function M.read(text)
  local ok, result = pcall(read, text)
  if ok then
    return result
  elseif type(result) == "table" and result.sbpl then
    return nil, result.sbpl
  end
  error(result, 0)
end

-- evaluation -----------------------------------------------------------------

local function covers(rule, operation, path)
  if rule.operation ~= "default" and rule.operation ~= operation
    and not (rule.operation == "file-write*"
      and operation:sub(1, 11) == "file-write-") then
    return false
  end
  return not rule.filter or path == rule.path
    or (rule.filter == "subpath" and (rule.path == "/"
      or path:sub(1, #rule.path + 1) == rule.path .. "/"))
end

--- Is one access allowed, and by which rule? The last match decides.
function M.decide(rules, operation, path)
  assert(canonical(path), "path is not canonical: " .. path)
  for i = #rules, 1, -1 do
    if covers(rules[i], operation, path) then
      return rules[i].allow, rules[i]
    end
  end
  return false
end

--- What a file effect asks for: {{operation, which path}}.
M.EFFECTS = {
  write = { { "file-write-data", 1 } },
  truncate = { { "file-write-data", 1 } },
  create = { { "file-write-create", 1 } },
  mkdir = { { "file-write-create", 1 } },
  symlink = { { "file-write-create", 1 } },
  mkfifo = { { "file-write-create", 1 } },
  remove = { { "file-write-unlink", 1 } },
  rmdir = { { "file-write-unlink", 1 } },
  rename = { { "file-write-unlink", 1 }, { "file-write-create", 2 } },
  ["rename-over"] = { { "file-write-unlink", 1 }, { "file-write-create", 2 },
    { "file-write-unlink", 2 } },
  exchange = { { "file-write-unlink", 1 }, { "file-write-create", 2 },
    { "file-write-unlink", 2 }, { "file-write-create", 1 } },
  link = { { "file-write-create", 2 } },
  chmod = { { "file-write-mode", 1 } },
  chown = { { "file-write-owner", 1 } },
  utimes = { { "file-write-times", 1 } },
  setxattr = { { "file-write-xattr", 1 } },
  chflags = { { "file-write-flags", 1 } },
}

--- May a command have this effect on these canonical paths?
function M.allows(rules, effect, path, path2)
  for _, need in ipairs(assert(M.EFFECTS[effect], effect)) do
    if not M.decide(rules, need[1], need[2] == 1 and path or path2) then
      return false
    end
  end
  return true
end

return M
