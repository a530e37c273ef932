"""Other programs that put an MCP server behind HTTP, measured beside this one."""
