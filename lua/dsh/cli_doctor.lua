--- dshsh doctor: try everything, say what was refused, and whether what is
-- claimed was proven. Exit 0 only then.
local core = require("dsh.core")
local doctor = require("dsh.doctor")
local json = require("dsh.json")
local open = require("dsh.cli_open")
local table_of = require("dsh.matrix_table")

local function list(items)
  return json.array(items or {})
end

local function mode_json(m)
  return { mode = m.mode, claimed = m.claimed, proven = m.proven,
    gaps = list(m.gaps), found = list(m.found), unclaimed = list(m.unclaimed),
    promisesBroken = list(m.promises_broken), tried = m.tried,
    refused = m.refused, allowed = m.allowed, impossible = m.impossible,
    broken = m.broken }
end

local function cells_json(report)
  local cells = {}
  for i, c in ipairs(report.cells) do
    cells[i] = { backend = c.backend, mode = c.mode, uid = c.user, op = c.op,
      class = c.class, effect = c.effect, place = c.place, form = c.form,
      actor = c.actor, verdict = c.verdict, errno = c.errno,
      expected = c.expected, judgement = c.judgement }
  end
  return list(cells)
end

local function as_json(data, whole)
  local backends = {}
  for i, b in ipairs(data.backends) do
    local modes = {}
    for k, m in ipairs(b.modes or {}) do
      modes[k] = mode_json(m)
    end
    backends[i] = { backend = b.backend, usable = b.usable, cause = b.cause,
      stage = b.stage, errno = b.errno, detail = b.detail, fix = b.fix,
      modes = list(modes) }
  end
  local report = data.matrix
  return json.encode({ kernel = data.kernel, uid = data.uid, ok = data.ok,
    findings = list(data.findings), backends = list(backends),
    limits = list(data.limits), disagree = data.disagree,
    counts = report and report.counts, seconds = report and report.seconds,
    cells = whole and report and cells_json(report) or nil }, 2)
end

return {
  name = "doctor",
  summary = "prove what is claimed, or say what is open",
  setup = function(cmd)
    cmd:flag("--json", "Print JSON.")
    cmd:flag("--matrix", "Every form of path and kind of process, and as uid "
      .. "0 also uid 65534; prints the table.")
    cmd:option("--backend", "Look at this backend alone."):argname("<name>")
    cmd:option("--workspace", "Where older hard links are counted.")
      :argname("<dir>")
  end,
  run = function(args)
    local root, why = open.workspace(args.workspace)
    if not root then
      return nil, why
    end
    -- One run of the harness does it all: there is no share done to show.
    local waits = core.sys.isatty(2)
    if waits then
      io.stderr:write("trying every effect on every backend ...")
    end
    local data, err = doctor.run({ workspace = root, backend = args.backend,
      whole = args.matrix })
    if waits then
      io.stderr:write("\r\27[K")
    end
    if not data then
      return nil, err
    end
    if args.json then
      print(as_json(data, args.matrix))
    else
      if args.matrix and data.matrix then
        print(table_of.operations(data.matrix))
      end
      print(doctor.text(data))
    end
    return data.ok and 0 or 1
  end,
}
