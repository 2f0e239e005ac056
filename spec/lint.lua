-- lint.lua FILES: 80 columns (characters), no tab, no trailing blank.
local bad = false
for _, name in ipairs(arg) do
  local file = not name:match("^spec/fixtures/") and io.open(name, "rb")
  local n = 0
  for line in file and file:lines() or function() end do
    n = n + 1
    local what = (utf8.len(line) or #line) > 80 and "over 80 columns"
      or line:match("[ \t]$") and "trailing blank"
      or line:match("\t") and "tab"
    if what then
      io.stderr:write(("lint: %s:%d: %s\n"):format(name, n, what))
      bad = true
    end
  end
end
os.exit(not bad)
