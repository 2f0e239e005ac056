--- dsh.sandbox: the definition. The vocabulary of the sandbox and what a
-- provider of it must do; it needs no backend and loads none.
--
-- A provider (a service named "sandbox") has
--   confine(argv, policy) -> record | nil, err     argv: exact words
--   run(argv, opts)       -> result | nil, err
--   probe()               -> findings | nil, err
--   reprobe()
-- where policy is {mode, workspace_root, session_id?, extra_roots?,
-- protected?, temp?, temp_dir?}, complete, and record is {argv, confined,
-- enforcement, gaps, limits, backend, denial_signatures,
-- runner_failure_rules}. Under danger-full-access it gives the argv back,
-- confined = false, and claims nothing.
local M = {}

M.MODES = { "read-only", "workspace-write", "danger-full-access" }
M.DEFAULT_MODE = "read-only"

local WIDTH = {}
for i, mode in ipairs(M.MODES) do
  WIDTH[mode] = i
end

--- Is this one of the three?
function M.is_mode(mode)
  return WIDTH[mode] ~= nil
end

--- Is mode a strictly wider than mode b? Raises for an unknown one.
function M.is_wider(a, b)
  for _, mode in ipairs({ a, b }) do
    if not WIDTH[mode] then
      error(('mode: expected "read-only", "workspace-write" or '
        .. '"danger-full-access", got %s'):format(tostring(mode)), 2)
    end
  end
  return WIDTH[a] > WIDTH[b]
end

return M
