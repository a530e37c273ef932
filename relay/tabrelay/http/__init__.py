"""HTTP that knows no MCP method: headers, request framing, content negotiation, one exchange."""
