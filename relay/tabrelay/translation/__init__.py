"""Translation between the handshake era and the modern era of MCP. Does no I/O."""
