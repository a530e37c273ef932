"""Leaving without losing a call: the phases between a stop signal and the end of the process.

    open ──run──► answering ──no call is left, or patience is over──► parting ──the goodbyes are written──► over

It counts what is under way and decides who is told what, and when; the rooms do it. It knows neither HTTP nor WebSocket
nor signals: `runner` calls it, `app` gives it its rooms.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from typing import Final, Protocol

from tabrelay.config.settings import Settings
from tabrelay.errors import RelayUnavailable

RESTART: Final = 1012  # the WebSocket close code that means "come back"
FLUSH_S: Final = 1.0  # errors and goodbyes that were queued get this long to be written
RETRY_AFTER_MS: Final = 2000


class Browser(Protocol):
    """A session with a browser, as far as a goodbye needs to know it."""

    @property
    def in_flight(self) -> int: ...

    def retire(self, code: int, reason: str, retry_ms: int | None = None) -> None: ...


class Drainable(Protocol):
    """What the drain asks of the relay."""

    def close(self) -> None:
        """Take no new call, and end the streams that would not end by themselves."""

    def browsers(self) -> Iterable[Browser]: ...

    def give_up(self, patience_s: float) -> None:
        """Fail the calls that are still under way."""


class InFlightCounter:
    """How many of something are under way: `with tally: …`. Tells when one ends."""

    __slots__ = ("_on_end", "count")

    def __init__(self, on_end: Callable[[], None]) -> None:
        self.count = 0
        self._on_end = on_end

    def __enter__(self) -> None:
        self.count += 1

    def __exit__(self, *exc: object) -> None:
        self.count -= 1
        self._on_end()


class Drain:
    """One per relay. `is_on` turns true once and stays so."""

    def __init__(
        self, *, patience_s: float, pause_s: float, spread_s: float, chance: random.Random | None = None
    ) -> None:
        """`patience_s`: how long calls may still take. Browsers stay away for `pause_s`, then come over `spread_s`."""
        self._patience_s = patience_s
        self._pause_s = pause_s
        self._spread_s = spread_s
        self._chance = chance or random.SystemRandom()
        self._relay: Drainable | None = None
        self._change = asyncio.Event()
        self._delays: dict[Browser, int] = {}
        self.is_on = False
        self.exchanges = InFlightCounter(self.changed)
        self.sockets = InFlightCounter(self.changed)

    @classmethod
    def for_settings(cls, settings: Settings) -> Drain:
        # Where there are others on a bus, browsers need not wait until this one is back.
        pause_s = 0.0 if settings.bus else settings.drain_pause_s
        return cls(patience_s=settings.drain_s, pause_s=pause_s, spread_s=settings.drain_spread_s)

    def attach(self, relay: Drainable) -> None:
        self._relay = relay

    def changed(self) -> None:
        """Something ended: a call, an exchange, a socket. Until the relay stops, nobody waits to hear that."""
        if self.is_on:
            self._change.set()

    def admit(self) -> None:
        """Raises once the relay takes no more calls: for everything that would start one."""
        if self.is_on:
            raise unavailable()

    async def run(self) -> None:
        """Answer what is under way, tell the browsers to come back, and return when they were told."""
        self.is_on = True
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
        """Wait until nothing is counted; False after `timeout_s`. `meanwhile` runs whenever something has ended."""
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
                # One that came in the meantime has no moment of its own yet.
                retry_ms = self._delays.get(browser)
                browser.retire(
                    RESTART, "drain", self._delay_ms(self._chance.random()) if retry_ms is None else retry_ms
                )

    def _assign_delays(self, browsers: list[Browser]) -> None:
        """Each gets a moment in a slice of its own: pure chance would leave gaps and crowds."""
        slices = list(range(len(browsers)))
        self._chance.shuffle(slices)
        for browser, slice in zip(browsers, slices, strict=True):
            self._delays[browser] = self._delay_ms((slice + self._chance.random()) / len(browsers))

    def _delay_ms(self, share: float) -> int:
        return round((self._pause_s + share * self._spread_s) * 1000)


def unavailable() -> RelayUnavailable:
    return RelayUnavailable("The relay is restarting. Try again in a moment.", retry_after_ms=RETRY_AFTER_MS)
