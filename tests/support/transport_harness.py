"""A transport on a simulated clock: fake sockets, and the real link as the relay's end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tabserver.transport.reconnect import Transport, TransportState
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller, Greeting
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tests.support.fake_clock import Clock, settle
from tests.support.fake_sockets import FakeAbort, FakeDialer, FakeRelay, FakeSocket

CALLER = Caller(Era.LEGACY, "2025-11-25", "token:test")
ONE_REQUEST = Caller(Era.MODERN, "2026-07-28", "token:test")


class TransportHarness:
    """A transport on a fake clock, with a log of its callbacks."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.clock = Clock()
        self.dialer = FakeDialer()
        self.relay = FakeRelay(self.clock)
        self.log: list[tuple[str, Any]] = []
        self.states: list[TransportState] = []
        self.aborts: list[FakeAbort] = []
        # Tests replace these.
        self.receive: Callable[[Any], None] = lambda event: self.log.append(("message", event))
        self.on_error: Callable[[Exception], None] = lambda error: self.log.append(("error", error))
        self.on_state: Callable[[TransportState], None] = self.states.append
        self.transport = Transport(
            Link.dialer(Greeting("demo", "inst", "b"), limits or Limits()),
            self.dialer,
            clock=self.clock,
            new_abort=self._new_abort,
            jitter=lambda: 0.5,
            call_later=self.clock.call_later,
            new_receiver=lambda send: lambda event: self.receive(event),
            on_open=lambda: self.log.append(("open", None)),
            on_close=lambda code, reason: self.log.append(("close", code)),
            on_error=lambda error: self.on_error(error),
            on_state=lambda state: self.on_state(state),
        )

    def _new_abort(self) -> FakeAbort:
        self.aborts.append(FakeAbort())
        return self.aborts[-1]

    async def start(self) -> None:
        await self.transport.start()
        await settle()

    async def connect(self) -> FakeSocket:
        """Open the dial that is waiting and let the relay welcome it."""
        socket = self.dialer.last.open()
        await settle()
        self.relay.accept(socket)
        return socket

    def is_connected(self) -> bool:
        return self.transport.is_connected

    def messages(self) -> list[Any]:
        return [value for kind, value in self.log if kind == "message"]

    def errors(self) -> list[Any]:
        return [value for kind, value in self.log if kind == "error"]
