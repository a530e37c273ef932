"""An MCP server whose tool calls end when the test ends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabserver.handlers.context import Cancel, Done, Request
from tabserver.handlers.toolbox import Toolbox
from tabserver.handlers.tools import UnknownTool
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.server_harness import CoreHarness

LEGACY = Caller(Era.LEGACY, "2025-11-25", "token:test")
INFO = {"name": "demo", "version": "1.2"}
ADD = {"name": "add", "inputSchema": {"type": "object"}}


class HeldCatalogue(Toolbox):
    """Holds every tool call until the test ends it; `on_call` may end or refuse it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[dict[str, Any]] = [ADD]
        self.calls: list[tuple[str, dict[str, Any], Request, Done]] = []
        self.cancelled: list[str] = []
        self.on_call: Callable[[Request, Done], None] = lambda context, done: None

    def tools(self) -> list[dict[str, Any]]:
        return self.offered

    def call(self, name: str, arguments: dict[str, Any], request: Request, done: Done) -> Cancel:
        if name not in [tool["name"] for tool in self.offered]:
            raise UnknownTool(name)
        self.calls.append((name, arguments, request, done))
        self.on_call(request, done)
        return self.cancelled.append


class HeldServer(CoreHarness):
    """Server with a catalogue that the test controls."""

    def __init__(self, instructions: str | None = None) -> None:
        self.catalogue = HeldCatalogue()
        super().__init__(self.catalogue, instructions)


def refused(answer: Any) -> tuple[int, str, str]:
    """Code, message and reason of a request that was refused before it ran."""
    error = answer["error"]
    assert {key: error["data"][key] for key in ("delivered", "retryable", "server")} == {
        "delivered": "no",
        "retryable": False,
        "server": "demo",
    }
    return error["code"], error["message"], error["data"]["reason"]
