"""Configuration files of MCP clients: where each is, and how an entry gets in and out of it.

The files belong to other programs: every byte that is not ours stays as it is, and a file that can not be parsed is
not changed.
"""
