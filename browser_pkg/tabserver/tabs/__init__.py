"""Browser tabs of the worker: their presence, what they offer, and the calls that run in them.

No module here imports a browser API, a socket or MCP messages: pages are reached through the Protocol `PagePort`.
"""
