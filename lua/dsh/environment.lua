--- dsh.environment: what of the caller's environment a command gets.
--
-- Two kinds. "captured" runs, an agent's, get an allow-list: names that a
-- build or a script needs, and nothing else. "terminal" runs, a person's, get
-- everything but credentials. Neither passes what leads to an outside daemon.
-- What a call passes explicitly is passed, whatever it is called.
local M = {}

local ALLOWED = {}
for name in ([[PATH HOME USER LOGNAME SHELL LANG LANGUAGE TZ TMPDIR TMP TEMP PWD
  HOSTNAME TERM COLORTERM COLUMNS LINES EDITOR VISUAL PAGER MANPATH INFOPATH
  CC CXX CPP LD AR AS NM RANLIB STRIP CFLAGS CXXFLAGS CPPFLAGS LDFLAGS LDLIBS
  MAKEFLAGS MAKELEVEL PKG_CONFIG_PATH PKG_CONFIG_LIBDIR LD_LIBRARY_PATH
  LIBRARY_PATH CPATH C_INCLUDE_PATH CPLUS_INCLUDE_PATH CMAKE_PREFIX_PATH
  CARGO_HOME RUSTUP_HOME RUSTUP_TOOLCHAIN RUSTFLAGS GOPATH GOROOT GOCACHE
  GOMODCACHE GOFLAGS GOPROXY JAVA_HOME MAVEN_OPTS GRADLE_USER_HOME
  NODE_PATH NODE_OPTIONS NVM_DIR PYTHONPATH PYTHONHOME PYENV_ROOT VIRTUAL_ENV
  CONDA_PREFIX LUA_PATH LUA_CPATH LUA_PATH_5_4 LUA_CPATH_5_4 PERL5LIB
  RUBYLIB GEM_HOME GEM_PATH XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
  XDG_STATE_HOME XDG_DATA_DIRS XDG_CONFIG_DIRS CI DEBIAN_FRONTEND NO_COLOR
  SOURCE_DATE_EPOCH HTTP_PROXY HTTPS_PROXY NO_PROXY ALL_PROXY http_proxy
  https_proxy no_proxy all_proxy SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE
  GIT_AUTHOR_NAME GIT_AUTHOR_EMAIL GIT_COMMITTER_NAME GIT_COMMITTER_EMAIL
  WINDIR SYSTEMROOT COMSPEC PATHEXT USERPROFILE APPDATA LOCALAPPDATA
  PROGRAMFILES PROGRAMDATA]]):gmatch("%S+") do
  ALLOWED[name] = true
end

-- Ways to a daemon outside that would do work on request.
local DAEMON = { DOCKER_HOST = true, CONTAINER_HOST = true, TMUX = true,
  TMUX_PANE = true, STY = true, SSH_AUTH_SOCK = true, SSH_AGENT_PID = true,
  GPG_AGENT_INFO = true, DISPLAY = true, WAYLAND_DISPLAY = true,
  XAUTHORITY = true, SYSTEMD_EXEC_PID = true, NOTIFY_SOCKET = true,
  INVOCATION_ID = true, JOURNAL_STREAM = true, KUBECONFIG = true,
  XDG_RUNTIME_DIR = true, VSCODE_IPC_HOOK_CLI = true, ICEAUTHORITY = true }

-- Shapes of credentials. A word counts at a name's start, at its end, or
-- between underscores: KEYBOARD is no key.
local WORDS = { "TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "PASSPHRASE",
  "CREDENTIAL", "CREDENTIALS", "PAT", "AUTH", "COOKIE", "APIKEY",
  "ACCESSKEY", "PRIVATE" }

local function has_word(name, word)
  local padded = "_" .. name:upper():gsub("[^%w]", "_") .. "_"
  return padded:find("_" .. word .. "S?_") ~= nil
    or padded:find("[%w]" .. word .. "_$") ~= nil and #word > 4
end

--- Is this name one of a credential, or shaped like one?
function M.is_credential(name)
  for _, word in ipairs(WORDS) do
    if has_word(name, word) then
      return true
    end
  end
  return false
end

--- Does it lead to a daemon outside, or name a function for bash to run?
function M.is_daemon(name)
  return DAEMON[name] ~= nil or name:match("^DBUS_") ~= nil
    or name:match("^BASH_FUNC_") ~= nil
end

local function passes(name, kind)
  if M.is_daemon(name) or M.is_credential(name) then
    return false
  end
  return kind == "terminal" or ALLOWED[name] or name:match("^LC_") ~= nil
end

local CAPTURED = { NO_COLOR = "1", TERM = "dumb", PAGER = "cat",
  GIT_PAGER = "cat" }

--- The command's environment as a sorted list of "NAME=value", and the sorted
-- names that were dropped.
--   from  the caller's environment, name -> value
--   opts  kind = "captured" | "terminal"; pass = names that pass although
--         they would not; set = name -> value of this call (false removes)
function M.build(from, opts)
  local pass, env, dropped = {}, {}, {}
  for _, name in ipairs(opts.pass or {}) do
    pass[name] = true
  end
  for name, value in pairs(from) do
    if pass[name] or passes(name, opts.kind) then
      env[name] = value
    else
      dropped[#dropped + 1] = name
    end
  end
  if opts.kind ~= "terminal" then
    for name, value in pairs(CAPTURED) do
      env[name] = value
    end
  end
  for name, value in pairs(opts.set or {}) do
    env[name] = value or nil
  end
  local list = {}
  for name, value in pairs(env) do
    list[#list + 1] = name .. "=" .. value
  end
  table.sort(list)
  table.sort(dropped)
  return list, dropped
end

--- Raises for a call's own `env` table that cannot be one.
function M.check(set, what)
  if type(set) ~= "table" then
    error(("%s: expected a table, got %s"):format(what, type(set)), 3)
  end
  for name, value in pairs(set) do
    if type(name) ~= "string" or name == "" or name:find("[=%z]") then
      error(("%s: %q is no variable name"):format(what, tostring(name)), 3)
    elseif value ~= false and type(value) ~= "string" then
      error(("%s.%s: expected a string, got %s"):format(what, name,
        type(value)), 3)
    elseif value and value:find("%z") then
      error(("%s.%s: contains a NUL byte"):format(what, name), 3)
    end
  end
end

return M
