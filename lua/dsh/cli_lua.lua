--- dshsh lua SCRIPT ARGS...: a Lua script with the toolkit at hand. The
-- script itself is trusted and not confined; what it runs through a context
-- is. Without a script, or with "-", standard input is the script.
return {
  name = "lua",
  summary = "run a Lua script with the toolkit at hand",
  setup = function(cmd)
    cmd:argument("script", "The script; '-' or none: standard input.")
      :args("?")
    cmd:argument("arguments", "Its arguments."):args("*")
    cmd:handle_options(false)
  end,
  run = function(args, app)
    if args.script == "-h" or args.script == "--help" then
      print("Usage: dshsh lua [SCRIPT [ARGUMENTS]]\n\n"
        .. "run a Lua script with the toolkit at hand; '-' or no SCRIPT: "
        .. "standard input.\nThe script itself is trusted and not confined.")
      return 0
    end
    local file = args.script
    local chunk, why = loadfile(file ~= "-" and file or nil, "t")
    if not chunk then
      return nil, why
    end
    -- luacheck: globals arg
    arg = { [0] = file or "-", table.unpack(args.arguments) }
    local ok, answer = xpcall(chunk, function(err)
      return type(err) == "string" and debug.traceback(err, 2) or err
    end, table.unpack(args.arguments))
    if not ok then
      app.err("%s", tostring(answer))
      return 1
    end
    return math.type(answer) == "integer" and answer & 255 or 0
  end,
}
