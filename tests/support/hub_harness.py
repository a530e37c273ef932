"""Hub with a fake clock, for tests of tabs: deferred work and timers run when the test advances them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tabserver.handlers.context import Cancel, Result
from tabserver.handlers.target import Target
from tabserver.handlers.toolbox import Toolbox
from tabserver.tabs.hub import Hub
from tests.support.fake_port import FakePort
from tests.support.fake_request import RecordingCall, RecordingRequest
from tests.support.server_harness import CoreHarness


class CoreRig:
    """A core and its hub, whose clock does not advance; deferred work runs in `settle`."""

    def __init__(self) -> None:
        self.box = Toolbox()
        self.due: list[Any] = []
        self.hub = Hub(
            self.box,
            now_ms=lambda: 0.0,
            defer=self.due.append,
            later=lambda delay_ms, ring: None,
            on_change=lambda lists: self.bench.server.catalogue_changed(lists),
            on_update=lambda uri: self.bench.server.resource_updated(uri),
        )
        self.bench = CoreHarness(self.hub)

    def settle(self) -> None:
        while self.due:
            self.due.pop(0)()

    def answer(self, port: FakePort, result: object) -> None:
        self.hub.receive_result(port, port.last("call")["call"], json.dumps(result), False)


class HubRig:
    """A hub with a clock that the test advances, and deferred work that runs in `settle`."""

    def __init__(self) -> None:
        self.time_ms = 1_000.0
        self.due: list[Callable[[], None]] = []
        self.changes = 0
        self.toolbox = Toolbox()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.hub = Hub(
            self.toolbox,
            now_ms=lambda: self.time_ms,
            defer=self.due.append,
            later=lambda delay_ms, ring: self.timers.append((self.time_ms + delay_ms, ring)),
            on_change=self._changed,
        )
        self.results: list[Any] = []
        self.context = RecordingRequest()

    def _changed(self, lists: list[str]) -> None:
        self.changes += 1

    def settle(self) -> None:
        while self.due:
            self.due.pop(0)()

    def wait(self, seconds: float, *, busy: bool = False) -> None:
        """Advance the clock. `busy`: the worker itself was blocked, so timers fire only at the end of this time."""
        end_ms = self.time_ms + seconds * 1000
        while due := [timer for timer in self.timers if timer[0] <= end_ms]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.time_ms = end_ms if busy else max(self.time_ms, timer[0])
            timer[1]()
        self.time_ms = end_ms

    def tab(self, id: str, *names: str, visible: bool = True, **more: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": visible})
        if names:
            self.hub.receive(port, {"t": "offer", "tools": [{"name": name} | more for name in names]})
        return port

    def show(self, port: FakePort, visible: bool, focused: bool = False) -> None:
        self.hub.receive(port, {"t": "tab", "title": "", "url": "", "visible": visible, "focused": focused})

    def call(self, name: str, **arguments: Any) -> Cancel:
        return self.hub.call(name, arguments, RecordingCall(self.context, self.results.append))

    def call_in(self, tab: str, name: str, **arguments: Any) -> Cancel:
        """Call as a caller that has chosen a tab."""
        self.context.target = Target(tab)
        try:
            return self.call(name, **arguments)
        finally:
            self.context.target = None

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.hub.tools()]


SURE = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def text_of(result: Result) -> str:
    return str(result["content"][0]["text"])


def reply(rig: HubRig, port: FakePort, result: object) -> None:
    rig.hub.receive_result(port, port.last("call")["call"], json.dumps(result), False)
