"""Configuration files of MCP clients: their locations, and in-place edits of their server entries.

The files belong to other programs: every byte outside the edited entry stays unchanged, and a file that cannot be
parsed is not written.
"""
