--- dsh.doctor: what works on this host, what each backend was seen to refuse,
-- what lies outside the model and how much of it there is.
--
-- It compares two things that come about separately: the claim (the grade of
-- the short probe, which results carry) and the finding (the matrix). It is
-- content only if nothing was found that the claim denies.
local core = require("dsh.core")
local matrix = require("dsh.matrix")

local M = {}

local COUNT_MS = 10000

-- limits ---------------------------------------------------------------------

-- Listening sockets with a path: daemons that work for whoever asks.
local function count_sockets()
  local f = io.open("/proc/net/unix", "r")
  if not f then
    return nil
  end
  local seen, count = {}, 0
  for line in f:lines() do
    local flags, path = line:match("^%S+ %S+ %S+ (%x+) %S+ %S+ +%d+ (/.*)$")
    -- __SO_ACCEPTCON: somebody accepts connections there
    if flags and tonumber(flags, 16) & 0x10000 ~= 0 and not seen[path]
      and core.sys.kind(path) then
      seen[path], count = true, count + 1
    end
  end
  f:close()
  return count
end

-- Files in the workspace that have other names, which may lie outside it.
local function count_links(provider, root)
  local record = provider:confine({ "/bin/sh", "-c",
    'find "$1" -xdev -type f -links +1 -printf x 2>/dev/null | wc -c', "sh",
    root }, { mode = "danger-full-access", workspace_root = root })
  local result = record and require("dsh.runner").run(record,
    { cwd = "/", timeout_ms = COUNT_MS })
  if not result or result.exit_code ~= 0 or result.timed_out then
    return nil
  end
  return tonumber(result.stdout.text)
end

local function add_counts(limits, provider, root)
  local counts = { ["older-hard-links"] = { count_links(provider, root),
    "files in the workspace with more than one name" },
    ["outside-daemons"] = { count_sockets(), "listening sockets with a path" } }
  for _, limit in ipairs(limits) do
    local c = counts[limit.effect]
    if c then
      limit.count, limit.counted = c[1], c[2]
    end
  end
  return limits
end

-- findings -------------------------------------------------------------------

local function tally(report, backend, mode)
  local t = { tried = 0, refused = 0, allowed = 0, impossible = 0, broken = 0 }
  for _, cell in ipairs(report.cells) do
    if cell.backend == backend and cell.mode == mode then
      if cell.judgement == "impossible" then
        t.impossible = t.impossible + 1
      else
        t.tried = t.tried + 1
        t.allowed = t.allowed + (cell.verdict == "done" and 1 or 0)
        t.refused = t.refused + (cell.verdict ~= "done" and 1 or 0)
        t.broken = t.broken + (cell.judgement == "broken" and 1 or 0)
      end
    end
  end
  return t
end

-- What the matrix found and the claim does not admit.
local function unclaimed(found, claim)
  local admitted, list = {}, {}
  for _, gap in ipairs(claim.gaps or {}) do
    admitted[gap.effect] = true
  end
  for _, gap in ipairs(found) do
    if not (claim.enforcement == "partial" and (admitted[gap.effect]
      or admitted.all)) then
      list[#list + 1] = gap
    end
  end
  return list
end

-- Where a gap is named, the other backend of course answers differently.
local function unexplained(report)
  local n = 0
  for _, d in ipairs(report.disagree) do
    if d.a.judgement ~= "gap" and d.b.judgement ~= "gap" then
      n = n + 1
    end
  end
  return n
end

local function examine_mode(report, backend, mode, claim)
  local found = matrix.gaps(report, backend, mode, "F")
  local other = matrix.gaps(report, backend, mode, "N")
  local denied = unclaimed(found, claim)
  table.move(unclaimed(other, claim), 1, #other, #denied + 1, denied)
  local t = tally(report, backend, mode)
  return { mode = mode, claimed = claim.enforcement, gaps = claim.gaps,
    found = found, promises_broken = other, unclaimed = denied, tried = t.tried,
    refused = t.refused, allowed = t.allowed, impossible = t.impossible,
    broken = t.broken, proven = #denied == 0 and t.tried > 0 }
end

local function findings(data)
  local list = {}
  local usable = 0
  for _, b in ipairs(data.backends) do
    usable = usable + (b.usable and 1 or 0)
    for _, m in ipairs(b.modes or {}) do
      for _, gap in ipairs(m.unclaimed) do
        list[#list + 1] = ("%s, %s: %s: %s"):format(b.backend, m.mode,
          gap.effect, gap.reason)
      end
      if m.tried == 0 then
        list[#list + 1] = ("%s, %s: nothing could be tried"):format(b.backend,
          m.mode)
      end
      if m.broken > 0 then
        list[#list + 1] = ("%s, %s: %d operations that the mode grants were "
          .. "refused"):format(b.backend, m.mode, m.broken)
      end
    end
  end
  if usable == 0 then
    list[#list + 1] = "no backend is usable on this host"
  end
  if data.disagree > 0 then
    list[#list + 1] = ("%d cells where the backends disagree"):format(
      data.disagree)
  end
  return list
end

local function first_line(path)
  local f = io.open(path, "r")
  local line = f and f:read("l")
  if f then
    f:close()
  end
  return line
end

local function plain_limits(list)
  local out = {}
  for i, limit in ipairs(list or {}) do
    out[i] = { effect = limit.effect, reason = limit.reason }
  end
  return out
end

local function usable_names(results)
  local list = {}
  for _, r in ipairs(results) do
    if r.usable then
      list[#list + 1] = r.backend
    end
  end
  return list
end

--- opts {workspace, backend?, whole?} -> data | nil, err. whole: every form
-- and actor, and for uid 0 also as uid 65534.
function M.run(opts)
  local provider <close>, err = core.confine.provider({
    backend = opts.backend })
  if not provider then
    return nil, err
  end
  local results
  results, err = provider:probe()
  if not results then
    return nil, err
  end
  local names, report = usable_names(results), nil
  if #names > 0 then
    local users = { core.sys.uid() }
    if opts.whole and users[1] == 0 then
      users[2] = matrix.NOBODY
    end
    report, err = matrix.run({ backends = names, users = users,
      quick = not opts.whole })
    if not report then
      return nil, err
    end
  end
  local data = { kernel = first_line("/proc/sys/kernel/osrelease"),
    uid = core.sys.uid(), backends = {}, limits = {},
    disagree = report and unexplained(report) or 0, matrix = report }
  for i, r in ipairs(results) do
    local b = { backend = r.backend, usable = r.usable, cause = r.cause,
      stage = r.stage, errno = r.errno_name, detail = r.detail, fix = r.fix }
    if r.usable then
      b.modes = {}
      for k, mode in ipairs(matrix.MODES) do
        b.modes[k] = examine_mode(report, r.backend, mode, r.grades[mode])
      end
      if #data.limits == 0 then
        data.limits = plain_limits(r.grades["read-only"].limits)
      end
    end
    data.backends[i] = b
  end
  add_counts(data.limits, provider, opts.workspace)
  data.findings = findings(data)
  data.ok = #data.findings == 0
  return data
end

-- words ----------------------------------------------------------------------

local function mode_lines(out, m)
  out[#out + 1] = ("  %-16s %s, %s: %d tried, %d refused, %d granted and done, "
    .. "%d impossible here"):format(m.mode, m.claimed,
    m.proven and "proven" or "NOT PROVEN", m.tried, m.refused, m.allowed,
    m.impossible)
  for _, gap in ipairs(m.gaps) do
    out[#out + 1] = ("    not governed: %s (%s)"):format(gap.effect, gap.reason)
  end
  for _, gap in ipairs(m.unclaimed) do
    out[#out + 1] = ("    FOUND OPEN: %s (%s)"):format(gap.effect, gap.reason)
  end
  if m.broken > 0 then
    out[#out + 1] = ("    refused although granted: %d"):format(m.broken)
  end
end

local function accepted_lines(out, report)
  local seen = {}
  for _, cell in ipairs(report.accepted) do
    local reason = matrix.accepted(cell)
    if not seen[reason] then
      seen[reason] = true
      out[#out + 1] = "  " .. reason
    end
  end
end

local function note_lines(out, report)
  local seen = {}
  for _, cell in ipairs(report.note) do
    if not seen[cell.op] and cell.verdict == "done" then
      seen[cell.op] = true
      out[#out + 1] = ("  %-22s %s"):format(cell.op,
        report.operations[cell.op].note)
    end
  end
end

--- The data as lines for a person.
function M.text(data)
  local out = { ("kernel %s, uid %d"):format(data.kernel or "unknown",
    data.uid) }
  for _, b in ipairs(data.backends) do
    if b.usable then
      out[#out + 1] = b.backend .. ": usable"
      for _, m in ipairs(b.modes) do
        mode_lines(out, m)
      end
    else
      out[#out + 1] = ("%s: not usable (%s)"):format(b.backend,
        b.cause or b.stage or "unknown")
      for _, name in ipairs({ "stage", "errno", "detail", "fix" }) do
        if b[name] then
          out[#out + 1] = ("  %-8s %s"):format(name, b[name])
        end
      end
    end
  end
  out[#out + 1] = "outside the model, on any backend:"
  for _, limit in ipairs(data.limits) do
    local count = limit.counted and (" [%s: %s]"):format(limit.counted,
      limit.count or "not counted") or ""
    out[#out + 1] = ("  %-18s %s%s"):format(limit.effect, limit.reason, count)
  end
  if data.matrix then
    out[#out + 1] = "went through, as said:"
    note_lines(out, data.matrix)
    out[#out + 1] = "refused although the mode grants it, and known:"
    accepted_lines(out, data.matrix)
    out[#out + 1] = ("%d cells, %d impossible here, %.1f s"):format(
      #data.matrix.cells, data.matrix.counts.impossible, data.matrix.seconds)
  end
  for _, finding in ipairs(data.findings) do
    out[#out + 1] = "FINDING: " .. finding
  end
  out[#out + 1] = data.ok and "what is claimed was proven"
    or "what is claimed was NOT proven"
  return table.concat(out, "\n")
end

return M
