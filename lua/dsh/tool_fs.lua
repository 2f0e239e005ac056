--- dsh.tool_fs: read, write and edit as tools for a model, over service fs.
--
--   tools.read, tools.write, tools.edit, each {name, description, parameters}
--   tools.read:call(args, {session?, call_id?})
--     -> {text =, is_error =, version? | error?}
--
-- A file that exists is written or edited only after this session read it, and
-- only while it is still what was read. Nothing here raises for what a model
-- passes. A denied change may ask for a wider policy, for itself alone.
local errors = require("dsh.errors")
local escalation = require("dsh.escalation")
local record = require("dsh.record")

local M = {
  provides = "tool_fs",
  needs = { "fs", "sandbox_policy", "approval?" },
  schema = {
    lines = { type = "number", default = 2000 },
    lineBytes = { type = "number", default = 2000 },
  },
}

local function prop(kind, description)
  return { type = kind, description = description }
end

local PATH = prop("string", "Absolute path, or relative to the workspace.")
local WIDER = {
  escalateMode = { type = "string",
    enum = { "workspace-write", "danger-full-access" },
    description = "Ask for this wider file policy, for this one call." },
  grantPath = prop("string", "Ask to make this one absolute path writable."),
  reason = prop("string", "Why; required with the two above."),
}

local function parameters(properties, required, writes)
  for name, p in pairs(writes and WIDER or {}) do
    properties[name] = p
  end
  return { type = "object", additionalProperties = false, required = required,
    properties = properties }
end

local TOOLS = {
  read = {
    description = "Reads a text file, with line numbers.",
    parameters = parameters({ path = PATH,
      from = prop("integer", "First line, from 1."),
      count = prop("integer", "How many lines.") }, { "path" }),
  },
  write = {
    description = "Creates a text file, or replaces one that was read.",
    parameters = parameters({ path = PATH,
      text = prop("string", "The whole new content.") },
      { "path", "text" }, true),
  },
  edit = {
    description = "Replaces a passage of a text file that was read.",
    parameters = parameters({ path = PATH,
      old = prop("string", "The passage, exactly as in the file."),
      new = prop("string", "What stands there afterwards."),
      replaceAll = prop("boolean", "Every occurrence, not only one.") },
      { "path", "old", "new" }, true),
  },
}

local LUA_TYPES = { string = "string", integer = "number",
  boolean = "boolean" }

local function check(tool, args)
  if type(args) ~= "table" then
    return errors.new("MISUSE", "arguments: expected an object")
  end
  local known = tool.parameters.properties
  for key, value in pairs(args) do
    local want = known[key] and LUA_TYPES[known[key].type]
    if not want then
      return errors.new("MISUSE", tostring(key) .. ": unknown argument")
    elseif type(value) ~= want then
      return errors.new("MISUSE", ("%s: expected %s, got %s"):format(key, want,
        type(value)))
    end
  end
  for _, key in ipairs(tool.parameters.required) do
    if args[key] == nil then
      return errors.new("MISUSE", key .. ": is missing")
    end
  end
  if args.path == "" or args.path:find("\0", 1, true) then
    return errors.new("MISUSE", "path: is empty or has a NUL byte")
  end
  for _, key in ipairs({ "from", "count" }) do
    if args[key] and (args[key] < 1 or args[key] % 1 ~= 0) then
      return errors.new("MISUSE", key .. ": expected a number from 1")
    end
  end
end

local function failure(err)
  return { text = ("[%s]"):format(record.utf8(tostring(err))),
    is_error = true, error = err }
end

-- What each session read: canonical path -> version. Weak, so that it ends
-- with the session.
local function seen_by(self, session)
  local key = session or self
  self.seen[key] = self.seen[key] or {}
  return self.seen[key]
end

local function canonical(self, path, session)
  return self.fs:resolve(path, { session = session })
end

local function shorten(line, max)
  if #line <= max then
    return line
  end
  local cut = utf8.offset(line, 0, max + 1) or max + 1
  return line:sub(1, cut - 1) .. (" [%d bytes more]"):format(#line - cut + 1)
end

local function read(self, args, call)
  local path, err = canonical(self, args.path, call.session)
  if not path then
    return failure(err)
  end
  local from = args.from or 1
  local count = math.min(args.count or self.lines, self.lines)
  local lines, info = self.fs:lines(path, { from = from, count = count })
  if not lines then
    return failure(info)
  end
  seen_by(self, call.session)[path] = info.version
  local out = {}
  for i, line in ipairs(lines) do
    out[i] = ("%6d\t%s"):format(from + i - 1, shorten(line, self.line_bytes))
  end
  if from + #lines - 1 < info.total then
    out[#out + 1] = ("[lines %d to %d of %d; call again with from = %d]")
      :format(from, from + #lines - 1, info.total, from + #lines)
  elseif #lines == 0 then
    out[1] = ("[no line %d: the file has %d]"):format(from, info.total)
  end
  return { text = table.concat(out, "\n"), is_error = false,
    version = info.version }
end

-- The options of a write: the policy (perhaps a wider one that somebody just
-- granted) and the version that was read; nil, err.
local function write_options(self, tool, args, call)
  local opts = { session = call.session,
    policy = self.policy:resolve({ session = call.session }) }
  if args.escalateMode or args.grantPath then
    local to = args.escalateMode and { mode = args.escalateMode }
      or { path = args.grantPath, access = "write" }
    local policy, err = escalation.ask(self.approval, { policy = opts.policy,
      to = to, reason = args.reason, tool = tool.name,
      action = { path = args.path }, session = call.session,
      call_id = call.call_id })
    if not policy then
      return nil, err
    end
    opts.policy = policy
  elseif args.reason then
    return errors.fail("MISUSE",
      "reason: goes with escalateMode or grantPath")
  end
  local path = canonical(self, args.path, call.session)
  if not path then
    opts.intent = "create"
    return opts
  end
  opts.version = seen_by(self, call.session)[path]
  if not opts.version then
    return errors.fail("FS_STALE",
      ("%q exists and was not read in this session: read it first"):format(
        path), { path = path, stage = "tool" })
  end
  opts.intent = "replace"
  return opts
end

local function done(self, args, call, version, text)
  local path = canonical(self, args.path, call.session)
  if path then
    seen_by(self, call.session)[path] = version
  end
  return { text = text, is_error = false, version = version }
end

-- The smallest grant that would serve: the file, or where it would be made.
local function grant_for(self, path)
  local to = escalation.proposal({ op = "write", path = path }, function(p)
    return self.fs.lstat ~= nil and self.fs:lstat(p) ~= nil
  end)
  return to and to.path
end

local function hinted(self, err)
  local out = failure(err)
  if err.code ~= "FS_SANDBOX_DENIED" then
    return out
  end
  local path = self.approval and grant_for(self, err.path)
  out.text = out.text .. (path
    and ('\n[if this change is needed: call again with grantPath = "%s" '
      .. "and a reason]"):format((record.utf8(path):gsub("%c", "?")))
    or "\n[nobody can allow more here; say what is needed instead]")
  return out
end

local function write(self, tool, args, call)
  local opts, err = write_options(self, tool, args, call)
  if not opts then
    return failure(err)
  end
  local version
  version, err = self.fs:write_text(args.path, args.text, opts)
  if not version then
    return hinted(self, err)
  end
  return done(self, args, call, version, ("[wrote %d bytes to %s]"):format(
    #args.text, record.utf8(args.path)))
end

local function edit(self, tool, args, call)
  local opts, err = write_options(self, tool, args, call)
  if not opts then
    return failure(err)
  end
  opts.intent, opts.replace_all = nil, args.replaceAll
  local version, count = self.fs:edit_text(args.path, args.old, args.new, opts)
  if not version then
    return hinted(self, count)
  end
  return done(self, args, call, version, ("[replaced %d %s in %s]"):format(
    count, count == 1 and "passage" or "passages", record.utf8(args.path)))
end

local ACTIONS = { read = function(self, _, args, call)
  return read(self, args, call)
end, write = write, edit = edit }

function M.start(deps, config)
  local self = { fs = deps.fs, policy = deps.sandbox_policy,
    approval = deps.approval, lines = config.lines or 2000,
    line_bytes = config.lineBytes or 2000,
    seen = setmetatable({}, { __mode = "k" }) }
  local tools = {}
  for name, spec in pairs(TOOLS) do
    local tool = { name = name, description = spec.description,
      parameters = spec.parameters }
    function tool.call(_, args, call)
      local err = check(tool, args)
      if err then
        return failure(err)
      end
      return ACTIONS[name](self, tool, args, call or {})
    end
    tools[name] = tool
  end
  return tools
end

return M
