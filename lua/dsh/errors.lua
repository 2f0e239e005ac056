--- dsh.errors: the error record, made in Lua without the C core.
-- {code, message, stage, errno?, path?, cause?}; tostring is
-- "CODE: message". The codes are listed once, in src/dsh.h.
local M = {}

-- The same text as in src/confine.c; a test compares them.
M.UNAVAILABLE = 'sandbox mode "<mode>" is requested but no sandbox backend is '
  .. "usable on this host; refusing to run the command unconfined. Install "
  .. "bubblewrap or run a Landlock-enforcing kernel (Linux), ensure "
  .. "sandbox-exec is usable (macOS), or ensure the ACL restricted-token "
  .. "runner can start (Windows) \u{2014} otherwise switch the consumer to "
  .. "danger-full-access."

local meta = {
  __name = "dsh.error",
  __tostring = function(e)
    return e.code .. ": " .. e.message
  end,
}

--- A record; fields (optional) are added to it.
function M.new(code, message, fields)
  local e = { code = code, message = message, stage = "lua" }
  for k, v in pairs(fields or {}) do
    e[k] = v
  end
  return setmetatable(e, meta)
end

--- The fixed refusal (contract section 2); `detail` is what the runner said.
function M.unavailable(mode, detail, cause)
  local message = M.UNAVAILABLE:gsub("<mode>", { ["<mode>"] = mode })
  if detail then
    message = message .. " Runner failure: " .. detail
  end
  return M.new("SANDBOX_UNAVAILABLE", message, { stage = "runner",
    cause = cause })
end

--- nil, err: `return errors.fail("IO", "cannot read", {path = p})`.
function M.fail(code, message, fields)
  return nil, M.new(code, message, fields)
end

--- Is this value an error record, from Lua or from the core?
function M.is(value)
  return type(value) == "table" and type(value.code) == "string"
    and type(value.message) == "string"
end

--- Any caught value as a record: what is no record becomes one of `code`.
function M.wrap(value, code)
  if M.is(value) then
    return value
  end
  return M.new(code, tostring(value))
end

return M
