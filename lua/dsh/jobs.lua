--- dsh.jobs: commands in the background. The core drains and times them; here
-- they get a name, and their facts when they are over.
--
--   job.id, job.command, job.cwd, job.mode
--   job:status()        "running" or "done"; done means that job.result stands
--   job:read(stream?)   what was written since the last read ("" if nothing),
--                       bytes lost before it, is there more to come
--   job:wait(ms?)       the result, or nil when it is not over
--   job:kill()          TERM to the whole tree, after the grace KILL
--   job.result          the result record; a runner's failure is a fact in it
--                       (sandbox.runner_failed) and an error in job.error
--
-- Each job keeps the mode and the facts that it was started with.
local M = {}

local KEPT <const> = 50 -- finished jobs of one owner that can be asked for
local READ_MAX <const> = 64000

local job = {}
job.__index = job

-- The start of a character that is not complete yet stays for later.
local function cut(text)
  local lead = #text
  for _ = 1, 3 do
    local byte = text:byte(lead)
    if not byte or byte < 0x80 then
      return text, ""
    elseif byte >= 0xC0 then
      local need = byte >= 0xF0 and 4 or byte >= 0xE0 and 3 or 2
      if #text - lead + 1 < need then
        return text:sub(1, lead - 1), text:sub(lead)
      end
      return text, ""
    end
    lead = lead - 1
  end
  return text, ""
end

-- Everything is there before `done` can be seen.
local function stamp(self, result, err)
  local handle = self.handle
  for stream = 1, 2 do
    local bytes, lost = handle:read(stream, READ_MAX)
    self.unread[stream] = self.unread[stream] .. bytes
    self.lost[stream] = self.lost[stream] + (lost or 0)
  end
  self.result = result or handle.finish()
  self.error = err
  self.done = true
  self.handle = nil
  handle:close()
end

local function look(self, ms)
  if self.done then
    return
  end
  local result, err = self.handle:wait(ms)
  if result or err then
    stamp(self, result, err)
  end
end

function job:status()
  look(self, 0)
  return self.done and "done" or "running"
end

function job:read(stream)
  stream = stream or 1
  if stream ~= 1 and stream ~= 2 then
    error("job read: stream: expected 1 or 2", 2)
  end
  look(self, 0)
  local text, lost = self.unread[stream], self.lost[stream]
  if not self.done then
    local bytes, more = self.handle:read(stream, READ_MAX)
    text, lost = text .. bytes, lost + (more or 0)
    text, self.unread[stream] = cut(text)
  else
    self.unread[stream] = ""
  end
  self.lost[stream] = 0
  return text, lost, not self.done
end

function job:wait(ms)
  if ms ~= nil and (type(ms) ~= "number" or ms < 0) then
    error("job wait: expected a number of milliseconds, got "
      .. tostring(ms), 2)
  end
  look(self, ms)
  return self.result
end

function job:kill()
  look(self, 0)
  if not self.done then
    self.handle:abort()
  end
end

--- Bytes for a job started with stdin = "pipe" by ctx.sandbox:start.
function job:write(bytes)
  if self.done then
    return 0
  end
  return self.handle:write(bytes)
end

-- The registry --------------------------------------------------------------

local jobs = {}
jobs.__index = jobs

--- How many of this owner's jobs have not ended.
function jobs:live(owner)
  local n = 0
  for _, j in ipairs(self.list) do
    if j.owner == owner and j:status() == "running" then
      n = n + 1
    end
  end
  return n
end

-- Old finished jobs of this owner are forgotten, the oldest first.
local function forget(self, owner)
  local kept, n = {}, 0
  for i = #self.list, 1, -1 do
    local j = self.list[i]
    local old = j.owner == owner and j.done
    n = n + (old and 1 or 0)
    if old and n > self.kept then
      self.by_id[j.id] = nil
    else
      table.insert(kept, 1, j)
    end
  end
  self.list = kept
end

function jobs:add(owner, fields, handle)
  self.count = self.count + 1
  local j = setmetatable({ id = "job-" .. self.count, owner = owner,
    command = fields.command, cwd = fields.cwd, mode = fields.mode,
    handle = handle, unread = { "", "" }, lost = { 0, 0 }, done = false },
    job)
  self.list[#self.list + 1] = j
  self.by_id[j.id] = j
  forget(self, owner)
  return j
end

--- The owner's job of this id, or nil. Another owner's is none.
function jobs:get(owner, id)
  local j = self.by_id[id]
  return j and j.owner == owner and j or nil
end

--- The owner's jobs, oldest first.
function jobs:of(owner)
  local out = {}
  for _, j in ipairs(self.list) do
    if j.owner == owner then
      out[#out + 1] = j
    end
  end
  return out
end

--- Ends all that run and waits for it.
function jobs:close()
  for _, j in ipairs(self.list) do
    if not j.done then
      j.handle:close()
      j.done, j.handle = true, nil
    end
  end
  self.list, self.by_id = {}, {}
end

function M.new(kept)
  return setmetatable({ list = {}, by_id = {}, count = 0,
    kept = kept or KEPT }, jobs)
end

return M
