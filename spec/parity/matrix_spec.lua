-- What each mode means, and that every backend keeps it: both modes, all the
-- backends of this host, as this user (the suite runs as two).
local h = require("helpers")

local matrix = require("dsh.matrix")

describe("what a mode means", function()
  local op = { kind = "by-place" }

  it("read-only grants no place", function()
    for _, place in ipairs({ "root", "outside", "temp", "root-to-extra",
      "outside-to-root", "host", "stdio" }) do
      assert.equal("refused", matrix.expected("read-only", op, place))
    end
  end)

  it("workspace-write grants root, temp and pairs of granted roots", function()
    for place, expected in pairs({ root = "done", temp = "done",
      outside = "refused", ["root-to-extra"] = "done",
      ["root-to-temp"] = "done", ["outside-to-root"] = "refused",
      ["root-to-outside"] = "refused", host = "refused",
      stdio = "refused" }) do
      assert.equal(expected, matrix.expected("workspace-write", op, place),
        place)
    end
  end)

  it("never, allowed and either are what they say", function()
    for _, mode in ipairs(matrix.MODES) do
      assert.equal("refused", matrix.expected(mode, { kind = "never" },
        "root"))
      assert.equal("done", matrix.expected(mode, { kind = "allowed" }, "host"))
      assert.equal("note", matrix.expected(mode, { kind = "note" }, "host"))
      assert.equal("refused", matrix.expected(mode, { kind = "either" },
        "outside"))
    end
    assert.equal("either", matrix.expected("workspace-write",
      { kind = "either" }, "root"))
  end)

  local function judged(expected, verdict, extra)
    local cell = { op = "x", place = "outside", verdict = verdict,
      errno = "EROFS" }
    for k, v in pairs(extra or {}) do
      cell[k] = v
    end
    return matrix.judge(expected, cell)
  end

  it("judges a cell", function()
    assert.equal("right", judged("refused", "refused"))
    assert.equal("right", judged("refused", "void"))
    assert.equal("gap", judged("refused", "done"))
    assert.equal("right", judged("done", "done"))
    assert.equal("broken", judged("done", "refused"))
    assert.equal("broken", judged("done", "void"))
    assert.equal("right", judged("either", "refused"))
    assert.equal("impossible", judged("refused", "impossible"))
    assert.equal("note", judged("note", "done"))
  end)

  it("accepts EXDEV between two granted roots only", function()
    assert.equal("accepted", judged("done", "refused",
      { place = "root-to-extra", errno = "EXDEV" }))
    assert.equal("broken", judged("done", "refused",
      { place = "root", errno = "EXDEV" }))
  end)

  it("excuses only what is known, and only while it is so", function()
    local cell = { op = "dev-pts-pair", backend = "landlock", place = "host",
      verdict = "refused", errno = "EACCES" }
    assert.equal("accepted", matrix.judge("done", cell))
    cell.verdict = "done"
    assert.equal("right", matrix.judge("done", cell))
    cell.verdict, cell.backend = "refused", "bwrap"
    assert.equal("broken", matrix.judge("done", cell))
  end)

  it("never counts what did not run as refused", function()
    assert.equal("broken", judged("refused", "not-started"))
    assert.equal("right", judged("refused", "not-started",
      { op = "stdin-directory-write" }))
  end)

  it("finds where backends disagree", function()
    local ops = matrix.operations("x\tF\twrite\tby-place\t\n")
    local function cell(backend, verdict, errno)
      return { backend = backend, mode = "workspace-write", user = 0,
        op = "x", place = "root-to-extra", form = "absolute",
        actor = "child", verdict = verdict, errno = errno or "EACCES" }
    end
    local r = matrix.judge_all({ cell("a", "done"), cell("b", "refused") },
      ops)
    assert.equal(1, #r.disagree)
    assert.equal(1, r.counts.broken)
    r = matrix.judge_all({ cell("a", "done"), cell("b", "refused", "EXDEV") },
      ops)
    assert.equal(0, #r.disagree)
    r = matrix.judge_all({ cell("a", "void"), cell("b", "refused") }, ops)
    assert.equal(0, #r.disagree)
    assert.equal(0, #matrix.gaps(r))
  end)
end)

local function name(cell)
  return ("%s %s: %s %s %s %s (%s)"):format(cell.backend, cell.mode, cell.op,
    cell.place, cell.form, cell.actor, cell.errno)
end

local function names(list)
  local out = {}
  for i, cell in ipairs(list) do
    out[i] = name(cell)
  end
  return table.concat(out, "\n")
end

describe("the matrix", function()
  h.guard()

  local report, err

  it("runs whole on every backend in under a minute", function()
    report, err = matrix.run({ backends = h.backends(), users = { h.uid },
      program = h.build .. "/dsh-probe", launcher = h.launcher })
    assert(report, tostring(err))
    assert.is_true(#report.cells > 1500 * #h.backends(), #report.cells)
    assert.is_true(report.seconds < 60, report.seconds)
  end)

  it("proves by success without confinement", function()
    assert(report, "no run")
    local proven, hollow = {}, {}
    for _, cell in ipairs(report.cells) do
      local list = cell.judgement == "impossible" and hollow or proven
      list[cell.op] = true
    end
    local n = 0
    for op in pairs(proven) do
      n = n + (report.operations[op].class == "F" and 1 or 0)
    end
    assert.is_true(n >= 60, n)
  end)

  it("has no gap: nothing forbidden went through", function()
    assert(report, "no run")
    assert.equal("", names(report.gap))
  end)

  it("breaks nothing that the mode grants", function()
    assert(report, "no run")
    assert.equal("", names(report.broken))
  end)

  it("has backends that agree, but for what is known", function()
    assert(report, "no run")
    local out = {}
    for i, d in ipairs(report.disagree) do
      out[i] = name(d.a) .. " / " .. name(d.b)
    end
    assert.equal("", table.concat(out, "\n"))
  end)

  it("gives class F in every effect that a grade names", function()
    assert(report, "no run")
    local seen = {}
    for _, cell in ipairs(report.cells) do
      if cell.judgement == "right" then
        seen[cell.effect] = true
      end
    end
    for _, effect in ipairs({ "write", "create", "remove", "rename", "link",
      "truncate", "metadata", "descriptor", "stdio", "inherited", "mount",
      "system-calls" }) do
      assert.is_true(seen[effect], effect)
    end
  end)
end)
