--- dsh.errors: the error record, made in Lua without the C core.
-- {code, message, stage, errno?, path?, cause?}; tostring is
-- "CODE: message". The codes are listed once, in src/dsh.h.
local M = {}

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
