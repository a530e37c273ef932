"""Command line of the relay (`tabrelay`), one module per command or pair of commands.

A command imports what it needs when it runs, so that `tabrelay stdio` and `tabrelay mcp` start fast.
"""
