"""Graceful shutdown: the phases between a stop signal and the end of the process, without losing a call.

    open ──run──► answering ──no call is left, or patience is over──► closing ──close frames are written──► over

It counts running requests and sockets, and decides when browsers are closed and calls are given up. Browsers get
different reconnect delays, so that they do not all return at once. It knows neither HTTP nor WebSocket nor signals:
`runner` starts it, and the relay carries it out (`Drainable`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tabrelay.config.settings import Settings
from tabrelay.errors import RelayUnavailable

RESTART: Final = 1012  # WebSocket close code for "reconnect later"
RESTARTS: Final = "drain"  # reason of the close frame, read by workers
STOPS: Final = "stop"
FLUSH_S: Final = 1.0  # time to write queued errors and close frames
RETRY_AFTER_MS: Final = 2000


class Browser(Protocol):
    """A session with a browser, as the drain uses it."""

    @property
    def in_flight(self) -> int: ...

    def retire(self, code: int, reason: str, retry_ms: int | None = None) -> None: ...


class Drainable(Protocol):
    """What the drain needs of the relay."""

    def close(self) -> None:
        """Start no new call, and end the streams that would not end by themselves."""

    def browsers(self) -> Iterable[Browser]: ...

    def give_up(self, patience_s: float) -> None:
        """Fail the calls that are still running."""


class InFlightCounter:
    """Counter of running things: `with counter: …`. Calls `on_end` when one ends."""

    __slots__ = ("_on_end", "count")

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.count = 0
        self._on_end = on_end

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        on_end = self._on_end  # a name is called sooner than an attribute that is no method
        on_end()


class Drain:
    """One per relay. `is_on` becomes true once and stays true: from then on faces start no call (`unavailable`)."""

    def __init__(
        self, *, patience_s: float, pause_s: float, spread_s: float, chance: random.Random | None = None
    ) -> None:
        """`patience_s`: time for calls to finish. Browsers reconnect after `pause_s`, spread over `spread_s`."""
        self._patience_s = patience_s
        self._pause_s = pause_s
        self._spread_s = spread_s
        self._chance = chance or random.SystemRandom()
        self._relay: Drainable | None = None
        self._change = asyncio.Event()
        self._delays: dict[Browser, int] = {}
        self._reason = STOPS
        self.is_on = False
        self.exchanges = InFlightCounter(self.changed)
        self.sockets = InFlightCounter(self.changed)

    @classmethod
    def for_settings(cls, settings: Settings) -> Drain:
        # With other relays on the bus, browsers need not wait until this one is back.
        pause_s = 0.0 if settings.bus else settings.drain_pause_s
        return cls(patience_s=settings.drain_s, pause_s=pause_s, spread_s=settings.drain_spread_s)

    def attach(self, relay: Drainable) -> None:
        self._relay = relay

    def changed(self) -> None:
        """A call, an exchange or a socket ended. Until the relay stops, nothing waits for that."""
        if self.is_on:
            self._change.set()

    async def run(self, is_restart: bool = False) -> None:
        """Finish running calls, close the browsers, and return when the close frames are written. `is_restart`: the
        relay starts again at once, and pages show that."""
        self.is_on = True
        self._reason = RESTARTS if is_restart else STOPS
        relay = self._relay
        if relay is None:
            return
        # L13: refuse new calls, finish those in flight, and send `bye` 1012 to each browser that has none left.
        relay.close()
        self._assign_delays(list(relay.browsers()))
        if not await self._wait_until_none(
            self.exchanges, self._patience_s, lambda: self._close_browsers(relay, wait_for_calls=True)
        ):
            relay.give_up(self._patience_s)
            await self._wait_until_none(self.exchanges, FLUSH_S)
        self._close_browsers(relay, wait_for_calls=False)
        await self._wait_until_none(self.sockets, FLUSH_S)

    async def _wait_until_none(
        self, counter: InFlightCounter, timeout_s: float, meanwhile: Callable[[], None] = lambda: None
    ) -> bool:
        """Wait until the count is zero; False after `timeout_s`. `meanwhile` runs whenever something has ended."""
        try:
            async with asyncio.timeout(timeout_s):
                while counter.count:
                    meanwhile()
                    self._change.clear()
                    await self._change.wait()
        except TimeoutError:
            return False
        return True

    def _close_browsers(self, relay: Drainable, *, wait_for_calls: bool) -> None:
        for browser in list(relay.browsers()):
            if not (wait_for_calls and browser.in_flight):
                # A browser that connected in the meantime has no delay yet.
                retry_ms = self._delays.get(browser)
                browser.retire(
                    RESTART, self._reason, self._delay_ms(self._chance.random()) if retry_ms is None else retry_ms
                )

    def _assign_delays(self, browsers: list[Browser]) -> None:
        """Each browser gets a random delay in a different slice of time: pure chance would leave gaps and crowds."""
        slices = list(range(len(browsers)))
        self._chance.shuffle(slices)
        for browser, slice in zip(browsers, slices, strict=True):
            self._delays[browser] = self._delay_ms((slice + self._chance.random()) / len(browsers))

    def _delay_ms(self, share: float) -> int:
        return round((self._pause_s + share * self._spread_s) * 1000)


def unavailable() -> RelayUnavailable:
    return RelayUnavailable("The relay is stopping. Try again when it is back.", retry_after_ms=RETRY_AFTER_MS)
