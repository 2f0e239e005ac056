local h = require("helpers")
local yaml = require("dsh.yaml")
local node = require("dsh.node")

local function parse(text)
  return yaml.parse(text, "f.yml")
end

local function message(text)
  local n, err = parse(text)
  assert.is_nil(n)
  assert.equal("YAML_INVALID", err.code)
  local line, column = err.message:match("^f%.yml:(%d+):(%d+): ")
  assert.equal(err.line, tonumber(line))
  assert.equal(err.column, tonumber(column))
  return err.message
end

describe("the YAML dialect", function()
  h.guard()

  it("keeps every scalar as its text", function()
    local n = parse("a: yes\nb: 0x10\nc: 'true'\nd: 1.0\ne: ~\nf:\n")
    local v = n.values
    assert.same({ "yes", "0x10", "true", "1.0", "~", "" },
      { v.a.text, v.b.text, v.c.text, v.d.text, v.e.text, v.f.text })
    assert.is_true(v.a.plain)
    assert.is_false(v.c.plain)
    assert.is_true(node.is_null(v.e) and node.is_null(v.f))
  end)

  it("knows where each value and key stands", function()
    local text = "ä: 'ö'\nb: {c: d}\n"
    local n = parse(text)
    local b = n.values.b
    assert.same({ 2, 4, 2, 1 }, { b.line, b.column, b.key_line,
      b.key_column })
    local a = n.values["ä"]
    assert.equal("'ö'", text:sub(a.from + 1, a.to))
    assert.equal("{c: d}", text:sub(b.from + 1, b.to))
  end)

  it("accepts a byte order mark and CRLF", function()
    local n = parse("\xEF\xBB\xBFa: 1\r\nb:\r\n  - x\r\n")
    assert.equal("1", n.values.a.text)
    assert.equal("x", n.values.b[1].text)
  end)

  it("says that a text without a value has none", function()
    assert.is_false(parse(""))
    assert.is_false(parse("# nothing\n"))
    assert.is_false(parse("---\n"))
  end)

  local errors = {
    ["a duplicate key, with both lines"] = { "mode: read-only\n\n"
      .. "mode: danger-full-access\n",
      "f.yml:3:1: duplicate key 'mode', first at line 1" },
    ["a duplicate key deep inside"] = { "a:\n  - {x: 1, y: 2, x: 3}\n",
      "f.yml:2:18: duplicate key 'x', first at line 2" },
    ["a merge key"] = { "a: &a {b: c}\nd:\n  <<: *a\n",
      "f.yml:3:3: a merge key (<<): not allowed" },
    ["a cyclic alias"] = { "a: &x [1, *x]\n",
      "f.yml:1:11: alias *x: inside the value it stands for" },
    ["an unknown alias"] = { "a: *y\n",
      "f.yml:1:4: alias *y: no such anchor above" },
    ["a tag"] = { "a: !!python/object x\n", "f.yml:1:4: a tag "
      .. "(tag:yaml.org,2002:python/object): not allowed" },
    ["a local tag"] = { "a: !x y\n", "f.yml:1:4: a tag (!x): not allowed" },
    ["a directive"] = { "%YAML 1.1\n---\na: b\n",
      "f.yml:1:1: a directive (%): not allowed" },
    ["a second document"] = { "a: b\n---\nc: d\n",
      "f.yml:2:1: a second document: one per file" },
    ["a tab as indentation"] = { "a:\n\tb: c\n", "f.yml:2:1: a tab: "
      .. "use spaces" },
    ["a tab between key and value"] = { "a:\tb\n", "f.yml:1:3: a tab: "
      .. "use spaces" },
    ["a tab in unquoted text"] = { "a: b\tc\n", "f.yml:1:5: a tab: "
      .. "use spaces, or quotes around the text" },
    ["a key that is a list"] = { "? [a]\n: b\n",
      "f.yml:1:3: a key must be a plain string" },
    ["an empty key"] = { "a: b\n? \n: c\n", "f.yml:2:2: an empty key" },
    ["a NUL byte by escape"] = { 'a: "x\\0"\n',
      "f.yml:1:4: a NUL byte in a string" },
    ["bytes that are not UTF-8"] = { "a: b\nc: \xff\n",
      "f.yml:2:4: invalid leading UTF-8 octet" },
    ["an unclosed quote"] = { "a: 'b\n", "f.yml:2:1: while scanning a "
      .. "quoted scalar: found unexpected end of stream (begun at 1:4)" },
    ["a second colon"] = { "a: b: c\n", "f.yml:1:5: mapping values are not "
      .. "allowed in this context" },
  }
  for name, case in pairs(errors) do
    it("refuses " .. name, function()
      assert.equal(case[2], message(case[1]))
    end)
  end

  it("allows tabs in quotes, block text and comments", function()
    local n = parse('a: "x\ty" # c\td\nb: |\n  p\tq\n#\t\nc: \'\t\'\n')
    assert.equal("x\ty", n.values.a.text)
    assert.equal("p\tq\n", n.values.b.text)
  end)

  it("allows 100 levels and not 101", function()
    assert.is_table(parse(("["):rep(100) .. ("]"):rep(100)))
    assert.truthy(message(("["):rep(101) .. ("]"):rep(101))
      :find("nested deeper than 100", 1, true))
  end)

  it("counts an alias's own depth", function()
    local deep = "a: &a " .. ("["):rep(60) .. ("]"):rep(60) .. "\nb: "
    assert.is_table(parse(deep .. ("["):rep(39) .. "*a" .. ("]"):rep(39)))
    assert.truthy(message(deep .. ("["):rep(40) .. "*a" .. ("]"):rep(40))
      :find("nested deeper than 100", 1, true))
  end)

  it("allows 20000 values and not 20001", function()
    assert.is_table(parse("[" .. ("a,"):rep(19998) .. "a]"))
    assert.truthy(message("[" .. ("a,"):rep(19999) .. "a]")
      :find("more than 20000 values", 1, true))
  end)

  it("allows 256 anchors and not 257", function()
    local lines = {}
    for i = 1, 256 do
      lines[i] = "- &a" .. i .. " x"
    end
    local text = table.concat(lines, "\n") .. "\n"
    assert.is_table(parse(text))
    assert.equal("f.yml:257:3: more than 256 anchors",
      message(text .. "- &b x\n"))
  end)

  it("allows 1 MiB and not a byte more", function()
    local text = "a: b\n#" .. ("x"):rep((1 << 20) - 7) .. "\n"
    assert.equal(1 << 20, #text)
    assert.is_table(parse(text))
    assert.equal("f.yml:1:1: longer than 1048576 bytes", message(text .. "\n"))
  end)

  -- Memory beside Lua's own shows in the process's peak.
  local function peak_kb()
    for line in io.lines("/proc/self/status") do
      local kb = line:match("^VmHWM:%s*(%d+)")
      if kb then
        return tonumber(kb)
      end
    end
  end

  local function bomb()
    local lines = { "a: &a [x,x,x,x,x,x,x,x,x]" }
    for i = 1, 8 do
      local c, p = string.char(97 + i), string.char(96 + i)
      lines[#lines + 1] = ("%s: &%s [%s]"):format(c, c,
        ("*" .. p .. ","):rep(9):sub(1, -2))
    end
    return table.concat(lines, "\n") .. "\n"
  end

  local hostile = {
    ["an alias bomb of nine levels"] = bomb(),
    ["20000 open brackets"] = ("["):rep(20000),
    ["20000 open braces"] = ("{a: "):rep(20000),
    ["20000 nested items"] = ("- "):rep(20000),
    ["an alias in its own anchor"] = "&x [*x]",
    ["a megabyte of text aliased 5000 times"] = "a: &a '"
      .. ("y"):rep(900000) .. "'\nb: [" .. ("*a,"):rep(5000) .. "]\n",
    ["a 900 KB line of keys"] = ("? "):rep(450000),
  }
  for name, text in pairs(hostile) do
    it("refuses " .. name .. " within 50 ms and 16 MiB", function()
      collectgarbage()
      local before, start = peak_kb(), os.clock()
      message(text)
      assert.is_true(os.clock() - start < 0.05)
      assert.is_true(peak_kb() - before < 16 << 10)
    end)
  end
end)
