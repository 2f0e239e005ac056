--- dshsh --dump-config: the composed rows, nothing started.
local dsh = require("dsh")
local dump = require("dsh.dump")

local function setup(cmd)
  cmd:flag("--resolved",
    "Show final values and defaults, each with its origin.")
  cmd:option("--profile", "The profile: a name or a file.", "base")
    :argname("<profile>")
  cmd:option("--patch", "A patch, YAML or Lua (may be repeated).")
    :argname("<file>"):count("*")
  cmd:option("--set", "Set one config value (may be repeated).")
    :argname("<row.key=value>"):count("*")
  cmd:option("--platform", "Compose as on linux, macos or windows.")
    :argname("<name>"):choices({ "linux", "macos", "windows" })
  cmd:option("--mode", "The mode of row sandbox-policy."):argname("<mode>")
  cmd:option("--workspace", "The root of row sandbox-policy.")
    :argname("<dir>")
end

local function run(args, app)
  local comp, host = dsh.compose({ profile = args.profile,
    patches = args.patch, set = args.set, platform = args.platform,
    mode = args.mode, workspace_root = args.workspace,
    warn = function(message) app.err("%s", message) end })
  if not comp then
    return nil, host
  end
  local text, err = dump.text(comp, host, args.resolved)
  if not text then
    return nil, err
  end
  if not (io.stdout:write(text) and io.stdout:flush()) then
    return nil, "cannot write to standard output"
  end
  return 0
end

return {
  name = "config",
  flag = "--dump-config",
  summary = "print the composition (also: dshsh --dump-config)",
  setup = setup,
  run = run,
}
