"""The stdio bridge: an MCP client that speaks only stdin and stdout, and a server that speaks HTTP.

It carries messages as they came: what it need not understand it does not touch. Nothing here knows the relay's rooms;
a server of the relay is reached over HTTP like any other. Modules load late: a client waits for this program to start.
"""
