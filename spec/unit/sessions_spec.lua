local h = require("helpers")
local json = require("dsh.json")
local names = require("dsh.session_names")
local sessions = require("dsh.sessions")
local core = require("dsh.core")

local function service(d)
  return assert(sessions.start({ host = { home = d.W .. "/home" } }, {}))
end

local RO = { type = "sandbox/mode", data = { mode = "read-only" } }
local FULL = { type = "sandbox/mode", data = { mode = "danger-full-access" } }

describe("session names", function()
  it("follow the rules for projects", function()
    for cwd, want in pairs({
      ["/home/dev/project"] = "--home-dev-project--",
      ["/srv/Ünï cøde/deep:path"] =
        "--srv-~00DCn~00EF~0020c~00F8de-deep-path--",
      ["/"] = "--root--",
      ["//a\\\\b::c"] = "--a-b-c--",
      ["C:\\Users\\x"] = "--C-Users-x--",
      ["/a~b"] = "--a~007Eb--",
      ["/😀"] = "--~D83D~DE00--",
      ["/a\xffb"] = "--a~FFFDb--",
    }) do
      assert.equal(want, names.project(cwd))
    end
    assert.equal("_no-cwd", names.project(nil))
    assert.equal(251 + 4, #names.project("/" .. ("x"):rep(252)))
    assert.equal(251 + 4, #names.project("/" .. ("x"):rep(251)))
    assert.equal(250 + 4, #names.project("/" .. ("x"):rep(250)))
  end)

  it("follow the rules for sessions, and are never shared", function()
    assert.equal("sub~0020agent~002F5~007E..", names.session("sub agent/5~.."))
    assert.equal("~002E", names.session("."))
    assert.equal("~002E~002E", names.session(".."))
    assert.equal("...", names.session("..."))
    local seen = {}
    for _, id in ipairs({ ".", "..", "...", "~002E", "a", "A", "a/b", "a-b",
      "a~002Fb", "a b", "\0", "é", "e\u{301}", "😀" }) do
      local name = assert(names.session(id))
      assert.is_nil(seen[name])
      seen[name] = true
      assert.is_nil(name:find("[^%w._~-]"))
    end
    assert.is_nil((names.session("")))
    assert.is_nil((names.session("\xff")))
    assert.is_truthy(names.session(("x"):rep(255)))
    assert.is_nil((names.session(("x"):rep(256))))
  end)
end)

describe("sessions", function()
  h.guard()

  it("write nothing before the first append", function()
    local d = h.scratch()
    local s = assert(service(d):create({ cwd = d.W, id = "one" }))
    assert.is_false(h.exists(d.W .. "/home"))
    assert.equal(0, s:append(RO))
    assert.equal(1, s:append({ FULL, RO }))
    assert.is_true(h.exists(s.path))
    assert.equal(d.W .. "/home/sessions/" .. names.project(d.W)
      .. "/one/session.jsonl.zstd", s.path)
    for path, want in pairs({ [s.path] = 6 << 6, [d.W .. "/home"] = 7 << 6,
      [d.W .. "/home/sessions"] = 7 << 6 }) do
      local _, mode = core.sys.kind(path)
      assert.equal(want, mode)
    end
    s:close()
    s:close()
    assert.equal("IO", select(2, s:append(RO)).code)
  end)

  it("write what zstdcat and grep can read", function()
    local d = h.scratch()
    local s = assert(service(d):create({ id = "one", parent = "p",
      delegation_depth = 2 }))
    assert(s:append({ { type = "sandbox/denied", ignorable = true,
      data = { op = "open", path = "/é", errno = "EROFS" } }, RO }))
    s:close()
    local r = h.exec({ "zstdcat", s.path })
    local lines = {}
    for line in r.out:gmatch("[^\n]+") do
      lines[#lines + 1] = line
    end
    assert.matches('^{"type":"session","version":0,"id":"one",'
      .. '"createdAt":%d+,"parentSession":"p","delegationDepth":2}$', lines[1])
    assert.matches('^{"type":"sandbox/denied","data":{.*"errno":"EROFS".*},'
      .. '"seq":0,"time":%d+,"ignorable":true}$', lines[2])
    assert.matches('^{"type":"sandbox/mode","data":{"mode":"read%-only"},'
      .. '"seq":1,"time":%d+}$', lines[3])
    assert.equal("_no-cwd", s.path:match("sessions/([^/]+)/"))
    r = h.exec({ "zstd", "-t", s.path })
    assert.equal(0, r.code)
  end)

  it("come back as they were, and to one writer only", function()
    local d = h.scratch()
    local all = service(d)
    local s = assert(all:create({ cwd = d.W, id = "x y" }))
    s:append({ FULL, { type = "turn/start", data = { turn = 4 } },
      { type = "sandbox/grant", data = { id = "g", path = "/p",
        access = "write",
        grants = { { id = "g", path = "/p", access = "write" } } } },
      { type = "approval/policy", data = { policy = "never" } } })
    local other, err = all:open("x y")
    assert.is_nil(other)
    assert.equal("SESSION_LOCKED", err.code)
    s:close()
    local again <close> = assert(all:open("x y"))
    assert.equal("danger-full-access", again:mode())
    assert.equal("/p", again:grants()[1].path)
    assert.equal(4, again:last("turn/start").turn)
    assert.is_nil(again:last("turn/end"))
    assert.equal("never", again:last("approval/policy").policy)
    assert.equal(d.W, again.cwd)
    assert.equal(4, again:append(RO))
    assert.equal("read-only", again:mode())
    local n = 0
    for event, rec in again:events() do
      assert.equal(n, event.seq)
      assert.equal(n, rec.seq)
      n = n + 1
    end
    assert.equal(5, n)
  end)

  it("refuse an event that no reader would take", function()
    local d = h.scratch()
    local s <close> = assert(service(d):create({}))
    for _, bad in ipairs({ { mode = "root" }, {} }) do
      local ok, err = s:append({ RO, { type = "sandbox/mode", data = bad } })
      assert.is_nil(ok)
      assert.equal("INVARIANT", err.code)
    end
    assert.is_false(h.exists(s.path))
    assert.is_nil(s:mode())
    assert.has_error(function()
      s:append({ type = "x" })
    end)
  end)

  it("list what is there, whatever else is", function()
    local d = h.scratch()
    local all = service(d)
    for i = 1, 5 do
      local s <close> = assert(all:create({ cwd = d.W, id = "s" .. i }))
      s:append({ RO })
    end
    local dir = d.W .. "/home/sessions/" .. names.project(d.W) .. "/"
    h.write(dir .. "s3/session.jsonl.zstd", "damaged")
    h.exec({ "cp", "-r", dir .. "s1", dir .. "s9" })
    h.exec({ "mkdir", dir .. "empty" })
    local list = assert(all:list())
    local ok, bad = {}, {}
    for _, e in ipairs(list) do
      (e.error and bad or ok)[#(e.error and bad or ok) + 1] = e.id
    end
    assert.same({ "s1", "s2", "s4", "s5" }, ok)
    assert.same({ "s3", "s9" }, bad)
    local s, err = all:open("s9")
    assert.is_nil(s)
    assert.equal("SESSION_CORRUPT", err.code)
    s, err = all:open("none")
    assert.is_nil(s)
    assert.equal("SESSION_NOT_FOUND", err.code)
  end)

  it("read no more than the first frame to list", function()
    local d = h.scratch()
    local all = service(d)
    local s = assert(all:create({ id = "s" }))
    s:append(RO)
    s:close()
    local text = h.read(s.path)
    h.write(s.path, text:sub(1, -6) .. "\0\0\0\0\0")
    local list = assert(all:list())
    assert.equal("s", list[1].id)
    assert.is_nil(list[1].error)
    local again, err = all:open("s")
    assert.is_nil(again)
    assert.equal("SESSION_CORRUPT", err.code)
  end)

  -- A torn raw line must not fuse with the next one; one warning.
  it("seal a torn raw log before the next event", function()
    local d = h.scratch()
    local path = d.W .. "/raw.jsonl"
    local text = '{"type":"session","version":0,"id":"r","createdAt":1,'
      .. '"delegationDepth":0}\n{"type":"a","data":{},"seq":0,"time":1}\n'
      .. '{"type":"b","data":{},"seq":1,"time":1}\n'
    h.write(path, text:sub(1, -6))
    local warned = {}
    local all = sessions.start({ host = { home = d.W,
      warn = function(m)
        warned[#warned + 1] = m
      end } }, {})
    local s = assert(all:open(path))
    assert.equal(1, #warned)
    assert.equal(1, s:append(RO))
    s:close()
    local v = assert(core.replay.verify(path))
    assert.equal(2, v.events)
    assert.equal("read-only", v.mode)
    assert.is_false(v.tail.torn)
    local last = h.read(path):match("([^\n]+)\n$")
    assert.equal("sandbox/mode", json.decode(last).type)
  end)

  it("take the fixtures up and go on with them", function()
    local d = h.scratch()
    local root = d.W .. "/copy"
    h.exec({ "cp", "-r", h.top .. "/spec/fixtures/dsh-sessions-packed", root })
    h.exec({ "chmod", "-R", "u+w", root })
    local all = sessions.start({}, { root = root })
    local list = assert(all:list())
    assert.equal(6, #list)
    for _, e in ipairs(list) do
      assert.is_nil(e.error)
      local before = assert(core.replay.verify(e.path))
      local s <close> = assert(all:open(e.id))
      assert.equal(before.mode, s:mode())
      assert.equal(before.events, s:append(RO))
      local after = assert(core.replay.verify(e.path))
      assert.equal(before.events + 1, after.events)
      assert.equal("read-only", after.mode)
      assert.equal(before.frames + 1, after.frames)
    end
  end)
end)
