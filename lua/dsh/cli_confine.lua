--- dshsh confine: the confined argv as JSON; nothing runs.
local json = require("dsh.json")
local open = require("dsh.cli_open")
local record = require("dsh.record")

local ORDER = { "argv", "confined", "enforcement", "gaps", "limits",
  "backend", "denialSignatures", "runnerFailureRules" }

-- The contract's fields; what our own spawn needs besides stays inside.
local function contract(plan)
  local out = {}
  for _, key in ipairs({ "argv", "confined", "enforcement", "gaps", "limits",
    "backend", "denial_signatures", "runner_failure_rules" }) do
    out[key] = plan[key]
  end
  return out
end

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
    print(json.encode(record.plain(contract(plan), ORDER), 2))
    return 0
  end,
}
