"""Inbound interfaces: MCP over HTTP, web pages, calls from other relays. A face never imports a peer."""
