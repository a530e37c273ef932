"""Interface to the calls that JavaScript may carry out without Python: see worker/js_calls.py.

A Protocol, and its implementation for a hub without JavaScript.
"""

from __future__ import annotations

from typing import Protocol

from ..handlers.tools import Tool
from ..mcp.call import RunningCall
from .routing import Destination


class Grants(Protocol):
    """Permissions for JavaScript to carry out calls like one before: see worker/js_calls.py."""

    def grant(self, call: RunningCall, destination: Destination, tool: Tool | None) -> None:
        """Others may be like this call, of a tab's tool or of a tool of the worker."""

    def revoke(self) -> None:
        """Something changed: no call is like the ones before."""


class NoGrants:
    """For a hub without JavaScript."""

    def grant(self, call: RunningCall, destination: Destination, tool: Tool | None) -> None: ...
    def revoke(self) -> None: ...
