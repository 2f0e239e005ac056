-- windows-acl-run.exe under wine. wine answers success to the calls that
-- restrict and restricts nothing: so the runner must refuse there, by name,
-- and leave nothing behind. The rest is tried through a second program that
-- skips the token step (spec/windows/no_token.c).
local h = require("helpers")
local lfs = require("lfs")

local WINE, SERVER = "/usr/lib/wine/wine64", "/usr/lib/wine/wineserver64"
local EXE = h.build .. "/windows-acl-run.exe"
local BARE = h.build .. "/test/windows/no-token.exe"
local TRIAL = h.build .. "/test/windows/trial.exe"

local missing
for path, what in pairs({ [WINE] = "wine64 is not installed",
  [EXE] = "gcc-mingw-w64-x86-64 is not installed: no windows-acl-run.exe",
  [BARE] = "gcc-mingw-w64-x86-64 is not installed: no test program" }) do
  if not h.exists(path) then
    missing = what
  end
end

-- A path as wine sees it.
local function win(path)
  return "Z:" .. path:gsub("/", "\\")
end

local prefix

local function wine(argv, opts)
  opts = opts or {}
  opts.limit = opts.limit or 100
  opts.env = { WINEPREFIX = prefix, WINEDEBUG = "-all", LC_ALL = "C.UTF-8",
    DSH_TEST_LIE = opts.lie or "", DISPLAY = "" }
  return h.exec({ WINE, table.unpack(argv) }, opts)
end

local function run(exe, dir, mode, ...)
  local words = { exe, "--workspace", win(dir.W), "--mode", mode }
  if mode == "workspace-write" then
    words[#words + 1] = "--temp"
    words[#words + 1] = win(dir.base .. "/t")
  end
  words[#words + 1] = "--"
  return wine(table.move({ ... }, 1, select("#", ...), #words + 1, words))
end

-- Names, kinds, permissions and contents of a tree.
local function tree(dir, without_mode)
  local mode = without_mode and "-" or "%m"
  return h.exec({ "sh", "-c", 'cd "$0" && find . -printf "%p %y ' .. mode
    .. ' %u %s\\n" | sort; find . -type f -exec cksum {} +;'
    .. ' getfattr -dRm- . 2>&1', dir }).out
end

describe("windows-acl-run under wine", function()
  if missing then
    it("runs", function()
      pending(missing)
    end)
    return
  end

  setup(function()
    local p = assert(io.popen("mktemp -d"))
    prefix = p:read("l")
    p:close()
    wine({ EXE, "--version" }, { limit = 200 }) -- makes the prefix
  end)

  teardown(function()
    h.exec({ "env", "WINEPREFIX=" .. prefix, SERVER, "-k" })
    h.exec({ "env", "WINEPREFIX=" .. prefix, SERVER, "-w" })
    os.execute("rm -rf " .. h.quote(prefix))
  end)

  after_each(h.clean)

  for _, mode in ipairs({ "read-only", "workspace-write" }) do
    it("refuses by name under " .. mode .. ", nothing changed", function()
      local d = h.scratch()
      h.write(d.W .. "/f", "old")
      lfs.mkdir(d.W .. "/sub")
      local before = tree(d.base)
      local r = run(EXE, d, mode, "cmd.exe", "/c", "echo x>"
        .. win(d.W .. "/f"))
      assert.are.equal(127, r.code)
      assert.matches("^windows%-acl%-run: the restricted token's list cannot "
        .. "be read back: error %d+\r?\n$", r.err)
      assert.are.equal("", r.out)
      assert.are.equal(before, tree(d.base))
      assert.are.equal("old", h.read(d.W .. "/f"))
    end)
  end

  it("sees that an ACE is not there, and takes back what it did", function()
    local d = h.scratch()
    h.write(d.W .. "/f", "old")
    -- wine makes a mode of an access list, and not the same one back
    local before = tree(d.base, true)
    local r = run(BARE, d, "workspace-write", "cmd.exe", "/c", "echo x>"
      .. win(d.W .. "/f"))
    assert.are.equal(127, r.code)
    assert.matches("the entry for S%-1%-4%-%d+%-%d+ is not there, although "
      .. "the system reported success", r.err)
    assert.are.equal(before, tree(d.base, true))
  end)

  it("never resumes a child whose token reads back unrestricted", function()
    local d = h.scratch()
    local r = wine({ BARE, "--workspace", win(d.W), "--mode", "read-only",
      "--", "cmd.exe", "/c", "echo x>" .. win(d.W .. "/made") },
      { lie = "child" })
    assert.are.equal(127, r.code)
    assert.matches("the child's token is not restricted", r.err)
    assert.is_false(h.exists(d.W .. "/made"))
    r = wine({ BARE, "--workspace", win(d.W), "--mode", "read-only",
      "--", "cmd.exe", "/c", "echo x>" .. win(d.W .. "/made") })
    assert.are.equal(0, r.code) -- so the trial can tell
    assert.is_true(h.exists(d.W .. "/made"))
  end)

  it("fails its self-test, since nothing is restricted", function()
    local r = wine({ EXE, "--self-test" })
    assert.are.equal(1, r.code)
    assert.matches("self%-test: FAILED", r.out)
    assert.is_nil(r.out:match("\nok") or r.out:match("^ok"))
    -- the trial's places are known, gone, and then forgotten
    assert.are.equal(0, wine({ EXE, "--inventory" }).code)
    assert.are.equal(0, wine({ EXE, "--clean" }).code)
    r = wine({ EXE, "--inventory" })
    assert.are.equal(0, r.code)
    assert.are.equal("", r.out)
  end)

  it("answers misuse in one line, exit 127", function()
    local d = h.scratch()
    for _, words in ipairs({ {}, { "--" }, { "--workspace", "w", "--mode",
      "read-only", "--", "cmd.exe" }, { "--workspace", win(d.W), "--mode",
      "full", "--", "cmd.exe" }, { "--workspace", win(d.W), "--mode",
      "workspace-write", "--temp", win(d.W .. "/t"), "--", "cmd.exe" },
      { "--workspace", win(d.W .. "/none"), "--mode", "read-only", "--",
        "cmd.exe" }, { "--workspace", "Z:\\", "--mode", "read-only", "--",
        "cmd.exe" }, { "--workspace", win(d.W), "--mode", "read-only",
        "--write-sid", "S-1-1-0", "--", "cmd.exe" } }) do
      local r = wine({ EXE, table.unpack(words) })
      assert.are.equal(127, r.code)
      assert.matches("^windows%-acl%-run: [^\n]+\n$", r.err)
    end
    assert.is_false(h.exists(d.W .. "/t"))
  end)

  it("takes no script of cmd.exe and no name from the directory", function()
    local d = h.scratch()
    h.write(d.W .. "/evil.bat", "echo x>made\r\n")
    assert(os.execute(("cp %s %s"):format(h.quote(TRIAL),
      h.quote(d.W .. "/mine.exe"))))
    local r = wine({ BARE, "--workspace", win(d.W), "--mode", "read-only",
      "--", win(d.W .. "/evil.bat") })
    assert.are.equal(127, r.code)
    assert.matches("cannot be started", r.err)
    r = wine({ BARE, "--workspace", win(d.W), "--mode", "read-only", "--",
      "mine.exe", "exit", "3" }, { cwd = d.W })
    assert.are.equal(127, r.code)
    r = wine({ BARE, "--workspace", win(d.W), "--mode", "read-only", "--",
      win(d.W .. "/mine"), "exit", "3" })
    assert.are.equal(3, r.code)
  end)

  it("passes 50 MB of bytes unchanged", function()
    local d = h.scratch()
    assert(os.execute(("head -c 50000000 /dev/urandom >%s"):format(
      h.quote(d.O .. "/in"))))
    local r = h.exec({ "sh", "-c", [[
      export WINEPREFIX="$1" WINEDEBUG=-all LC_ALL=C.UTF-8
      "$2" "$3" --workspace "$4" --mode read-only -- "$5" cat \
        <"$6/in" >"$6/out" && cmp "$6/in" "$6/out"]], "sh", prefix, WINE,
      BARE, win(d.W), win(TRIAL), d.O }, { limit = 100 })
    assert.are.equal("", r.err)
    assert.are.equal(0, r.code)
    assert.are.equal(50000000, lfs.attributes(d.O .. "/out", "size"))
  end)

  for name, what in pairs({ argv = "10,000 random argv",
    codes = "exit codes over 32 bits", handle = "no further handle",
    kill = "a grandchild dies with the runner, at a deadline",
    ["end"] = "a grandchild dies when the command ends" }) do
    it("holds: " .. what, function()
      local d = h.scratch()
      local r = wine({ TRIAL, "drive", win(BARE), win(d.W), name })
      assert.are.equal("", r.err)
      assert.matches("^ok\r?\n$", r.out)
      assert.are.equal(0, r.code)
    end)
  end

  it("restricts writes", function()
    pending("wine restricts nothing: run windows-acl-run --self-test, and "
      .. "icacls before and after, on Windows")
  end)
end)
