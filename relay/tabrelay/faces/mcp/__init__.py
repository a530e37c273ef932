"""MCP over HTTP, in every protocol version."""
