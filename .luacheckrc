std = "lua54"
max_line_length = 80
files["spec"] = { std = "lua54+busted" }
files["spec/helpers.lua"] = { std = "lua54+busted" }
files["profiles"] = { std = "lua54" }
exclude_files = { "build" }
