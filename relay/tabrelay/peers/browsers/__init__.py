"""Browsers that are connected to this relay, by the link or by a plain MCP WebSocket."""
