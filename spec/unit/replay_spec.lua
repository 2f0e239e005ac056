local h = require("helpers")
local json = require("dsh.json")
local replay = require("dsh.core").replay

local function expected(dir)
  local root = h.top .. "/spec/fixtures/" .. dir .. "/"
  local list = assert(json.decode(h.read(root .. "expected.json")))
  for _, e in ipairs(list) do
    e.path = root .. e.path
    e.mode = e.mode ~= json.null and e.mode or nil
  end
  return list
end

local function read_all(path)
  local log <close> = assert(replay.open(path))
  local list = {}
  while true do
    local rec, err = log:next()
    assert.is_nil(err)
    if not rec then
      return list, log:tail()
    end
    list[#list + 1] = rec
  end
end

describe("replay", function()
  h.guard()

  for _, dir in ipairs({ "dsh-sessions", "dsh-sessions-packed" }) do
    it("reads what other programs wrote: " .. dir, function()
      for _, e in ipairs(expected(dir)) do
        for threads = 1, 2 do
          local v = assert(replay.verify(e.path, { threads = threads }))
          assert.equal(e.events, v.events)
          assert.equal(e.mode, v.mode)
          assert.equal(0, v.unverified)
          assert.is_false(v.tail.torn)
        end
        local f = assert(replay.fold(e.path, "mode"))
        assert.equal(e.mode, f.mode)
        local header = assert(json.decode(assert(replay.header(e.path))))
        assert.equal(e.id, header.id)
      end
    end)
  end

  it("hands out every line, packed rows with their count", function()
    for _, e in ipairs(expected("dsh-sessions-packed")) do
      local list, tail = read_all(e.path)
      local n = 0
      assert.equal(-1, list[1].seq)
      for i, rec in ipairs(list) do
        assert.equal(i, rec.line)
        if i > 1 then
          assert.equal(n, rec.seq)
        end
        assert.is_true(rec.verified)
        n = n + rec.count
      end
      assert.equal(e.events, n)
      assert.is_false(tail.torn)
    end
  end)

  it("names what is wrong with a file", function()
    local d = h.scratch()
    local log, err = replay.open(d.W .. "/none")
    assert.is_nil(log)
    assert.equal("SESSION_NOT_FOUND", err.code)
    h.write(d.W .. "/empty", "")
    h.write(d.W .. "/junk", "hello\n")
    h.write(d.W .. "/new", '{"type":"session","version":9,"id":"x"}\n')
    for name, code in pairs({ empty = "SESSION_CORRUPT",
      junk = "SESSION_CORRUPT", new = "SESSION_VERSION" }) do
      local v
      v, err = replay.verify(d.W .. "/" .. name)
      assert.is_nil(v)
      assert.equal(code, err.code)
      assert.equal(0, err.at)
      assert.equal(1, err.line)
    end
    assert.has_error(function()
      replay.open(d.W, { folow = true })
    end)
  end)
end)
