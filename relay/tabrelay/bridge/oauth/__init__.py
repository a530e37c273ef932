"""OAuth for the bridge: tokens that the user or the program has to ask for. Loaded when a server wants one.

The protocol is the official SDK's (`flow` drives it, and is the only file that knows it). Where tokens are kept, who
may ask at a time, and how the browser comes back is ours.
"""
