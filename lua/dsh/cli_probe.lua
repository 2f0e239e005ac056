--- dshsh probe: which backends work here, and what each was seen to enforce.
local json = require("dsh.json")
local open = require("dsh.cli_open")
local record = require("dsh.record")

local function grade_lines(out, mode, grade)
  if not grade or not grade.enforcement then
    return
  end
  out[#out + 1] = ("  %-16s %s"):format(mode, grade.enforcement)
  for _, gap in ipairs(grade.gaps or {}) do
    out[#out + 1] = ("    not governed: %s (%s)"):format(gap.effect, gap.reason)
  end
end

local function text(results)
  local out = {}
  for _, r in ipairs(results) do
    if r.usable then
      out[#out + 1] = r.backend .. ": usable"
      grade_lines(out, "read-only", r.grades and r.grades["read-only"])
      grade_lines(out, "workspace-write",
        r.grades and r.grades["workspace-write"])
    else
      out[#out + 1] = ("%s: not usable (%s)"):format(r.backend,
        r.cause or r.stage or "unknown")
      for _, name in ipairs({ "stage", "detail", "fix" }) do
        if r[name] then
          out[#out + 1] = ("  %-8s %s"):format(name, r[name])
        end
      end
    end
  end
  return table.concat(out, "\n")
end

return {
  text = text,
  name = "probe",
  summary = "try each backend and say what it enforces",
  setup = function(cmd)
    cmd:option("--backend", "Probe this backend alone."):argname("<name>")
    cmd:flag("--json", "Print JSON.")
  end,
  run = function(args)
    local ctx, err = open.open({ mode = "read-only", backend = args.backend })
    if not ctx then
      return nil, err
    end
    local results
    results, err = ctx.sandbox:probe()
    ctx:close()
    if not results then
      return nil, err
    end
    if args.json then
      local list = {}
      for i, r in ipairs(results) do
        list[i] = record.plain(r, { "backend", "usable", "stage", "cause",
          "detail", "fix", "grades" })
      end
      print(json.encode(json.array(list), 2))
    else
      print(text(results))
    end
    return 0
  end,
}
