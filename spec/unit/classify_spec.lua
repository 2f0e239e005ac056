-- What happened, from what was observed: proof before rules before words.
local classify = require("dsh").classify

local BWRAP = { confined = true,
  denial_signatures = { "read-only file system" },
  runner_failure_rules = { { fatal_signatures = { "bwrap: " } } } }
local LANDLOCK = { confined = true,
  denial_signatures = { "permission denied" },
  runner_failure_rules = { { allowed_exit_codes = { 125 },
    fatal_signatures = { "landlock-run: " },
    informational_lines = { "landlock-run: partial enforcement" } } } }
local OPEN = { confined = false }

local function facts(t)
  t.stderr = t.stderr or ""
  return t
end

describe("a verdict", function()
  it("is the same for any stderr where the start is known", function()
    math.randomseed(42)
    local pieces = { "bwrap: ", "landlock-run: ", "Permission denied",
      "read-only file system", "\n", "\r\n", "x", "\0", "\u{2014}", " ",
      "\xff\xfe", "partial enforcement", "127", "exec" }
    for _ = 1, 2000 do
      local words = {}
      for i = 1, math.random(0, 12) do
        words[i] = pieces[math.random(#pieces)]
      end
      local text = table.concat(words)
      for _, plan in ipairs({ BWRAP, LANDLOCK, OPEN }) do
        for _, code in ipairs({ 0, 1, 125, 126, 127, 255 }) do
          for _, started in ipairs({ "yes", "no" }) do
            local f = { started = started, exit_code = code,
              denials_known = true, denials = 0 }
            f.stderr = ""
            local quiet = classify(plan, f)
            f.stderr = text
            local loud = classify(plan, f)
            quiet.detail, loud.detail = nil, nil
            assert.same(quiet, loud)
          end
          local f = classify(plan, { started = "yes", exit_code = code,
            stderr = text })
          assert.is_false(f.runner_failed) -- no listener: words may deny,
        end                                -- but never blame the runner
      end
    end
  end)

  it("takes rules only where the start is unknown", function()
    local v = classify(LANDLOCK, facts { started = "unknown",
      exit_code = 125, stderr = "a\r\nLANDLOCK-RUN: no such grant\r\nb" })
    assert.is_true(v.runner_failed)
    assert.equal("LANDLOCK-RUN: no such grant", v.detail)
    assert.is_false(v.denied)
    v = classify(LANDLOCK, facts { started = "yes", exit_code = 125,
      stderr = "landlock-run: x" })
    assert.is_false(v.runner_failed)
    v = classify(LANDLOCK, facts { started = "unknown", exit_code = 1,
      stderr = "landlock-run: x" })
    assert.is_false(v.runner_failed) -- another exit code
    v = classify(BWRAP, facts { started = "unknown", exit_code = 0,
      stderr = "bwrap: x" })
    assert.is_false(v.runner_failed)
    v = classify(BWRAP, facts { started = "unknown", signal = 9,
      stderr = "bwrap: x" })
    assert.is_false(v.runner_failed)
  end)

  it("drops informational lines by the whole line", function()
    local v = classify(LANDLOCK, facts { started = "unknown",
      exit_code = 125, stderr = "landlock-run: Partial Enforcement\n" })
    assert.is_false(v.runner_failed)
    v = classify(LANDLOCK, facts { started = "unknown", exit_code = 125,
      stderr = "landlock-run: partial enforcement, and more\n" })
    assert.is_true(v.runner_failed)
  end)

  it("never matches a blank signature", function()
    local plan = { confined = true, denial_signatures = { "", "  " },
      runner_failure_rules = { { fatal_signatures = { "", " ", "\t" } } } }
    local v = classify(plan, facts { started = "unknown", exit_code = 1,
      stderr = "a b\tc\n" })
    assert.is_false(v.runner_failed)
    assert.is_false(v.denied)
  end)

  it("lets no allowed code 0 blame a clean exit", function()
    local plan = { confined = true, runner_failure_rules = {
      { allowed_exit_codes = { 0 }, fatal_signatures = { "x" } } } }
    assert.is_false(classify(plan, facts { started = "unknown",
      exit_code = 0, stderr = "x" }).runner_failed)
  end)

  it("calls a denial by records whatever the exit", function()
    local v = classify(BWRAP, facts { started = "yes", exit_code = 0,
      denials = 2, denials_known = true })
    assert.same({ true, "records" }, { v.denied, v.evidence })
    v = classify(BWRAP, facts { started = "yes", signal = 9, denials = 1,
      denials_known = true })
    assert.is_true(v.denied)
  end)

  it("calls a denial by text only without a listener, and not clean", function()
    local f = facts { started = "yes", exit_code = 1,
      stderr = "sh: x: Read-Only file system" }
    local v = classify(BWRAP, f)
    assert.same({ true, "stderr" }, { v.denied, v.evidence })
    f.denials_known, f.denials = true, 0
    assert.is_false(classify(BWRAP, f).denied)
    f.denials_known = nil
    f.exit_code = 0
    assert.is_false(classify(BWRAP, f).denied)
    f.exit_code, f.signal = nil, 15
    assert.is_false(classify(BWRAP, f).denied)
    assert.is_false(classify(LANDLOCK, facts { started = "yes",
      exit_code = 1, stderr = "read-only file system" }).denied)
    assert.is_false(classify(OPEN, facts { started = "yes", exit_code = 1,
      stderr = "permission denied" }).denied)
  end)

  it("finds text after a NUL byte", function()
    local v = classify(BWRAP, facts { started = "yes", exit_code = 1,
      stderr = "\0\0read-only file system" })
    assert.is_true(v.denied)
  end)
end)
