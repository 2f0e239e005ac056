--- The fence: files in-process. Effects are looked at with other means.
local core = require("dsh.core")
local files = require("dsh.fs_files")

local function sh(text, ...)
  local p = assert(io.popen(text:format(...) .. " 2>&1"))
  local out = p:read("a")
  p:close()
  return (out:gsub("\n$", ""))
end

local function slurp(path)
  local f = io.open(path, "rb")
  local text = f and f:read("a")
  if f then
    f:close()
  end
  return text
end

local function spill(path, text)
  local f = assert(io.open(path, "wb"))
  f:write(text)
  f:close()
end

describe("the fence", function()
  local base, W, O, fs, policy

  before_each(function()
    base = sh("mktemp -d %s/fence-XXXXXX", core.sys.cwd() .. "/build")
    W, O = base .. "/w", base .. "/o"
    sh("mkdir -p %s %s", W, O)
    policy = { mode = "workspace-write", workspace_root = W, temp = "private",
      temp_dir = W }
    fs = files.new(function(opts)
      return opts.policy or policy
    end, function()
      return W
    end)
  end)
  after_each(function()
    sh("rm -rf %s", base)
  end)

  local function denied(path, opts)
    local version, err = fs:write_text(path, "evil", opts)
    assert.is_nil(version)
    assert.equal("FS_SANDBOX_DENIED", err.code)
    return err
  end

  describe("policy", function()
    it("writes inside, refuses outside, names mode and path", function()
      assert(fs:write_text("a", "hi"))
      assert.equal("hi", slurp(W .. "/a"))
      local err = denied(O .. "/b")
      assert.truthy(err.message:find("workspace-write", 1, true))
      assert.equal(O .. "/b", err.path)
      assert.is_nil(slurp(O .. "/b"))
    end)
    it("writes nothing under read-only, anything under full", function()
      local ro = { mode = "read-only", workspace_root = W }
      denied("a", { policy = ro })
      assert.is_nil(slurp(W .. "/a"))
      assert(fs:write_text(O .. "/b", "x", { policy = {
        mode = "danger-full-access", workspace_root = W } }))
      assert.equal("x", slurp(O .. "/b"))
    end)
    it("honours protected paths and extra roots", function()
      sh("mkdir -p %s/.git/hooks", W)
      denied(".git/hooks/pre-commit", { policy = { mode = "workspace-write",
        workspace_root = W, protected = { ".git/hooks" } } })
      assert(fs:write_text(O .. "/b", "x", { policy = { mode = "read-only",
        workspace_root = W, extra_roots = { O } } }))
    end)
    it("sees through .. and links", function()
      sh("ln -s %s %s/out; ln -s ../o/f %s/l; touch %s/f", O, W, W, O)
      denied("../o/x")
      denied("out/x")
      denied("l")
      assert.equal("", slurp(O .. "/f"))
    end)
    it("refuses a file with another name", function()
      spill(O .. "/secret", "S")
      sh("ln %s/secret %s/a", O, W)
      local err = denied("a")
      assert.truthy(err.message:find("hard link", 1, true))
      assert.equal("S", slurp(O .. "/secret"))
      assert(fs:write_text("a", "new", { allow_hard_links = true }))
      assert.equal("S", slurp(O .. "/secret"))
    end)
  end)

  describe("writing", function()
    it("goes through a link and keeps it", function()
      spill(W .. "/real.txt", "old")
      sh("ln -s real.txt %s/l", W)
      assert(fs:edit_text("l", "old", "new"))
      assert.equal("new", slurp(W .. "/real.txt"))
      assert.equal("real.txt", sh("readlink %s/l", W))
    end)
    it("names dangling and cyclic links", function()
      sh("ln -s nowhere %s/d; ln -s c2 %s/c1; ln -s c1 %s/c2", W, W, W)
      local _, err = fs:write_text("d", "x")
      assert.equal("FS_NOT_FOUND", err.code)
      _, err = fs:write_text("c1", "x")
      assert.equal("FS_IO", err.code)
      assert.is_nil(slurp(W .. "/nowhere"))
    end)
    it("never clobbers with create, never with a stale version", function()
      local version = assert(fs:write_text("a", "1", { intent = "create" }))
      local _, err = fs:write_text("a", "2", { intent = "create" })
      assert.equal("FS_EXISTS", err.code)
      spill(W .. "/a", "other")
      _, err = fs:write_text("a", "3", { intent = "replace",
        version = version })
      assert.equal("FS_STALE", err.code)
      assert.equal("other", slurp(W .. "/a"))
      _, version = fs:read_text("a")
      assert(fs:write_text("a", "4", { intent = "replace",
        version = version }))
      assert.equal("4", slurp(W .. "/a"))
    end)
    it("refuses what is no regular file", function()
      sh("mkdir %s/d; mkfifo %s/p", W, W)
      for _, name in ipairs({ "d", "p", "." }) do
        local _, err = fs:write_text(name, "x")
        assert.equal("FS_NOT_REGULAR", err.code)
      end
      local _, err = fs:read_text("p")
      assert.equal("FS_NOT_REGULAR", err.code)
      _, err = fs:write_text("no/such/dir", "x")
      assert.equal("FS_NOT_FOUND", err.code)
    end)
    it("honours the umask for new files", function()
      assert(fs:write_text("a", "x"))
      local expected = sh("cd %s && touch ref && stat -c %%a ref", W)
      assert.equal(expected, sh("stat -c %%a %s/a", W))
    end)
    it("removes what a crash left, and only that", function()
      spill(W .. "/.a.dsh-tmp0", "left")
      spill(W .. "/.b.dsh-tmp0", "another file's")
      assert(fs:write_text("a", "x"))
      assert.is_nil(slurp(W .. "/.a.dsh-tmp0"))
      assert.truthy(slurp(W .. "/.b.dsh-tmp0"))
    end)
    it("is not held up by what it may not remove", function()
      sh("ln -s %s %s/.a.dsh-tmp0; mkdir %s/.a.dsh-tmp1", O, W, W)
      assert(fs:write_text("a", "x"))
      assert.equal("x", slurp(W .. "/a"))
      assert.equal("", sh("ls -A %s", O))
    end)
    it("leaves the old content when the disk is full", function()
      if core.sys.uid() ~= 0 or sh("mount -t tmpfs -o size=64k none %s/o "
        .. "&& echo ok", base) ~= "ok" then
        pending("a small tmpfs cannot be mounted here")
        return
      end
      spill(O .. "/a", "0123456789")
      local _, err = fs:write_text(O .. "/a", ("x"):rep(100000),
        { policy = { mode = "workspace-write", workspace_root = O } })
      local names = sh("ls -A %s", O)
      local text = slurp(O .. "/a")
      sh("umount %s", O)
      assert.equal("FS_IO", err.code)
      assert.equal("ENOSPC", err.errno_name)
      assert.equal("0123456789", text)
      assert.equal("a", names)
    end)
  end)

  describe("what a file has beside its content", function()
    it("keeps mode, times' meaning, attributes and ACL", function()
      spill(W .. "/a", "old")
      sh("chmod 0751 %s/a", W)
      local attr = sh("setfattr -n user.note -v kept %s/a && echo ok", W)
      local acl = sh("setfacl -m u:12345:r %s/a && echo ok", W)
      assert(fs:edit_text("a", "old", "new"))
      if acl == "ok" then
        assert.truthy(sh("getfacl -cn %s/a", W):find("user:12345:r", 1, true))
        sh("setfacl -b %s/a", W)
      end
      assert.equal("751", sh("stat -c %%a %s/a", W))
      if attr == "ok" then
        assert.truthy(sh("getfattr -d %s/a", W):find('user.note="kept"', 1,
          true))
      end
    end)
    it("keeps owner and group, or refuses naming them", function()
      if core.sys.uid() ~= 0 then
        pending("only uid 0 can give a file away")
        return
      end
      spill(W .. "/a", "old")
      sh("chown 1234:4321 %s/a && chmod 6755 %s/a", W, W)
      assert(fs:edit_text("a", "old", "new"))
      assert.equal("1234:4321 6755", sh("stat -c '%%u:%%g %%a' %s/a", W))
    end)
    it("keeps capabilities, which a write drops", function()
      spill(W .. "/a", "old")
      if sh("setcap cap_net_raw+ep %s/a && echo ok", W) ~= "ok" then
        pending("file capabilities cannot be set here")
        return
      end
      local before = sh("getcap %s/a", W)
      assert(fs:edit_text("a", "old", "new"))
      assert.equal(before, sh("getcap %s/a", W))
      assert.truthy(before:find("cap_net_raw", 1, true))
    end)
    for flag, name in pairs({ i = "immutable", a = "append%-only" }) do
      it("refuses what chattr +" .. flag .. " marks, naming it", function()
        spill(W .. "/a", "old")
        if sh("chattr +%s %s/a && echo ok", flag, W) ~= "ok" then
          pending("file flags cannot be set here")
          return
        end
        local _, err = fs:edit_text("a", "old", "new")
        sh("chattr -%s %s/a", flag, W)
        assert.equal("FS_PERMISSION_DENIED", err.code)
        assert.equal("old", slurp(W .. "/a"))
        assert.equal("a", sh("ls -A %s", W))
        assert.truthy(err.message:find(name), err.message)
      end)
    end
    it("keeps flags that a copy can carry", function()
      spill(W .. "/a", "old")
      if sh("chattr +d %s/a && echo ok", W) ~= "ok" then
        pending("file flags cannot be set here")
        return
      end
      assert(fs:edit_text("a", "old", "new"))
      assert.truthy(sh("lsattr %s/a", W):find("^%S*d"))
    end)
  end)

  describe("editing", function()
    local CASES = {
      { "BOM and CRLF", "\xef\xbb\xbfone\r\ntwo\r\n", "two", "2",
        "\xef\xbb\xbfone\r\n2\r\n" },
      { "LF pattern on CRLF text", "a\r\nb\r\nc", "a\nb", "x\ny",
        "x\r\ny\r\nc" },
      { "mixed ends", "a\r\nb\nc\r", "b", "B", "a\r\nB\nc\r" },
      { "no final newline", "a\nb", "b", "c", "a\nc" },
      { "new lines in CRLF text", "a\r\nb\r\n", "b", "c\nd",
        "a\r\nc\r\nd\r\n" },
      { "new lines in mixed text", "a\r\nb\n", "b", "c\nd",
        "a\r\nc\nd\n" },
      { "a lone LF pattern at the start", "a\r\nb", "\nb", "\nc", "a\r\nc" },
    }
    for _, case in ipairs(CASES) do
      it("changes only what matched: " .. case[1], function()
        spill(W .. "/a", case[2])
        assert(fs:edit_text("a", case[3], case[4]))
        assert.equal(case[5], slurp(W .. "/a"))
      end)
    end
    it("counts", function()
      spill(W .. "/a", "x y x")
      local _, err = fs:edit_text("a", "x", "z")
      assert.equal("FS_EDIT_AMBIGUOUS", err.code)
      assert.equal(2, err.count)
      _, err = fs:edit_text("a", "q", "z")
      assert.equal("FS_EDIT_NOT_FOUND", err.code)
      _, err = fs:edit_text("a", "", "z")
      assert.equal("FS_EDIT_NOT_FOUND", err.code)
      assert.equal("x y x", slurp(W .. "/a"))
      local _, count = assert(fs:edit_text("a", "x", "z",
        { replace_all = true }))
      assert.equal(2, count)
      assert.equal("z y z", slurp(W .. "/a"))
    end)
    it("refuses what is not text, whole", function()
      for _, bytes in ipairs({ "a\0b", "\xff\xfe", "\xc0\x80", "\xed\xa0\x80",
        "ok\xf0\x9f" }) do
        spill(W .. "/a", bytes)
        local _, err = fs:edit_text("a", "a", "b")
        assert.equal("FS_NOT_TEXT", err.code)
        assert.equal(bytes, slurp(W .. "/a"))
      end
    end)
    it("never turns text into something else", function()
      spill(W .. "/a", "caf\u{e9}")
      for _, case in ipairs({ { "\xa9", "x" }, { "f", "\0" },
        { "f", "\xff" } }) do
        local _, err = fs:edit_text("a", case[1], case[2])
        assert.equal("FS_NOT_TEXT", err.code)
      end
      local _, err = fs:write_text("a", "x\0y")
      assert.equal("FS_NOT_TEXT", err.code)
      assert.equal("caf\u{e9}", slurp(W .. "/a"))
    end)
    it("refuses a large file before reading it", function()
      sh("truncate -s 1T %s/a", W)
      local _, err = fs:read_text("a")
      assert.equal("FS_TOO_LARGE", err.code)
    end)
    it("property: only the matched bytes change", function()
      math.randomseed(20261201)
      local planes = { "a", "Z", " ", "\u{e9}", "\u{4e2d}", "\u{1f600}",
        "\u{10fffd}", "\n", "\r\n", "\r", "\t" }
      for _ = 1, 300 do
        local parts = {}
        for i = 1, math.random(0, 40) do
          parts[i] = planes[math.random(#planes)]
        end
        local head = (math.random(2) == 1 and "\xef\xbb\xbf" or "")
          .. table.concat(parts)
        local tail = table.concat(parts, "", 1, math.random(0, #parts))
        spill(W .. "/a", head .. "<<mark>>" .. tail)
        assert(fs:edit_text("a", "<<mark>>", "\u{1f680}"))
        assert.equal(head .. "\u{1f680}" .. tail, slurp(W .. "/a"))
      end
    end)
    it("50 processes leave 50 marks", function()
      spill(W .. "/a", "marks:\n")
      local script = base .. "/edit.lua"
      spill(script, [[
local core = require("dsh.core")
local policy = { mode = "workspace-write", workspace_root = arg[1],
  temp = "private", temp_dir = arg[1] }
assert(core.fence.edit(arg[1] .. "/a", "marks:\n", "marks:\n" .. arg[2]
  .. "\n", { policy = policy }))
]])
      sh("export LUA_PATH='%s' LUA_CPATH='%s'; for i in $(seq 50); do "
        .. "lua5.4 %s %s m$i & done; wait", package.path, package.cpath,
        script, W)
      assert.equal("51", sh("wc -l < %s/a", W))
      assert.equal("50", sh("grep -c '^m[0-9]*$' %s/a", W))
      assert.equal("a", sh("ls -A %s", W))
    end)
  end)

  it("the walk gives the same answers as openat2", function()
    sh("mkdir %s/d; ln -s %s %s/out", W, O, W)
    local opts = { policy = policy, no_openat2 = true }
    assert(core.fence.write(W .. "/d/a", "x", opts))
    assert.equal("x", slurp(W .. "/d/a"))
    local _, err = core.fence.write(W .. "/out/a", "x", opts)
    assert.equal("FS_SANDBOX_DENIED", err.code)
  end)

  it("raises for what cannot be meant", function()
    assert.has_error(function()
      core.fence.write("a\0b", "x")
    end)
    assert.has_error(function()
      core.fence.write(W .. "/a", "x", { intent = "maybe" })
    end)
    assert.has_error(function()
      core.fence.write(W .. "/a", "x", { polciy = policy })
    end)
  end)
end)
