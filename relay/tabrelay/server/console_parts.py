"""Console of one relay: builds its routes on capture, switch and registry, and reports changes to open consoles.

One per relay, whether a console is open or not. The routes are in `faces.web`, the capture in `observe.capture`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tabrelay import __version__
from tabrelay.faces.web.app_frame import AppFrameRoutes
from tabrelay.faces.web.console import ConsoleRoutes
from tabrelay.faces.web.console_breakpoints import BreakpointRoutes
from tabrelay.faces.web.console_faults import FaultRoutes, InjectsFaults
from tabrelay.faces.web.console_runs import ConsoleRuns
from tabrelay.faces.web.routes import RouteGroup
from tabrelay.routing.switch import Switch
from tabrelay.server.relay_parts import RelayParts


class Console:
    """What the relay tells open consoles, and their routes."""

    def __init__(self, parts: RelayParts) -> None:
        self._parts = parts
        self._capture = parts.capture

    def groups(
        self, switch: Switch, faults: InjectsFaults | None, nodes: Callable[[], list[str]]
    ) -> tuple[RouteGroup, ...]:
        """Its routes. `faults`: None if the relay offers none. `nodes`: the other relays on the bus."""
        capture = self._capture
        return (
            ConsoleRoutes(capture, lambda: {**self._hello(nodes()), "faults": faults is not None}),
            ConsoleRuns(capture, switch),
            BreakpointRoutes(capture),
            FaultRoutes(faults),
            AppFrameRoutes(),
        )

    def _hello(self, nodes: list[str]) -> dict[str, Any]:
        parts = self._parts
        here = {"name": self._capture.relay, "url": parts.url}
        return {
            "relay": here,
            "version": __version__,
            "now": round(time.time() * 1000),
            "inspect": parts.settings.inspect,
            "is_on": self._capture.is_on,
            "limits": self._capture.limits,
            "relays": [here, *({"name": node, "url": None} for node in nodes)],
        }

    def status_changed(self) -> None:
        """Servers, tabs, pairings or nodes are not what they were."""
        self._capture.status_changed()

    def close(self) -> None:
        """The relay stops."""
        self._capture.stop()
