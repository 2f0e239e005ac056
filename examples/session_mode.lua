-- A mode that outlives the process: it is an event in a session's log.
--   DSH_HOME=/tmp/somewhere lua5.4 examples/session_mode.lua
local dsh = require("dsh")

local id
do
  local ctx <close> = assert(dsh.open{})
  local session <close> = assert(ctx.sessions:create{ cwd = "." })
  assert(ctx.sandbox_policy:set_mode(session, "workspace-write"))
  assert(ctx.sandbox_policy:set_mode(session, "read-only"))
  id = session.id
end

-- Later, in a deployment whose default is wider: the log decides.
local ctx <close> = assert(dsh.open{ mode = "workspace-write" })
local session <close> = assert(ctx.sessions:open(id))
local policy = ctx.sandbox_policy:resolve{ session = session }
print(policy.mode, policy.workspace_root)
