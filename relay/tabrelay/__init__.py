"""Tabrelay: a browser tab is an MCP server.

The relay runs on the developer's machine: MCP clients call it over HTTP, browser workers keep a WebSocket to it, and it
forwards each call to the tab that offers the tool. This file defines the version and imports nothing, so that
`tabrelay --version` and the build read it without loading the relay.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "create_app"]


def __getattr__(name: str) -> Any:
    """Import `create_app` when it is first used: the composition root imports all packages."""
    if name == "create_app":
        from tabrelay.server.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
