"""Transport of the worker: the link over WebSockets, with dialing, backoff, reconnects and channels.

It gets its clock, timers and sockets as arguments, so it runs on CPython with fakes. What messages mean is decided in
`mcp`.
"""
