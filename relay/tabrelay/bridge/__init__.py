"""stdio-to-HTTP bridge (`tabrelay stdio`): connects an MCP client on stdin and stdout to an MCP server over HTTP.

It forwards messages unchanged and parses only what it needs. It imports no part of the relay's server: a server of the
relay is used over HTTP like any other. Heavy modules are imported late: clients wait for this program to start.
"""
