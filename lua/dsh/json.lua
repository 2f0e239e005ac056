--- dsh.json: JSON values, with stable bytes.
-- encode(value, indent?) raises for what JSON cannot hold; decode(text)
-- gives the value or nil, err. null is a value of its own; array(t) marks a
-- table as an array, also when empty; object(t, order) puts the keys of
-- `order` first, the others follow sorted.
local core = require("dsh.core").json

local M = {
  encode = core.encode,
  decode = core.decode,
  array = core.array,
  null = core.null,
}

function M.object(t, order)
  return setmetatable(t or {}, { __order = order })
end

return M
