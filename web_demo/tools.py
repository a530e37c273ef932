"""Python tools of the demo that run in the worker, shared by all tabs of this browser.

The worker loads this file by its URL. A tool is a typed function: its signature becomes the schema that clients see,
its docstring the description. Code here must not block: while it runs, the worker handles no other call.
"""

from tabserver import tool


@tool
def add(a: int | float, b: int | float) -> int | float:
    """Add two numbers. Runs in Python, in the worker shared by all tabs."""
    return a + b
