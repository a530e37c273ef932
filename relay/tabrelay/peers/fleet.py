"""All servers elsewhere of one relay: made of their specs, started, changed and stopped together.

A change touches only the servers that it is about. What one of them does is its own affair.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tabrelay.config import Settings
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.peers.http import Remote
from tabrelay.peers.stdio import Child
from tabrelay.registry import Registry
from tabrelay.specs import StdioSpec, UpstreamSpec, fingerprint
from tabrelay.translation.parking import Parking
from tabrelay.translation.translator import Live
from tabrelay.upstreams.connection import Connection
from tabrelay.upstreams.fault import Redactor
from tabrelay.upstreams.greeting import About, greet
from tabrelay.upstreams.ladder import Ladder
from tabrelay.upstreams.line import Transport
from tabrelay.upstreams.repeating import Repeating
from tabrelay.upstreams.supervisor import Status, Supervisor
from tabrelay.upstreams.upstream import Upstream

log = logging.getLogger(__name__)

# Clients that come first shall find most servers there; a slow one must not keep the relay from starting.
FIRST_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Ship:
    """One server: what it was made of, and its two halves."""

    spec: UpstreamSpec
    upstream: Upstream
    supervisor: Supervisor

    @property
    def is_coming(self) -> bool:
        return self.supervisor.status.state == "connecting"

    async def reach(self) -> None:
        await self.supervisor.reach()

    def dismiss(self, error: RelayError) -> None:
        self.supervisor.dismiss(error)

    def absence(self) -> str:
        return self.supervisor.absence()

    def describe(self) -> dict[str, Any]:
        """For the status: how it is, and when it will be tried again."""
        status = self.supervisor.status
        now = asyncio.get_running_loop().time()
        retry_s = None if status.retry_at is None else max(0.0, round(status.retry_at - now, 1))
        return {
            "kind": self.spec.kind,
            "connection": status.state,
            "attempts": status.attempts,
            "next_retry_s": retry_s,
            "error": status.error,
            "problem": _problem(status, retry_s),
            "era": self.upstream.era,
        }


class Fleet:
    """Name -> ship."""

    def __init__(self, registry: Registry, settings: Settings, on_up: Callable[[str], None]) -> None:
        self._registry = registry
        self._settings = settings
        self._on_up = on_up
        self._parking: Parking[Live] = Parking(ttl_s=settings.park_s, most=settings.park_caller)
        self._ships: dict[str, Ship] = {}

    async def start(self, specs: Iterable[UpstreamSpec]) -> None:
        """Start them all; returns when they are there, or after a moment."""
        await self.change(specs)
        waits = [asyncio.create_task(ship.reach()) for ship in self._ships.values()]
        if waits:
            _there, late = await asyncio.wait(waits, timeout=FIRST_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)

    async def change(self, specs: Iterable[UpstreamSpec]) -> None:
        """From now on there are these. Those that are the same as before are not touched."""
        wanted = {spec.name: spec for spec in specs}
        gone = [name for name, ship in self._ships.items() if wanted.get(name) != ship.spec]
        await asyncio.gather(*(self._remove(name, is_replaced=name in wanted) for name in gone))
        for name, spec in wanted.items():
            if name not in self._ships:
                self._add(spec)

    async def stop(self) -> None:
        await asyncio.gather(*(self._end(ship) for ship in self._ships.values()))

    def reconnect(self, name: str) -> None:
        ship = self._ships.get(name)
        if ship is None:
            raise UnknownServer(f'"{name}" is no server that the relay connects to.')
        ship.supervisor.reconnect()

    def _add(self, spec: UpstreamSpec) -> None:
        settings, name = self._settings, spec.name
        redact = Redactor(spec.secrets)
        transport: Transport
        if isinstance(spec, StdioSpec):
            transport = Child(spec, max_line=settings.max_message, redact=redact)
        else:
            transport = Remote(spec, max_message=settings.max_message, redact=redact)
        upstream = Upstream(
            name,
            parking=self._parking,
            in_flight_limit=settings.in_flight_server,
            timeout_s=settings.upstream_timeout_s or spec.timeout_s,
            repeating=None if isinstance(spec, StdioSpec) else Repeating(name),
            roots=_roots(spec),
            reach=lambda: ship.reach(),
        )

        def up(connection: Connection) -> None:
            upstream.up(connection)
            self._registry.take(name, upstream)
            self._on_up(name)

        def away() -> None:
            upstream.away()
            self._registry.away(name, upstream)

        async def greeted(connection: Connection) -> About:
            return await greet(connection.line, spec.era)

        supervisor = Supervisor(
            name,
            transport=transport,
            ladder=Ladder(probes=not isinstance(spec, StdioSpec)),
            redact=redact,
            new_connection=lambda: Connection(upstream, spec.ids),
            greet=greeted,
            start_s=settings.upstream_start_s,
            on_up=up,
            on_away=away,
        )
        ship = self._ships[name] = Ship(spec, upstream, supervisor)
        self._registry.hold(name, upstream, ship, fingerprint(spec))
        supervisor.start()

    async def _remove(self, name: str, *, is_replaced: bool) -> None:
        ship = self._ships.pop(name)
        await self._end(ship)
        self._registry.release(name, ship.upstream)
        if not is_replaced:
            self._registry.forget(name)

    async def _end(self, ship: Ship) -> None:
        ship.upstream.retire()
        await ship.supervisor.stop()


def _problem(status: Status, retry_s: float | None) -> str | None:
    """In words, for people."""
    if status.state == "connected":
        return None
    parts = [status.state, f"{status.attempts} attempts" if status.attempts else ""]
    parts.append(f"next in {retry_s:g} s" if retry_s is not None else "")
    said = ", ".join(part for part in parts if part)
    return f"{said}: {status.error}" if status.error else said


def _roots(spec: UpstreamSpec) -> list[dict[str, Any]]:
    """The folder that a child process was given, if it was given one."""
    if not isinstance(spec, StdioSpec) or spec.cwd is None:
        return []
    folder = Path(spec.cwd)
    return [{"uri": folder.absolute().as_uri(), "name": folder.name}]
