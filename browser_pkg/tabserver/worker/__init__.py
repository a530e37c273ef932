"""The shared worker: composition root, fast path, calls that JavaScript carries out, and `run_python`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..browser.python_bridge import PythonBridge


def start(bridge: PythonBridge, relay: str, build: str, version: str) -> Callable[[Any], None]:
    """Start the worker; returns the function that accepts a page's port. worker.js calls it when Python is loaded."""
    from .main import start

    return start(bridge, relay, build, version)
