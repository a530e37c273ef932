"""Tabrelay: a browser tab is an MCP server.

The relay is the part that runs on the developer's machine: MCP clients call it over HTTP, browser workers hold a
WebSocket to it, and it carries each call to the tab that offers the tool. This file only names the package and its
version; it imports nothing, so that `tabrelay --version` and the build read it without starting the house.
"""

from typing import Any

__version__ = "0.1.0"

__all__ = ["__version__", "create_app"]


def __getattr__(name: str) -> Any:
    """Load `create_app` when somebody asks for it: the composition root pulls in every room."""
    if name == "create_app":
        from tabrelay.server.app import create_app

        return create_app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
