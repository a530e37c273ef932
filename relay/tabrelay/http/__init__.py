"""HTTP below MCP: headers, request framing, content negotiation, one exchange. Handles no MCP method."""
