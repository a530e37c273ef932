"""Shared worker: composition root, calls that JavaScript carries out, and the tool `run_python`.

`start` is the one function that worker.js imports by name; the import of `main` waits until it is called. The rules of
tabs, MCP and the link are in the packages that `main` connects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..browser.python_bridge import PythonBridge


def start(bridge: PythonBridge, relay: str, build: str, version: str) -> Callable[[Any], None]:
    """Start the worker and return the function that accepts a page's port. worker.js calls it when Python is loaded."""
    from .main import start

    return start(bridge, relay, build, version)
