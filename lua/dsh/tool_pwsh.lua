--- dsh.tool_pwsh: PowerShell as a tool for a model. See dsh.tool_shell.
return require("dsh.tool_shell").module("pwsh", "PowerShell")
