"""MCP over HTTP, in every protocol version: endpoint, modern and legacy face, sessions and streams."""
