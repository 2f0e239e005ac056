--- screen.lua: a program on a real terminal, driven and looked at by tmux.
--
--   local s = screen.start({ "dshsh" }, { cols = 80, rows = 24, env = {…} })
--   s:type("echo hi\r")          s:key("C-c")
--   s:wait("pattern", seconds)   -- raises, with the screen, when it is late;
--                                -- a function of the text will do too
--   s:text()                     -- what is on the screen now
--   s:resize(40, 20)             s:close()
local h = require("helpers")

local M = {}
local screen = {}
screen.__index = screen

local WAIT = 20 -- seconds; the machine may be busy
local count = 0

function M.available()
  return h.exec({ "sh", "-c", "command -v tmux" }).code == 0
end

local function tmux(self, ...)
  return h.exec({ "tmux", "-f", "/dev/null", "-S", self.socket, ... },
    { env = { LC_ALL = "C.UTF-8", TERM = "xterm-256color",
      SHELL = "/bin/sh" } })
end

function M.start(argv, opts)
  opts = opts or {}
  count = count + 1
  local self = setmetatable({ dir = h.exec({ "mktemp", "-d" }).out:match("%S+"),
    cols = opts.cols or 80, rows = opts.rows or 40 }, screen)
  self.socket = self.dir .. "/tmux"
  local words = { "env" }
  for name, value in pairs(opts.env or {}) do
    words[#words + 1] = name .. "=" .. value
  end
  for _, word in ipairs(argv) do
    words[#words + 1] = word
  end
  local quoted = {}
  for i, word in ipairs(words) do
    quoted[i] = h.quote(word)
  end
  -- The exit status is kept, and the screen stays for a last look.
  local line = ("%s; echo \"[ended $?]\"; sleep 600"):format(
    table.concat(quoted, " "))
  local r = tmux(self, "new-session", "-d", "-x", tostring(self.cols), "-y",
    tostring(self.rows), "-c", opts.cwd or "/", line)
  assert(r.code == 0, r.err)
  return self
end

function screen:text()
  local r = tmux(self, "capture-pane", "-p", "-S", "-500")
  return (r.out:gsub("[ \n]+$", "\n"))
end

--- Without scrollback: what is visible.
function screen:visible()
  return (tmux(self, "capture-pane", "-p").out)
end

function screen:wait(pattern, seconds)
  local deadline = os.time() + (seconds or WAIT)
  repeat
    local text = self:text()
    if type(pattern) == "function" and pattern(text)
      or type(pattern) == "string" and text:find(pattern) then
      return text
    end
    os.execute("sleep 0.05")
  until os.time() > deadline
  error(("no %s on the screen:\n%s"):format(tostring(pattern),
    self:text()), 2)
end

function screen:type(text)
  tmux(self, "send-keys", "-l", text)
end

function screen:line(text)
  self:type(text)
  self:key("Enter")
end

function screen:key(...)
  tmux(self, "send-keys", ...)
end

--- A paste, as the terminal would deliver it.
function screen:paste(text)
  h.write(self.dir .. "/paste", text)
  tmux(self, "load-buffer", self.dir .. "/paste")
  tmux(self, "paste-buffer")
end

function screen:resize(cols, rows)
  tmux(self, "resize-window", "-x", tostring(cols), "-y", tostring(rows))
end

function screen:close()
  if self.dir then
    tmux(self, "kill-server")
    os.execute("rm -rf " .. h.quote(self.dir))
    self.dir = nil
  end
end

return M
