"""Outbound connections to MCP servers. A peer never imports a face."""
