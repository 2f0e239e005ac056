-- edit.lua FILE OLD NEW: replaces one passage of a text file that lies in the
-- working directory or in a temporary one, and of no other.
--
--   dshsh lua examples/edit.lua notes.txt "teh" "the"
--
-- Line ends, mode, owner and attributes stay as they are. Exit 0, or 1 with
-- the reason.
local dsh = require("dsh")

local path, old, new = arg[1], arg[2], arg[3]
if not new then
  print("usage: edit.lua FILE OLD NEW")
  return 2
end

local ctx <close> = assert(dsh.open({ mode = "workspace-write",
  rows = { { id = "sandbox-policy", name = "dsh.sandbox_policy",
    config = { mode = "workspace-write" } },
    { id = "fs-sandbox", name = "dsh.fs_sandbox" } } }))

-- Somebody may have the file open: what changes between our look and our
-- write is an error, and nothing of theirs is lost.
local text, version = ctx.fs:read_text(path)
if not text then
  print(tostring(version))
  return 1
end
local ok, err = ctx.fs:edit_text(path, old, new, { version = version })
if not ok then
  print(tostring(err))
  return 1
end
print(("%s: replaced"):format(path))
