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

--- ctx, mode, where the mode comes from, root; or nil, error. The base
-- profile with the user's and the given patches, of which only the sandbox
-- and its policy are started.
function M.open(args)
  local root, why = M.workspace(args.workspace)
  if not root then
    return nil, why
  end
  local dsh = require("dsh")
  local ctx, err = dsh.open({ profile = "base", patches = args.patch,
    only = { "sandbox", "sandbox-policy" }, mode = args.mode,
    workspace_root = root, backend = args.backend,
    warn = function(message)
      io.stderr:write("dshsh: ", message, "\n")
    end })
  if not ctx then
    return nil, err
  end
  return ctx, ctx.sandbox_policy.default_mode, args.mode and "--mode"
    or dsh.origin(ctx, "sandbox-policy", "mode"), root
end

return M
