"""Upstreams: child processes and URLs of which the relay is the MCP client.

`transports` uses no MCP method. The other modules do no I/O; import-linter checks both.
"""
