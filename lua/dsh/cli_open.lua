--- dsh.cli_open: what the verbs that confine share: their options, and the
-- context made from them. (Not a verb.)
local sys = require("dsh.core").sys

local M = {}

local MODES = { "read-only", "workspace-write", "danger-full-access" }

--- Adds --mode, --workspace and --backend to an argparse command.
function M.options(cmd)
  cmd:option("--mode", "read-only, workspace-write or danger-full-access.")
    :argname("<mode>"):choices(MODES)
  cmd:option("--workspace", "The directory that workspace-write may write.")
    :argname("<dir>")
  cmd:option("--backend", "Use this backend alone."):argname("<name>")
  cmd:option("--patch", "A patch of the profile (may be repeated).")
    :argname("<file>"):count("*")
end

--- The canonical workspace root, or nil, message.
function M.workspace(dir)
  dir = dir or "."
  local path = sys.realpath(dir)
  if not path then
    return nil, ("--workspace: %s does not exist"):format(dir)
  elseif sys.kind(path) ~= "directory" then
    return nil, ("--workspace: %s is not a directory"):format(dir)
  end
  return path
end

--- The mode and where it comes from: "--mode", "$DSH_PERMISSION_MODE" or
-- "base profile".
function M.mode(given)
  if given then
    return given, "--mode"
  end
  local env = os.getenv("DSH_PERMISSION_MODE")
  if env and env ~= "" then
    for _, mode in ipairs(MODES) do
      if mode == env then
        return mode, "$DSH_PERMISSION_MODE"
      end
    end
    return nil, ("DSH_PERMISSION_MODE: unknown mode '%s'"):format(env)
  end
  return "workspace-write", "base profile"
end

--- ctx, mode, where the mode comes from; or nil, error.
function M.open(args)
  local root, why = M.workspace(args.workspace)
  if not root then
    return nil, why
  end
  local mode, from = M.mode(args.mode)
  if not mode then
    return nil, from
  end
  local ctx, err = require("dsh").open({ mode = mode, workspace_root = root,
    backend = args.backend })
  if not ctx then
    return nil, err
  end
  return ctx, mode, from, root
end

return M
