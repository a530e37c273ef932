"""Servers elsewhere: child processes and addresses that the relay is the MCP client of.

Split in two, and import-linter holds it: how a server is reached (`peers.stdio`, `peers.http`) knows no MCP method;
what is said to it, in here, does no I/O.
"""
