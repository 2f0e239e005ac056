-- explain.lua RECORD: a result record of `dshsh run --report`, in words.
--
--   dshsh run --report record -- make
--   dshsh lua examples/explain.lua record
local json = require("dsh.json")

local name = arg[1]
if not name then
  print("usage: explain.lua RECORD")
  return 2
end
local file = assert(io.open(name))
local r = assert(json.decode(file:read("a")))
file:close()

local function say(key, value, why)
  print(("  %-12s %-16s %s"):format(key, tostring(value), why))
end

-- Long lists as a paragraph, 78 columns at most.
local function paragraph(title, items)
  local line = "  " .. title .. ":"
  for i, item in ipairs(items) do
    local word = " " .. item .. (i < #items and "," or "")
    if #line + #word > 78 then
      print(line)
      line = "     "
    end
    line = line .. word
  end
  print(line)
end

print("The result record says:")
if r.error then
  say("error", r.error.code, "nothing was run:")
  print("    " .. r.error.message)
  return 1
end
local s = r.sandbox
say("started", r.started, "known from the launcher, not from any output")
if r.exitCode then
  say("exitCode", r.exitCode, "the command's own")
else
  say("signal", r.signal, "the command was killed by it")
end
say("mode", s.mode, "what the command was allowed to write")
if s.backend then
  say("backend", s.backend, "who refused the rest")
  say("enforcement", s.enforcement, s.enforcement == "full"
    and "each forbidden effect was tried here and refused"
    or "not everything the mode forbids was proven")
end
for _, gap in ipairs(s.gaps or {}) do
  say("gap", gap.effect, gap.reason)
end
say("denied", s.denied, s.denied and "evidence: " .. (s.evidence or "records")
  or "nothing was refused")
for _, d in ipairs(s.denials or {}) do
  say("  " .. d.op, d.errno or "", d.path)
end
local limits = {}
for i, limit in ipairs(s.limits or {}) do
  limits[i] = limit.effect
end
if #limits > 0 then
  paragraph("not limited by any mode", limits)
end
