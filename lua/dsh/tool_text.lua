--- dsh.tool_text: results as text for a model. Pure.
--
-- The command's own words come first and unchanged (bytes that are no UTF-8
-- replaced); what we add stands in lines of brackets after them.
local escalation = require("dsh.escalation")
local record = require("dsh.record")

local M = {}

local SHOWN <const> = 5 -- denials named one by one

local function add(lines, text, ...)
  lines[#lines + 1] = select("#", ...) > 0 and text:format(...) or text
end

-- One line, whatever a path contains.
local function plain(text)
  return (record.utf8(text):gsub("%c", "?"))
end

local function output(lines, name, out)
  local text = record.utf8(out.text)
  if text == "" then
    return
  end
  if name ~= "stdout" then
    add(lines, "[" .. name .. "]")
  end
  if out.truncated then
    add(lines, "[only the last %d of %d bytes are shown%s]", #out.text,
      out.total or #out.text, out.spill_path and "; all of it is in "
        .. plain(out.spill_path) or "")
  end
  add(lines, (text:gsub("\n$", "")))
end

local function ended(r)
  if r.started == "no" then
    return ("[not started: %s%s]"):format(r.stage == "exec"
      and "the program cannot be executed" or "stage "
      .. tostring(r.stage), r.errno_name and ", " .. r.errno_name or "")
  elseif r.timed_out then
    return "[ended at its time limit, with all that it had started]"
  elseif r.aborted then
    return "[aborted, with all that it had started]"
  elseif r.signal then
    return ("[killed by signal %d]"):format(r.signal)
  elseif r.exit_code then
    return ("[exit status %d]"):format(r.exit_code)
  end
  return "[it is not known how it ended]"
end

local function denial_line(d)
  local line = ("  %s %s"):format(d.op, plain(d.path))
  if d.path2 then
    line = line .. " -> " .. plain(d.path2)
  end
  return line .. ": " .. tostring(d.errno)
end

-- The smallest thing that would help, in the words of the arguments.
local function hint(sandbox, hints)
  if not hints.approval then
    return "[nobody can allow more here; say what is needed instead]"
  end
  for _, d in ipairs(sandbox.denials or {}) do
    local to = not d.also_permissions
      and escalation.proposal(d, hints.exists or function()
        return true
      end)
    if to then
      return ('[if this change is needed: call again with grantPath = "%s" '
        .. "and a reason]"):format(plain(to.path))
    end
  end
  local wider = sandbox.mode == "read-only" and "workspace-write"
    or "danger-full-access"
  return ('[if this change is needed: call again with escalateMode = "%s" '
    .. "and a reason]"):format(wider)
end

local function denied(lines, r, hints)
  local sandbox, n = r.sandbox, 0
  if not sandbox.denied then
    return
  end
  add(lines, "[denied by the file policy %s%s]", sandbox.mode,
    sandbox.evidence == "stderr" and ", as the command's words suggest" or "")
  for _, d in ipairs(sandbox.denials or {}) do
    if not d.also_permissions then
      n = n + 1
      if n <= SHOWN then
        add(lines, denial_line(d))
      end
    end
  end
  if n > SHOWN then
    add(lines, "  and %d more", n - SHOWN)
  end
  add(lines, hint(sandbox, hints or {}))
end

--- A finished run. hints: {approval = can anybody grant more, exists = f}.
function M.result(r, hints)
  local lines = {}
  output(lines, "stdout", r.stdout)
  output(lines, "stderr", r.stderr)
  if r.exit_code ~= 0 or r.sandbox.denied or #lines == 0 then
    add(lines, ended(r))
  end
  denied(lines, r, hints)
  return table.concat(lines, "\n")
end

--- An error record.
function M.failure(err)
  return ("[%s: %s]"):format(err.code, record.utf8(err.message))
end

--- A job that has just begun.
function M.started(job, command)
  local line = command:match("^[^\n]*")
  return ("[%s started under %s: %s]"):format(job.id, job.mode,
    plain(#line > 80 and line:sub(1, 77) .. "..." or line))
end

--- What a job has said since the last look, and how it stands.
function M.job(job, out, err, hints)
  local lines = {}
  for _, part in ipairs({ { "stdout", out }, { "stderr", err } }) do
    local text, lost = part[2].text, part[2].lost
    if lost > 0 then
      add(lines, "[%d bytes of %s are gone]", lost, part[1])
    end
    if text ~= "" then
      if part[1] == "stderr" then
        add(lines, "[stderr]")
      end
      add(lines, (record.utf8(text):gsub("\n$", "")))
    end
  end
  if not job.done then
    add(lines, "[%s is running]", job.id)
  elseif job.error then
    add(lines, M.failure(job.error))
  elseif job.result then
    add(lines, "[%s is done] %s", job.id, ended(job.result))
    denied(lines, job.result, hints)
  end
  return table.concat(lines, "\n")
end

return M
