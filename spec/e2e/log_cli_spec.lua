local h = require("helpers")
local json = require("dsh.json")
local replay = require("dsh.core").replay

local FIXTURES = h.top .. "/spec/fixtures/"

local function expected(dir)
  local list = assert(json.decode(h.read(FIXTURES .. dir
    .. "/expected.json")))
  for _, e in ipairs(list) do
    e.path = FIXTURES .. dir .. "/" .. e.path
    e.mode = e.mode ~= json.null and e.mode or "none"
  end
  return list
end

local function lines(text)
  local out = {}
  for line in text:gmatch("[^\n]+") do
    out[#out + 1] = line
  end
  return out
end

describe("dshsh and session logs", function()
  h.guard()

  it("mode prints one word", function()
    for _, dir in ipairs({ "dsh-sessions", "dsh-sessions-packed" }) do
      for _, e in ipairs(expected(dir)) do
        local r = h.dshsh("mode", e.path)
        assert.equal(0, r.code)
        assert.equal(e.mode .. "\n", r.out)
      end
    end
    local r = h.dshsh("mode", "/nonexistent/log")
    assert.equal(125, r.code)
    assert.matches("^dshsh: SESSION_NOT_FOUND", r.err)
    assert.equal(2, h.dshsh("mode").code)
  end)

  it("verify says what is wrong and where, and goes on", function()
    local d = h.scratch()
    local good = expected("dsh-sessions")[1]
    local text = h.read(good.path)
    h.write(d.W .. "/torn", text:sub(1, -3))
    local at = #text // 2
    h.write(d.W .. "/bad", text:sub(1, at) .. "\0\0\0\0" .. text:sub(at + 5))
    h.write(d.W .. "/raw", '{"type":"session","version":0,"id":"r"}\n'
      .. '{"type":"a","seq":0}\nnot json\n{"type":"a","seq":1}\n')
    local r = h.dshsh("verify", d.W .. "/bad", d.W .. "/torn", d.W .. "/raw",
      good.path)
    assert.equal(1, r.code)
    local out = lines(r.out)
    assert.equal(4, #out)
    assert.matches("SESSION_CORRUPT: byte %d+", out[1])
    assert.matches("torn, %d+ events .*incomplete from byte %d+", out[2])
    assert.matches("byte 61, line 3", out[3])
    assert.matches("ok, 36 events", out[4])
    r = h.dshsh("verify", good.path)
    assert.equal(0, r.code)
    r = h.dshsh("verify", "--json", d.W .. "/raw", good.path)
    out = lines(r.out)
    local a, b = json.decode(out[1]), json.decode(out[2])
    assert.is_false(a.ok)
    assert.equal("SESSION_CORRUPT", a.error.code)
    assert.equal(3, a.error.line)
    assert.equal(61, a.error.at)
    assert.is_true(b.ok)
    assert.equal(good.mode, b.mode)
  end)

  it("replay prints events, by type and from a number on", function()
    for _, e in ipairs(expected("dsh-sessions")) do
      local r = h.dshsh("replay", e.path)
      assert.equal(0, r.code)
      local out = lines(r.out)
      assert.equal(e.events, #out)
      assert.equal(0, json.decode(out[1]).seq)
    end
    local e = expected("dsh-sessions")[5]
    local out = lines(h.dshsh("replay", e.path, "--type",
      "sandbox/mode").out)
    assert.equal(2, #out)
    assert.equal("danger-full-access", json.decode(out[2]).data.mode)
    out = lines(h.dshsh("replay", "--since", "50", e.path).out)
    assert.equal(5, #out)
    assert.equal(50, json.decode(out[1]).seq)
    assert.equal(2, h.dshsh("replay", "--since", "x", e.path).code)
    -- a packed row counts for all of its events
    e = expected("dsh-sessions-packed")[2]
    out = lines(h.dshsh("replay", "--since", "11", e.path).out)
    assert.equal(1, #out)
    assert.equal(9, json.decode(out[1]).seq0)
  end)

  it("replay follows a log that grows", function()
    local d = h.scratch()
    local sessions = require("dsh.sessions").start({}, { root = d.W })
    local s <close> = assert(sessions:create({ id = "s" }))
    s:append({ type = "a", data = {} })
    local p = io.popen(("echo $$; exec %s replay --follow %s"):format(
      h.quote(h.dshsh_path), h.quote(s.path)))
    local pid = assert(p:read("l"):match("^%d+$"))
    assert.equal("a", json.decode(p:read("l")).type)
    s:append({ type = "b", data = {} })
    assert.equal("b", json.decode(p:read("l")).type)
    h.exec({ "kill", pid })
    p:close()
  end)

  it("the example keeps its mode", function()
    local d = h.scratch()
    local r = h.exec({ "lua5.4", h.top .. "/examples/session_mode.lua" },
      { cwd = d.W, env = { DSH_HOME = d.O .. "/home",
        LUA_PATH = h.top .. "/lua/?.lua;" .. h.top .. "/lua/?/init.lua;;",
        LUA_CPATH = h.top .. "/lua/?.so;;" } })
    assert.equal("read-only\t" .. d.W .. "\n", r.out, r.err)
  end)

  it("replay shows a person how far it is, of a long file", function()
    if not os.execute("command -v script >/dev/null") then
      pending("needs script")
      return
    end
    local d = h.scratch()
    local sessions = require("dsh.sessions").start({}, { root = d.W })
    local s <close> = assert(sessions:create({ id = "s" }))
    local p = io.popen("base64 -w 0 /dev/urandom | head -c 12000000")
    for _ = 1, 12 do
      local text = p:read(1000000)
      local events = {}
      for i = 1, 1000 do
        events[i] = { type = "a", data = { text = text:sub(i * 1000 - 999,
          i * 1000) } }
      end
      assert(s:append(events))
    end
    p:close()
    local r = h.exec({ "script", "-qec", h.quote(h.dshsh_path) .. " replay "
      .. h.quote(s.path) .. " | wc -l", "/dev/null" })
    assert.matches("%[#+%.*%] +%d+%%", r.out)
    assert.matches("12000", r.out)
  end)

  it("sessions lists the good and names the bad", function()
    local d = h.scratch()
    local root = d.W .. "/s"
    h.exec({ "cp", "-r", FIXTURES .. "dsh-sessions-packed", root })
    h.exec({ "chmod", "-R", "u+w", root })
    local r = h.dshsh("sessions", root)
    assert.equal(0, r.code)
    assert.equal(6, #lines(r.out))
    assert.is_truthy(r.out:find("sub agent/5~..", 1, true))
    h.write(root .. "/_no-cwd/20000000-0000-4000-8000-000000000004/"
      .. "session.jsonl.zstd", "junk")
    r = h.dshsh("sessions", root)
    assert.equal(1, r.code)
    assert.equal(6, #lines(r.out))
    assert.is_truthy(r.out:find("SESSION_CORRUPT", 1, true))
    r = h.dshsh("sessions", "--json", root)
    for _, line in ipairs(lines(r.out)) do
      assert.is_truthy(json.decode(line).id)
    end
    assert.equal(0, #lines(h.dshsh("sessions", d.W .. "/none").out))
  end)

  it("reads a long log in bounded memory", function()
    local d = h.scratch()
    local sessions = require("dsh.sessions").start({}, { root = d.W })
    local s <close> = assert(sessions:create({ id = "s" }))
    for _ = 1, 20 do
      s:append({ type = "a", data = { text = ("x"):rep(1 << 20) } })
    end
    local v = assert(replay.verify(s.path))
    assert.equal(20, v.events)
    local r = h.exec({ "sh", "-c", "ulimit -v 120000; exec \"$0\" replay "
      .. "\"$1\" | wc -c", h.dshsh_path, s.path })
    assert.is_true(tonumber(r.out) > 20 << 20)
  end)
end)
