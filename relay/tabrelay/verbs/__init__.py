"""Verbs of the command line, one per file. Each adds its parser with `add`, and imports what it needs when it runs."""
