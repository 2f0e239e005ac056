--- frame.lua: interleaved measurements, printed as ratios.
--
--   local frame = require("frame")
--   frame.ratios("confined spawn", {
--     { "bare posix_spawn", function() return lib.spawn({ "/bin/true" }) end },
--     { "landlock-run", function() return lib.spawn(argv) end, at_most = 2 },
--   }, { rounds = 200 })
--
-- Each function returns nanoseconds. One round calls every candidate once, in
-- an order that turns, so that a slow second of the machine hits all alike.
-- The figure is the ratio of the medians to the first candidate's; beside it
-- the median itself. A missed target is said, and changes no exit status.
local lib = require("benchlib")

local M = { lib = lib }

local function median(list)
  table.sort(list)
  local n = #list
  return n % 2 == 1 and list[n // 2 + 1]
    or (list[n // 2] + list[n // 2 + 1]) / 2
end

-- The medians of interleaved rounds, in the candidates' order.
local function measure(candidates, rounds)
  local samples = {}
  for i, c in ipairs(candidates) do
    samples[i] = {}
    c[2]() -- warm
  end
  for round = 1, rounds do
    for k = 1, #candidates do
      local i = (round + k) % #candidates + 1
      table.insert(samples[i], (candidates[i][2]()))
    end
  end
  local out = {}
  for i in ipairs(candidates) do
    out[i] = median(samples[i])
  end
  return out
end

--- Prints and returns the medians alone (nanoseconds), as a list.
function M.medians(title, candidates, opts)
  local rounds = opts and opts.rounds or 200
  local medians = measure(candidates, rounds)
  print(("%s (%d rounds, medians)"):format(title, rounds))
  for i, c in ipairs(candidates) do
    print(("  %-38s %9.1f us"):format(c[1], medians[i] / 1000))
  end
  return medians
end

function M.ratios(title, candidates, opts)
  local rounds = opts and opts.rounds or 200
  local medians = measure(candidates, rounds)
  print(("%s (%d rounds, medians)"):format(title, rounds))
  local base, out = medians[1], {}
  for i, c in ipairs(candidates) do
    local m = medians[i]
    local target = ""
    if c.at_most then
      target = ("  target %.2f: %s"):format(c.at_most,
        m / base <= c.at_most and "met" or "MISSED")
    end
    print(("  %-38s %9.1f us  %6.2f x%s"):format(c[1], m / 1000, m / base,
      target))
    out[c[1]] = m / base
  end
  return out
end

--- Time per call of fn, in microseconds: the median of `batches` batches.
function M.per_call(title, fn, opts)
  opts = opts or {}
  local calls, list = opts.calls or 2000, {}
  for _ = 1, opts.batches or 15 do
    local begin = lib.now()
    for _ = 1, calls do
      fn()
    end
    list[#list + 1] = (lib.now() - begin) / calls / 1000
  end
  local m = median(list)
  local target = ""
  if opts.at_most then
    target = ("  target %.1f us: %s"):format(opts.at_most,
      m <= opts.at_most and "met" or "MISSED")
  end
  print(("  %-38s %9.2f us a call%s"):format(title, m, target))
  return m
end

return M
