--- dsh.matrix: every operation of the probe program, in every mode, on every
-- backend, as every user that can be taken on: tried bare, tried confined,
-- compared with what the mode means.
--
-- What is expected comes from the mode's meaning (M.expected), never from a
-- recording. A cell that was done but should be refused is a gap; one that was
-- refused but should be done is broken; cells where two backends answer
-- differently disagree. What did not succeed bare proves nothing and is
-- counted as impossible.
local core = require("dsh.core")
local errors = require("dsh.errors")
local paths = require("dsh.paths")
local runner = require("dsh.runner")

local M = {}

M.MODES = { "read-only", "workspace-write" }
M.NOBODY = 65534
local LIMIT_MS = 120000

-- meaning --------------------------------------------------------------------

-- Places that workspace-write grants: the root, the temp directory, and pairs
-- of two granted roots.
local GRANTED = { root = true, temp = true, ["root-to-extra"] = true,
  ["root-to-temp"] = true }

--- What `mode` means for operation op {kind} at a place: "refused", "done",
-- "either" (both answers are right) or "note" (reported, not judged). Pure.
function M.expected(mode, op, place)
  if op.kind == "note" then
    return "note"
  elseif op.kind == "allowed" then
    return "done"
  elseif op.kind == "never" or mode == "read-only" or not GRANTED[place] then
    return "refused"
  end
  return op.kind == "either" and "either" or "done"
end

-- Differences between backends that are known and said, {matches, reason}.
-- A cell is only excused here; where it works after all it is right.
local ACCEPTED = {
  { matches = function(cell)
    return cell.errno == "EXDEV" and cell.place:match("^root%-to%-") ~= nil
  end, reason = "two granted roots can be two mounts, and no rename or link "
    .. "crosses those (EXDEV)" },
  { matches = function(cell)
    return cell.op == "dev-pts-pair" and cell.backend == "landlock"
  end, reason = "where no keeper decides (read-only, not observed), Landlock "
    .. "cannot tell a command's own new terminal from another one of the "
    .. "user, so it opens none; bwrap has a private /dev/pts" },
}

--- Why a refused cell that the mode grants is accepted, or nil. Pure.
function M.accepted(cell)
  for _, a in ipairs(ACCEPTED) do
    if cell.verdict ~= "done" and a.matches(cell) then
      return a.reason
    end
  end
end

--- One cell against that: "right", "gap", "broken", "note", "impossible" or
-- "accepted" (a known difference). Pure.
function M.judge(expected, cell)
  if cell.verdict == "impossible" then
    return "impossible"
  elseif expected == "note" then
    return "note"
  elseif cell.verdict == "not-started" then
    -- a directory as stdin is refused by not starting; else nothing is known
    return cell.op:match("^stdin%-directory") and "right" or "broken"
  elseif expected == "either" then
    return "right"
  elseif expected == "refused" then
    return cell.verdict == "done" and "gap" or "right"
  elseif cell.verdict == "done" then
    return "right"
  end
  return M.accepted(cell) and "accepted" or "broken"
end

-- reading --------------------------------------------------------------------

local function fields(line)
  local list = {}
  for field in (line .. "\t"):gmatch("(.-)\t") do
    list[#list + 1] = field
  end
  return list
end

--- Operations by name and in order, from the program's --list. Pure.
function M.operations(text)
  local list = {}
  for line in text:gmatch("[^\n]+") do
    local f = fields(line)
    local op = { name = f[1], class = f[2], effect = f[3], kind = f[4],
      note = f[5] ~= "" and f[5] or nil }
    list[#list + 1], list[op.name] = op, op
  end
  return list
end

--- Cells and starts from the harness's lines; labels are BACKEND/MODE. Pure.
function M.parse(text, user)
  local out = { cells = {}, starts = {}, whole = false }
  for line in text:gmatch("[^\n]+") do
    local f = fields(line)
    local backend, mode = (f[2] or ""):match("^(.-)/(.*)$")
    if f[1] == "cell" then
      out.cells[#out.cells + 1] = { backend = backend, mode = mode,
        user = user, op = f[3], place = f[4], form = f[5], actor = f[6],
        verdict = f[7], errno = f[8], bare = f[9] }
    elseif f[1] == "start" then
      out.starts[#out.starts + 1] = { backend = backend, mode = mode,
        user = user, pass = f[3], started = f[4] == "yes" }
    elseif f[1] == "end" then
      out.whole = true
    end
  end
  return out
end

-- judging --------------------------------------------------------------------

local function answer(cell)
  return cell.verdict == "done" and "done" or "refused"
end

local function disagreements(cells, ops)
  local first, list = {}, {}
  for _, cell in ipairs(cells) do
    local op = ops[cell.op]
    if cell.verdict ~= "impossible" and op.kind ~= "note" then
      local key = table.concat({ cell.user, cell.mode, cell.op, cell.place,
        cell.form, cell.actor }, "\t")
      local other = first[key]
      if not other then
        first[key] = cell
      elseif answer(other) ~= answer(cell) and not M.accepted(other)
        and not M.accepted(cell) then
        list[#list + 1] = { a = other, b = cell }
      end
    end
  end
  return list
end

--- Judges all cells: counts by judgement, and the lists that matter. Pure.
function M.judge_all(cells, ops)
  local report = { cells = cells, operations = ops, gap = {}, broken = {},
    note = {}, accepted = {}, counts = { right = 0, gap = 0, broken = 0,
      note = 0, impossible = 0, accepted = 0 } }
  for _, cell in ipairs(cells) do
    local op = ops[cell.op]
    cell.class, cell.effect = op.class, op.effect
    cell.expected = M.expected(cell.mode, op, cell.place)
    cell.judgement = M.judge(cell.expected, cell)
    report.counts[cell.judgement] = report.counts[cell.judgement] + 1
    local list = report[cell.judgement]
    if type(list) == "table" then
      list[#list + 1] = cell
    end
  end
  report.disagree = disagreements(cells, ops)
  return report
end

--- Gaps of one backend, mode and class of operation, by effect:
-- {{effect, reason}}. Pure.
function M.gaps(report, backend, mode, class)
  local seen, list = {}, {}
  for _, cell in ipairs(report.gap) do
    if (not backend or cell.backend == backend)
      and (not mode or cell.mode == mode)
      and (not class or cell.class == class) then
      local gap = seen[cell.effect]
      if not gap then
        gap = { effect = cell.effect, ops = {} }
        seen[cell.effect], list[#list + 1] = gap, gap
      end
      if not gap.ops[cell.op] then
        gap.ops[cell.op] = true
        gap.ops[#gap.ops + 1] = cell.op
      end
    end
  end
  for _, gap in ipairs(list) do
    gap.reason = table.concat(gap.ops, ", ") .. " went through"
    gap.ops = nil
  end
  return list
end

-- running --------------------------------------------------------------------

-- Runs an argv unconfined, through the same seam as everything.
local function start_bare(provider, argv)
  local record, err = provider:confine(argv, { mode = "danger-full-access",
    workspace_root = "/" })
  if not record then
    return nil, err
  end
  return runner.start(record, { cwd = "/", timeout_ms = LIMIT_MS })
end

local function finish(handle)
  local run <close> = handle.run
  while run:wait() == "stopped" do
    run:signal(18)
  end
  return handle.finish()
end

local function run_bare(provider, argv)
  local handle, err = start_bare(provider, argv)
  if not handle then
    return nil, err
  end
  local result = finish(handle)
  if result.exit_code ~= 0 then
    return errors.fail("IO", ("%s: %s"):format(argv[1],
      result.stderr.text ~= "" and result.stderr.text or "failed"),
      { stage = "matrix" })
  end
  return result
end

-- W the root, O outside, E a second root, T under the temp
-- directory, S for the harness. Nothing but T lies under a temp root.
local function make_places(provider, base, user)
  local dir = ("%s/%s"):format(base, user)
  local made, err = run_bare(provider, { "/usr/bin/mktemp", "-d",
    "/tmp/dsh-matrix-XXXXXXXX" }) -- nobody can have put a link there
  if not made then
    return nil, err
  end
  local temp = made.stdout.text:match("^[^\n]*")
  local ok
  ok, err = run_bare(provider, { "/usr/bin/install", "-d", "-m", "755",
    dir .. "/w", dir .. "/o", dir .. "/e", dir .. "/s", temp })
  return ok and { W = dir .. "/w", O = dir .. "/o", E = dir .. "/e",
    S = dir .. "/s", T = temp, out = dir .. "/s/out" }, err
end

local function policy_for(mode, at)
  return { mode = mode, workspace_root = at.W,
    extra_roots = mode == "workspace-write" and { at.E } or nil }
end

-- The line of one backend and mode, ending in the confined half.
local function add_line(argv, plan, at, program, backend, mode)
  local record, err = plan(backend, mode,
    { program, "--inside", at.S .. "/spec" }, policy_for(mode, at))
  if not record then
    return nil, err
  end
  table.move({ "--line", backend .. "/" .. mode, tostring(#record.argv) }, 1,
    3, #argv + 1, argv)
  table.move(record.argv, 1, #record.argv, #argv + 1, argv)
  return true
end

local function harness_argv(opts, at, program, user)
  local argv = {}
  if user ~= core.sys.uid() then
    argv = { "/usr/bin/setpriv", "--reuid=" .. user, "--regid=" .. user,
      "--clear-groups" }
  end
  table.move({ program, "--matrix", "--root", at.W, "--outside", at.O,
    "--extra", at.E, "--temp", at.T, "--state", at.S, "--self", program,
    "--out", at.out }, 1, 16, #argv + 1, argv)
  if opts.only then
    table.move({ "--only", opts.only }, 1, 2, #argv + 1, argv)
  end
  if opts.quick then
    argv[#argv + 1] = "--quick"
  end
  for _, backend in ipairs(opts.backends) do
    for _, mode in ipairs(opts.modes or M.MODES) do
      local ok, err = add_line(argv, opts.plan, at, program, backend, mode)
      if not ok then
        return nil, err
      end
    end
  end
  return argv
end

local function read(path)
  local f = io.open(path, "rb")
  local text = f and f:read("a")
  if f then
    f:close()
  end
  return text
end

local function collect(handle, at, user)
  local result = finish(handle)
  local parsed = M.parse(read(at.out) or "", user)
  if result.exit_code ~= 0 or not parsed.whole then
    return errors.fail("IO", ("the harness failed as uid %d: %s"):format(user,
      result.timed_out and "time limit" or result.stderr.text),
      { stage = "matrix" })
  end
  return parsed
end

-- The default plan: a provider of each backend, with our copy of the launcher.
local function planner(launcher)
  local providers = {}
  local function plan(backend, mode, argv, policy)
    local p, err = providers[backend], nil
    if not p then
      p, err = core.confine.provider({ backend = backend,
        launcher = launcher })
      providers[backend] = p
    end
    if not p then
      return nil, err
    end
    policy.mode = mode
    return p:confine(argv, policy)
  end
  return plan, function()
    for _, p in pairs(providers) do
      p:close()
    end
  end
end

local function run_users(opts, provider, base, program)
  local running, cells, starts, failure = {}, {}, {}, nil
  local made = {}
  for _, user in ipairs(opts.users) do
    local at, err = make_places(provider, base, user)
    local argv
    if at then
      made[#made + 1] = at.T
      argv, err = harness_argv(opts, at, program, user)
    end
    local handle
    -- given away only now: what uid 0 could not write, confine refuses
    if argv and user ~= core.sys.uid() then
      local ok
      ok, err = run_bare(provider, { "/bin/chown", ("%d:%d"):format(user,
        user), at.W, at.O, at.E, at.S, at.T })
      argv = ok and argv
    end
    if argv then
      handle, err = start_bare(provider, argv)
    end
    if handle then
      running[#running + 1] = { handle = handle, at = at, user = user }
    end
    failure = failure or err
  end
  for _, r in ipairs(running) do
    local parsed, err = collect(r.handle, r.at, r.user)
    failure = failure or err
    if parsed then
      table.move(parsed.cells, 1, #parsed.cells, #cells + 1, cells)
      table.move(parsed.starts, 1, #parsed.starts, #starts + 1, starts)
    end
  end
  for _, dir in ipairs(made) do
    run_bare(provider, { "/bin/rm", "-rf", dir })
  end
  if failure then
    return nil, failure
  end
  return cells, starts
end

-- A fresh directory that no temp root covers and other users can enter.
local function scratch(provider)
  local policy = { mode = "workspace-write", workspace_root = "/nonexistent" }
  for _, dir in ipairs({ "/var/tmp", os.getenv("HOME") or "/var/tmp" }) do
    local path = ("%s/.dsh-matrix-%d"):format(dir, core.sys.pid())
    if not core.confine.writable(policy, dir) and run_bare(provider,
      { "/usr/bin/install", "-d", "-m", "755", path }) then
      return path
    end
  end
  return errors.fail("IO", "no directory for targets outside the temp roots",
    { stage = "matrix" })
end

--- opts {backends = {...}, users = {uid, ...}?, modes?, only?, quick?,
-- program = path of dsh-probe?, launcher?, plan = function?, base = a
-- directory outside every temp root?} -> report | nil, err
function M.run(opts)
  local began = core.sys.now()
  local program = opts.program or paths.probe
  local launcher = opts.launcher or paths.launcher
  local provider <close>, err = core.confine.provider({})
  if not provider then
    return nil, err
  end
  local base
  base, err = scratch(provider)
  if not base then
    return nil, err
  end
  local copy = { program = base .. "/dsh-probe",
    launcher = base .. "/landlock-run" }
  local ok
  ok, err = run_bare(provider, { "/usr/bin/install", "-m", "755", program,
    copy.program })
  if ok then
    ok, err = run_bare(provider, { "/usr/bin/install", "-m", "755", launcher,
      copy.launcher })
  end
  local report
  if ok then
    local plan, close = planner(copy.launcher)
    local o = setmetatable({ plan = opts.plan and function(...)
      return opts.plan(copy.launcher, ...)
    end or plan, users = opts.users or { core.sys.uid() } },
      { __index = opts })
    local cells, starts = run_users(o, provider, base, copy.program)
    close()
    if cells then
      local list = run_bare(provider, { copy.program, "--list" })
      report = M.judge_all(cells, M.operations(list.stdout.text))
      report.starts, report.users = starts, o.users
    else
      err = starts
    end
  end
  run_bare(provider, { "/bin/rm", "-rf", base })
  if not report then
    return nil, err
  end
  report.seconds = (core.sys.now() - began) / 1000
  return report
end

return M
