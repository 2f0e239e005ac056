--- remote.lua: shell, fs and terminal on another machine, as one group.
--
-- Commands, files and terminals have to be in the same place, so one row
-- provides all three and says where (`place`). Every call goes through a
-- command that leads there: {"chroot", DIR}, {"ssh", HOST}, {"docker",
-- "exec", "-i", NAME}. The far side confines by its own landlock-run (one
-- static file), so a mode means there what it means here. Put this file on
-- package.path and patch it in:
--
--   - {id: bash-sandbox, disabled: true}
--   - {id: fs-sandbox, disabled: true}
--   - {id: terminal, disabled: true}
--   - insert:
--       - id: remote
--         name: remote
--         config: {command: [ssh, box], quote: true, workspace: /srv/work}
local errors = require("dsh.errors")
local terminal = require("dsh.terminal")

local M = {
  provides = { "shell", "fs", "terminal" },
  needs = { "sandbox", "sandbox_policy" },
  place = "remote",
  schema = {
    command = { type = "list", items = { type = "string" }, required = true,
      min = 1 },
    quote = { type = "boolean", default = false }, -- ssh joins its words
    launcher = { type = "string", default = "/bin/landlock-run" },
    workspace = { type = "string", required = true }, -- a path over there
    shell = { type = "string", default = "/bin/bash" },
  },
}

-- argv over there, confined there. An unknown mode reaches nobody.
local function confined(self, argv, mode)
  local words
  if mode == "read-only" then
    words = { self.launcher, "--mode", mode, "--ro", "/", "--dev", "--" }
  elseif mode == "workspace-write" then
    words = { self.launcher, "--mode", mode, "--ro", "/", "--dev",
      "--rw", self.workspace, "--" }
  elseif mode == "danger-full-access" then
    words = {}
  else
    error("remote: unknown mode " .. tostring(mode))
  end
  return table.move(argv, 1, #argv, #words + 1, words)
end

local function quoted(words)
  for i, word in ipairs(words) do
    words[i] = "'" .. word:gsub("'", [['\'']]) .. "'"
  end
  return { table.concat(words, " ") }
end

-- The local argv that leads there. cd is done there; a bad one is exit 125.
local function there(self, argv, mode, dir)
  local words = { "/bin/sh", "-c",
    'cd "$0" || exit 125; exec "$@"', dir or self.workspace }
  table.move(argv, 1, #argv, #words + 1, words)
  words = confined(self, words, mode)
  if self.quote then
    words = quoted(words)
  end
  local out = table.move(self.command, 1, #self.command, 1, {})
  return table.move(words, 1, #words, #out + 1, out)
end

-- What leads there is our own program, not the caller's command: it runs
-- under danger-full-access here, through confine like everything.
local HERE = { mode = "danger-full-access", workspace_root = "/" }

local function facts(mode)
  return { mode = mode, denied = false,
    backend = mode ~= "danger-full-access" and "landlock-run (remote)" or nil,
    enforcement = mode ~= "danger-full-access" and "partial" or nil,
    gaps = mode ~= "danger-full-access"
      and { { effect = "all", reason = "not probed" } } or nil }
end

local function mode_of(self, opts)
  local policy = opts.policy or self.policy:resolve({ session = opts.session,
    mode = opts.mode })
  return policy.mode
end

local function run(self, argv, opts)
  local mode = mode_of(self, opts)
  local r, err = self.sandbox:run(there(self, argv, mode, opts.workdir),
    { policy = HERE, stdin = opts.stdin, timeout_ms = opts.timeout_ms })
  if not r then
    return nil, err
  end
  -- Nothing proves a start over there; words and status are all there is.
  local words = r.exit_code == 125
    and ("\n" .. r.stderr.text):match("\n(landlock%-run: [^\n]*)")
  if words then
    return errors.fail("SANDBOX_UNAVAILABLE", "remote: " .. words,
      { stage = "remote" })
  end
  r.sandbox = facts(mode)
  r.started = "unknown"
  local text = r.stderr.text:lower()
  if mode ~= "danger-full-access" and (r.exit_code or 0) ~= 0
    and (text:find("permission denied", 1, true)
      or text:find("read-only file system", 1, true)) then
    r.sandbox.denied, r.sandbox.evidence = true, "stderr"
  end
  return r
end

-- shell ----------------------------------------------------------------------

local shell = {}
shell.__index = shell

function shell:run(opts)
  return run(self.remote, { self.remote.shell, "-c", opts.command }, opts)
end

-- fs: the same door, the same confinement, so no file that one can write and
-- the other cannot ----------------------------------------------------------

local fs = {}
fs.__index = fs

local function file_error(r, path)
  local code = r.sandbox.denied and "FS_SANDBOX_DENIED"
    or r.stderr.text:find("No such file", 1, true) and "FS_NOT_FOUND"
    or "FS_IO"
  return errors.fail(code, ("%s (%s): %s"):format(path, r.sandbox.mode,
    r.stderr.text:match("^[^\n]*")), { stage = "remote", path = path })
end

function fs:read_text(path, opts)
  local r, err = run(self.remote, { "cat", "--", path }, opts or {})
  if not r then
    return nil, err
  elseif r.exit_code ~= 0 then
    return file_error(r, path)
  end
  return r.stdout.text
end

function fs:write_text(path, text, opts)
  local given = { stdin = text }
  for key, value in pairs(opts or {}) do
    given[key] = value
  end
  local r, err = run(self.remote, { "/bin/sh", "-c", 'cat > "$0"', path },
    given)
  if not r then
    return nil, err
  elseif r.exit_code ~= 0 then
    return file_error(r, path)
  end
  return true
end

-- terminal: the ordinary service over a sandbox that leads there ----------

local function far_sandbox(remote)
  local far = {}
  function far.start(_, argv, opts)
    local mode = opts.policy.mode
    local given = {}
    for key, value in pairs(opts) do
      given[key] = value
    end
    given.policy, given.cwd = HERE, nil
    local handle, err = remote.sandbox:start(there(remote, argv, mode), given)
    if handle then
      local known = facts(mode)
      known.confined = mode ~= "danger-full-access"
      handle.confined = known
    end
    return handle, err
  end
  return far
end

function M.start(deps, config)
  local remote = { sandbox = deps.sandbox, policy = deps.sandbox_policy,
    command = config.command, quote = config.quote, shell = config.shell,
    launcher = config.launcher, workspace = config.workspace }
  local terms = terminal.start({ sandbox = far_sandbox(remote),
    sandbox_policy = deps.sandbox_policy },
    { shell = config.shell, max_open = 10 })
  return { shell = setmetatable({ remote = remote }, shell),
    fs = setmetatable({ remote = remote }, fs), terminal = terms }
end

return M
