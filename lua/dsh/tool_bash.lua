--- dsh.tool_bash: bash as a tool for a model. See dsh.tool_shell.
return require("dsh.tool_shell").module("bash", "bash")
