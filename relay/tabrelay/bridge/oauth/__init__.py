"""OAuth client of the bridge, loaded when a server requires a token.

The protocol is implemented by the official SDK, which only `sdk_flow` imports. Token storage, locking between processes
and the redirect to the browser are implemented here.
"""
