"""Faults that a developer injects into links: the socket of a browser is cut, or what is sent to it is delayed.

They exist only with the setting `faults`, on a loopback address and without a public one; else sockets have the plain
`SocketWriter`, and nothing is checked for a message. A delay ends by itself. It knows no routes and no tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Send

from tabrelay.config.settings import Settings
from tabrelay.http.addresses import is_loopback
from tabrelay.peers.browsers.writer import SocketWriter
from tabserver.wire.names import server_of


class CuttableLink(Protocol):
    """One session with a browser."""

    @property
    def server(self) -> str: ...

    @property
    def is_up(self) -> bool: ...

    def cut(self, reason: str) -> None: ...


@dataclass(frozen=True, slots=True)
class LinkDelay:
    """Every message to the browsers of a server is sent so much later, until a time of the clock."""

    server: str
    delay_s: float
    until: float


class LinkFaults:
    """The faults of all links of a relay."""

    def __init__(
        self, links: Callable[[], Iterable[CuttableLink]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._links = links
        self._clock = clock
        self._delays: tuple[LinkDelay, ...] = ()  # at most one for each server with a browser

    @classmethod
    def for_settings(cls, settings: Settings, links: Callable[[], Iterable[CuttableLink]]) -> LinkFaults | None:
        # defence: faults of links on loopback only
        if not settings.faults or not is_loopback(settings.host) or settings.public_url:
            return None
        return cls(links)

    def cut(self, server: str) -> bool:
        """Close the sockets of its browsers, which dial again. False: no browser is connected."""
        found = self._connected(server)
        for link in found:
            link.cut("cut in the console")
        return bool(found)

    def delay(self, server: str, delay_s: float, for_s: float) -> bool:
        """Delay what is sent to its browsers; it replaces an earlier delay. False: no browser is connected."""
        if not self._connected(server):
            return False
        now = self._clock()
        others = (each for each in self._delays if each.server != server and each.until > now)
        self._delays = (*others, LinkDelay(server, delay_s, now + for_s))
        return True

    def delay_s(self, server: str) -> float:
        """The delay of a message that is sent now."""
        now = self._clock()
        # defence: the end of a delay
        return next((each.delay_s for each in self._delays if each.server == server and each.until > now), 0.0)

    def _connected(self, server: str) -> list[CuttableLink]:
        return [link for link in self._links() if link.is_up and server_of(link.server) == server]


class DelayingWriter(SocketWriter):
    """A send queue whose messages may be delayed. They stay in order; a socket that closes discards them."""

    def __init__(self, send: Send, *, delay_s: Callable[[], float], queue_bytes: int, **more: Any) -> None:
        super().__init__(send, queue_bytes=queue_bytes, **more)
        self._delay_s = delay_s
        self._most_bytes = queue_bytes
        self._delayed: deque[tuple[float, Sequence[tuple[str, str | None]]]] = deque()
        self._delayed_bytes = 0
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def waiting_bytes(self) -> int:
        return super().waiting_bytes + self._delayed_bytes

    def write(self, frames: Sequence[tuple[str, str | None]]) -> None:
        delay_s = self._delay_s()
        if not self._delayed and not delay_s:
            super().write(frames)
            return
        due = self._loop.time() + delay_s
        self._delayed.append((max(due, self._delayed[-1][0]) if self._delayed else due, frames))
        self._delayed_bytes += _size(frames)
        # defence: messages that are delayed
        while self._delayed_bytes > self._most_bytes:
            self._release_first()
        self._arm()

    async def finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._delayed.clear()
        self._delayed_bytes = 0
        await super().finish()

    def _arm(self) -> None:
        if self._timer is None and self._delayed:
            self._timer = self._loop.call_at(self._delayed[0][0], self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._loop.time()
        while self._delayed and self._delayed[0][0] <= now:
            self._release_first()
        self._arm()

    def _release_first(self) -> None:
        frames = self._delayed.popleft()[1]
        self._delayed_bytes -= _size(frames)
        super().write(frames)


def _size(frames: Sequence[tuple[str, str | None]]) -> int:
    return sum(len(header) + len(payload or "") for header, payload in frames)
