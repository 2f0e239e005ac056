-- What reaches the kernel, and in which order, taken from a trace: a kill
-- cannot show that something was not synced.
local h = require("helpers")

local SCRIPT = [[
local sessions = require("dsh.sessions").start({}, { root = arg[1] })
local s = assert(sessions:create({ id = "s", cwd = "/" }))
assert(s:append({ type = "a", data = {} }))
assert(s:append({ type = "b", data = {} }))
s:close()
local f = io.open(s.path, "ab")
f:write("\x28\xb5\x2f\xfd\x04")
f:close()
s = assert(sessions:open("s"))
assert(s:append({ type = "c", data = {} }))
]]

local CALLS = "openat,open,pwrite64,write,fsync,fdatasync,link,linkat,unlink,"
  .. "unlinkat,rename,renameat,renameat2,ftruncate,mkdir,mkdirat,close"

-- The trace as words: "fsync FILE", with descriptors named by their path.
local function words(text, root)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    local call, args = line:match("^%d*%s*(%w+)%((.*)%)%s+=")
    if call and args:find(root, 1, true)
      and not line:find("ENOENT", 1, true) then
      local names = {}
      for path in args:gmatch(root:gsub("%p", "%%%0") .. "([^\"><,]*)") do
        names[#names + 1] = path:match("[^/]*$") ~= ""
          and path:match("[^/]*$") or "."
      end
      local made = args:find("O_CREAT", 1, true)
      if made or not (call:find("open") or call == "close") then
        out[#out + 1] = (made and "create" or call:gsub("at$", ""):gsub("64$",
          "")) .. " " .. table.concat(names, " ")
      end
    end
  end
  return out
end

describe("the order of system calls", function()
  h.guard()

  it("is: file synced, then named, then its directory synced", function()
    if not os.execute("command -v strace >/dev/null") then
      pending("needs strace")
      return
    end
    local d = h.scratch()
    h.write(d.W .. "/script.lua", SCRIPT)
    local root = d.W .. "/r"
    local r = h.exec({ "strace", "-f", "-y", "-s", "0", "-o", d.W .. "/trace",
      "-e", "trace=" .. CALLS, "lua5.4", d.W .. "/script.lua", root },
      { env = { LUA_PATH = h.top .. "/lua/?.lua;;",
        LUA_CPATH = h.top .. "/lua/?.so;;" } })
    if r.err:find("ptrace", 1, true) then
      pending("needs ptrace")
      return
    end
    assert.equal("", r.err)
    local list = words(h.read(d.W .. "/trace"), root)
    local log = "session.jsonl.zstd"
    local seen, lock = {}, {}
    for _, word in ipairs(list) do
      local to = word:find("%.lock$") and lock or seen
      to[#to + 1] = word
    end
    assert.same({
      -- the directories, each made durable in the one above
      "mkdir .", "mkdir --root--", "fsync .", "mkdir s", "fsync --root--",
      -- the first append: the whole file, synced, then its name, synced
      "create " .. log .. ".tmp", "pwrite " .. log .. ".tmp",
      "fsync " .. log .. ".tmp", "link " .. log .. ".tmp " .. log,
      "unlink " .. log .. ".tmp", "fsync s",
      -- the second
      "pwrite " .. log .. ".tmp", "fsync " .. log .. ".tmp",
      -- five stray bytes, then the repair and the third
      "create " .. log, "write " .. log,
      "create " .. log .. ".tmp", "pwrite " .. log .. ".tmp",
      "fsync " .. log .. ".tmp", "rename " .. log .. ".tmp " .. log,
      "fsync s", "pwrite " .. log, "fsync " .. log,
    }, seen)
  end)
end)
