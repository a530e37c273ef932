"""The MCP clients on this computer: where each keeps its configuration, and how an entry gets in and out of it.

These files are other people's: every byte that is not ours stays as it is, and what can't be understood is not touched.
"""
