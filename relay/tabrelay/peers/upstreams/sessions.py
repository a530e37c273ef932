"""Peer for one upstream, and its sessions: a shared one, and separate ones for clients that can be asked.

A server of the handshake era gets its client's identity and capabilities once, when a session begins. So clients with
capabilities get a separate session: one for each token, client and set of capabilities, however many connections they
have. All others, the relay itself, and clients whose session can't be opened share the first one, in which nothing can
be asked. Modern servers get the capabilities with every request, and need only one session.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay.calls.calls import Notice, Pending
from tabrelay.calls.peer import PeerKind
from tabrelay.errors import Busy, RelayError
from tabrelay.peers.upstreams.handshake import CLIENT, ClientIdentity
from tabrelay.peers.upstreams.supervisor import Supervisor
from tabrelay.peers.upstreams.upstream import Upstream
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire import extensions, methods
from tabserver.wire.control_messages import RELAY
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

log = logging.getLogger(__name__)

ASKABLE: Final = ("elicitation", "sampling", "roots")
# As long as a client's session with the relay may be idle.
IDLE_S: Final = 1800.0
SWEEP_S: Final = 60.0
# After a failure, separate sessions are not tried for this long: some servers allow only one.
SHARE_S: Final = 300.0
MAX_IDENTITY: Final = 4096


@dataclass(slots=True, eq=False)
class UpstreamSession:
    """One session: its upstream and supervisor, and the channels that use it."""

    upstream: Upstream
    supervisor: Supervisor
    key: str = ""
    channels: set[str] = field(default_factory=set)
    waiting: int = 0  # calls that wait for it to begin
    last_used: float = 0.0

    @property
    def is_idle(self) -> bool:
        return not self.channels and not self.waiting and self.upstream.is_idle


NewSession = Callable[[ClientIdentity | None], UpstreamSession]


class UpstreamSessions:
    """The peer of one upstream. `new_session(None)` makes the first session, `new_session(identity)` one for a
    client."""

    kind: Final = PeerKind.UPSTREAM
    identity: Final = None
    browser: Final = ""
    principal: Final = None
    is_reserved: Final = True
    origin: Final = None
    is_releasable: Final = False

    def __init__(
        self, server: str, new_session: NewSession, *, is_shared: bool, max_sessions: int, in_flight_limit: int
    ) -> None:
        self.server = server
        self._new_session = new_session
        self._is_shared = is_shared
        self._max_sessions = max_sessions
        self._in_flight_limit = in_flight_limit
        self.first = new_session(None)
        self._own: dict[str, UpstreamSession] = {}
        self._bound: dict[str, UpstreamSession] = {}
        self._sinks: dict[str, tuple[Caller, Callable[[Notice], None]]] = {}
        self._waiting: dict[Pending, asyncio.Task[None]] = {}
        self._ending = BackgroundTasks()
        self._sweeping: asyncio.TimerHandle | None = None
        self._share_until = 0.0
        self._loop = asyncio.get_running_loop()

    def __len__(self) -> int:
        return 1 + len(self._own)

    def __iter__(self) -> Iterator[UpstreamSession]:
        yield self.first
        yield from list(self._own.values())

    async def stop(self) -> None:
        """End all sessions, and return when their processes and connections are gone."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for session in self:
            session.upstream.retire()
        for task in list(self._waiting.values()):
            task.cancel()
        await asyncio.gather(*(session.supervisor.stop() for session in self), *self._ending)

    # -- interface for the switch -------------------------------------------------------------------------------------

    def displace(self, successor: str = "") -> list[tuple[str, Caller, str]]:
        return []

    @property
    def is_up(self) -> bool:
        return self.first.upstream.is_up

    @property
    def in_flight(self) -> int:
        return sum(session.upstream.in_flight for session in self) + len(self._waiting)

    def start(self, pending: Pending) -> None:
        session = self._session_for(
            pending.call.channel, pending.call.caller, is_hello=pending.call.method == methods.INITIALIZE
        )
        if session is self.first:
            session.upstream.start(pending)
            return
        if pending.call.method != methods.SUBSCRIPTIONS_LISTEN and self.in_flight >= self._in_flight_limit:
            raise Busy(f'Server "{self.server}" has {self.in_flight} calls in flight already.', retry_after_ms=1000)
        if session.upstream.is_up:
            session.upstream.start(pending)
            return
        task = self._waiting[pending] = asyncio.create_task(self._start_later(session, pending))
        session.waiting += 1

        def ended(_: object) -> None:
            session.waiting -= 1
            del self._waiting[pending]

        task.add_done_callback(ended)

    def cancel(self, pending: Pending, why: str) -> None:
        task = self._waiting.get(pending)
        if task is not None:
            task.cancel()
        for session in self:
            session.upstream.cancel(pending, why)

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        self._bound.get(channel, self.first).upstream.notify(channel, caller, payload)

    def end(self, channel: str, why: str) -> None:
        self._sinks.pop(channel, None)
        for pending, task in list(self._waiting.items()):
            if pending.call.channel == channel:
                task.cancel()
        session = self._bound.pop(channel, self.first)
        session.channels.discard(channel)
        session.last_used = self._loop.time()
        session.upstream.end(channel, why)

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        session = self._session_for(channel, caller)
        if session is not self.first:
            self._sinks[channel] = (caller, sink)
        session.upstream.listen(channel, caller, sink)

    # -- choosing a session -------------------------------------------------------------------------------------------

    def _session_for(self, channel: str, caller: Caller, *, is_hello: bool = False) -> UpstreamSession:
        """The session for a caller. A client with a session in the relay keeps its choice until that session ends."""
        bound = self._bound.get(channel)
        if bound is not None:
            return bound
        if self._is_shared or is_hello or caller.principal == RELAY or self.first.upstream.era != Era.LEGACY:
            return self.first
        identity = client_identity(caller)
        session = self.first if identity is None else self._own_session(caller.principal, identity)
        if session is not self.first:
            session.last_used = self._loop.time()
            if caller.era is Era.LEGACY:
                self._bound[channel] = session
                session.channels.add(channel)
        return session

    def _own_session(self, principal: str, identity: ClientIdentity) -> UpstreamSession:
        key = json.dumps([principal, identity.capabilities, identity.client], sort_keys=True)
        found = self._own.get(key)
        if found is not None:
            return found
        if self._loop.time() < self._share_until or not self._has_room():
            return self.first
        log.info("%s: opened a session for %s", self.server, identity.client["name"])
        session = self._own[key] = self._new_session(identity)
        session.key = key
        session.supervisor.start()
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(SWEEP_S, self._sweep)
        return session

    def _has_room(self) -> bool:
        idle = [session for session in self._own.values() if session.is_idle]
        if len(self._own) >= self._max_sessions and idle:
            self._drop(min(idle, key=lambda session: session.last_used))
        return len(self._own) < self._max_sessions

    def _sweep(self) -> None:
        """End sessions that were idle for too long."""
        now = self._loop.time()
        for session in list(self._own.values()):
            if session.is_idle and now - session.last_used > IDLE_S:
                self._drop(session)
        self._sweeping = self._loop.call_later(SWEEP_S, self._sweep) if self._own else None

    def _drop(self, session: UpstreamSession) -> None:
        self._own.pop(session.key, None)
        session.upstream.retire()
        self._ending.start(session.supervisor.stop())

    # -- sessions that are not connected yet --------------------------------------------------------------------------

    async def _start_later(self, session: UpstreamSession, pending: Pending) -> None:
        try:
            await session.supervisor.wait_for_start()
        except RelayError as error:
            log.warning("%s: could not open a separate session for a client: %s", self.server, error)
            self._fall_back(session)
            session = self.first
        try:
            session.upstream.start(pending)
        except RelayError as error:
            pending.end(error)

    def _fall_back(self, session: UpstreamSession) -> None:
        """Move its callers to the first session, and open no separate sessions for `SHARE_S`."""
        if session.key not in self._own:
            return
        self._share_until = self._loop.time() + SHARE_S
        for channel in session.channels:
            self._bound[channel] = self.first
            if channel in self._sinks:
                self.first.upstream.listen(channel, *self._sinks.pop(channel))
        self._drop(session)


def client_identity(caller: Caller) -> ClientIdentity | None:
    """The identity that a server gets for a caller; None if the caller has no capability that a server could use."""
    able = {name: caller.capabilities[name] for name in ASKABLE if isinstance(caller.capabilities.get(name), dict)}
    if extensions.shows_apps(caller.capabilities):
        # Some servers list the tools of their apps only to clients that show apps.
        able["extensions"] = {extensions.APPS: caller.capabilities["extensions"][extensions.APPS]}
    if not able:
        return None
    if "roots" in able:
        able["roots"] = {}  # changes are not reported to the server
    known: dict[str, Any] = caller.client if isinstance(caller.client, dict) else {}
    is_named = isinstance(known.get("name"), str) and isinstance(known.get("version"), str)
    client = known if is_named and len(json.dumps(known)) <= MAX_IDENTITY else CLIENT
    return ClientIdentity(client, able) if len(json.dumps(able)) <= MAX_IDENTITY else None
