--- dshsh confine: the confined argv as JSON; nothing runs.
local json = require("dsh.json")
local open = require("dsh.cli_open")
local record = require("dsh.record")

local ORDER = { "argv", "confined", "enforcement", "gaps", "limits",
  "backend", "denialSignatures", "runnerFailureRules" }

return {
  name = "confine",
  summary = "print the confined argv as JSON",
  usage_status = 125,
  command = true,
  setup = function(cmd)
    open.options(cmd)
    cmd:epilog("The command and its arguments follow a '--'.")
  end,
  run = function(args, app)
    if #app.command == 0 then
      app.err("confine: no command after '--'")
      return 125
    end
    local ctx, mode, _, root = open.open(args)
    if not ctx then
      return nil, mode
    end
    local plan, err = ctx.sandbox:confine(app.command,
      { mode = mode, workspace_root = root })
    ctx:close()
    if not plan then
      return nil, err
    end
    print(json.encode(record.plain(plan, ORDER), 2))
    return 0
  end,
}
