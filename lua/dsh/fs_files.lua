--- dsh.fs_files: the file operations that fs_local and fs_sandbox share.
-- Paths are absolute, or relative to the policy's workspace root.
--
--   fs:resolve(path)               canonical path
--   fs:stat(path), fs:lstat(path)  {type, mode, uid, gid, nlink, size, version}
--   fs:read_text(path, opts)       text, version     opts.max: bytes
--   fs:read_bytes(path, max)       bytes, version
--   fs:lines(path, opts)           {lines}, {total, from}   opts.from, .count
--   fs:list(path)                  {{name, type}}
--   fs:write_text(path, text, opts)          version
--   fs:edit_text(path, old, new, opts)       version, count
--
-- opts of the writing ones: policy | mode, session, intent ("any", "create",
-- "replace"), version, replace_all, allow_hard_links. Failures are nil, err.
local fence = require("dsh.core").fence
local errors = require("dsh.errors")
local journal = require("dsh.journal")

local M = {}

local files = {}
files.__index = files

local READ_MAX = 16 << 20
local SNIFF = 8192 -- bytes without NUL at the start of a text

local function absolute(self, path, opts)
  if type(path) ~= "string" then
    error("path: expected string, got " .. type(path), 3)
  elseif path:sub(1, 1) == "/" then
    return path
  end
  return self.root(opts or {}) .. "/" .. path
end

function files:resolve(path, opts)
  return fence.resolve(absolute(self, path, opts))
end

function files:stat(path, opts)
  return fence.stat(absolute(self, path, opts))
end

function files:lstat(path, opts)
  return fence.lstat(absolute(self, path, opts))
end

function files:read_text(path, opts)
  return fence.read(absolute(self, path, opts),
    { text = true, max = opts and opts.max or READ_MAX })
end

function files:read_bytes(path, max, opts)
  return fence.read(absolute(self, path, opts), { max = max or READ_MAX })
end

function files:list(path, opts)
  return fence.list(absolute(self, path, opts))
end

--- Lines from..from+count-1 without their ends, and {total, from, version}.
function files:lines(path, opts)
  opts = opts or {}
  local text, version = self:read_text(path, opts)
  if not text then
    return nil, version
  end
  local from, count = opts.from or 1, opts.count or math.huge
  local out, n = {}, 0
  for line in text:gmatch("([^\n]*)\n?") do
    if text == "" then
      break
    end
    n = n + 1
    if n >= from and n < from + count then
      out[#out + 1] = (line:gsub("\r$", ""))
    end
  end
  return out, { total = n, from = from, version = version }
end

local function options(self, opts)
  return { policy = self.policy(opts), intent = opts.intent,
    version = opts.version, allow_hard_links = opts.allow_hard_links,
    all = opts.replace_all, max = opts.max }
end

-- A denial carries the mode it was made under; the session's log has it too.
local function failed(opts, policy, op, err)
  if err.code == "FS_SANDBOX_DENIED" then
    err.mode = policy.mode
    if opts.session and opts.session.append then
      -- A log that cannot be written does not turn a denial into a grant.
      journal.append(opts.session, { { type = "sandbox/denied",
        ignorable = true, data = { op = op, path = err.path, errno = "EROFS",
          mode = policy.mode, backend = "fence", evidence = "policy" } } })
    end
  end
  return nil, err
end

function files:write_text(path, text, opts)
  opts = opts or {}
  if type(text) ~= "string" then
    error("text: expected string, got " .. type(text), 2)
  end
  path = absolute(self, path, opts)
  if not utf8.len(text)
    or text:sub(1, SNIFF):find("\0", 1, true) then
    return errors.fail("FS_NOT_TEXT", ("what is to be written to %q is not "
      .. "UTF-8 text"):format(path), { path = path, stage = "fs" })
  end
  local call = options(self, opts)
  local version, err = fence.write(path, text, call)
  if not version then
    return failed(opts, call.policy, "write", err)
  end
  return version
end

function files:edit_text(path, old, new, opts)
  opts = opts or {}
  for name, value in pairs({ old = old, new = new }) do
    if type(value) ~= "string" then
      error(("%s: expected string, got %s"):format(name, type(value)), 2)
    end
  end
  path = absolute(self, path, opts)
  if not utf8.len(new) then
    return errors.fail("FS_NOT_TEXT", "the new text is not UTF-8 text",
      { path = path, stage = "fs" })
  end
  local call = options(self, opts)
  local version, err, count = fence.edit(path, old, new, call)
  if not version then
    err.count = count
    return failed(opts, call.policy, "edit", err)
  end
  return version, err -- the count
end

--- policy(opts) gives the policy of a call (nil: no fence), root(opts) the
-- directory of relative paths.
function M.new(policy, root)
  return setmetatable({ policy = policy, root = root }, files)
end

return M
