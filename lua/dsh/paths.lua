--- dsh.paths: where the parts of this installation are.
-- In a checkout: TREE/lua, TREE/build/landlock-run, TREE/profiles.
-- Installed: PREFIX/share/dshsh, PREFIX/libexec/dshsh/landlock-run,
-- PREFIX/share/dshsh/profiles. Everything hangs on where this very file is;
-- no environment variable moves it.
local sys = require("dsh.core").sys

local M = {}

local function parent(path)
  return path:match("^(.+)/[^/]+$") or "/"
end

local function find()
  local source = debug.getinfo(1, "S").source:match("^@(.*)$")
  local real = source and sys.realpath(source)
  return real and parent(parent(real)) or "/nonexistent"
end

--- The directory that holds dsh/*.lua, canonical.
M.lua = find()
local top = parent(M.lua)
--- True when this is a source tree rather than an installation.
M.checkout = M.lua:match("[^/]*$") == "lua"
  and sys.kind(top .. "/profiles") == "directory"

local libexec = M.checkout and top .. "/build"
  or parent(top) .. "/libexec/dshsh"

--- The static launcher, the probe program; the profiles that come with it.
M.launcher = libexec .. "/landlock-run"
M.probe = libexec .. "/dsh-probe"
M.profiles = M.checkout and top .. "/profiles" or M.lua .. "/profiles"

--- $DSH_HOME, by default ~/.dsh (nil without a home).
function M.home()
  local dir = os.getenv("DSH_HOME")
  if dir and dir ~= "" then
    return dir
  end
  local home = os.getenv("HOME")
  return home and home ~= "" and home .. "/.dsh" or nil
end

--- Everything that no confined command may ever write (for the control
-- list of the core): the modules, the launcher, the profiles.
function M.control()
  return { M.lua, libexec, M.profiles }
end

return M
