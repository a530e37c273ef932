"""Pool of a relay's upstreams: created from their specs, and started, changed and stopped together.

A change of the configuration touches only the upstreams whose spec changed. Connecting and reconnecting one upstream is
the work of its `Supervisor`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tabrelay.config.settings import Settings
from tabrelay.config.specs import HttpSpec, StdioSpec, UpstreamSpec, fingerprint
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.dispatcher import UpstreamTransport
from tabrelay.peers.upstreams.faults import Redactor
from tabrelay.peers.upstreams.handshake import ALL_CAPABILITIES, CLIENT, ClientIdentity, ServerAbout, negotiate
from tabrelay.peers.upstreams.large_messages import MessageLimits
from tabrelay.peers.upstreams.question_order import AskHistory, QuestionQueue
from tabrelay.peers.upstreams.request_headers import RoutingHeaders
from tabrelay.peers.upstreams.retry_policy import RetryPolicy
from tabrelay.peers.upstreams.sessions import UpstreamSession, UpstreamSessions
from tabrelay.peers.upstreams.supervisor import Status, Supervisor
from tabrelay.peers.upstreams.task_owners import TaskOwners
from tabrelay.peers.upstreams.transports.answering_client import SignIn
from tabrelay.peers.upstreams.transports.http import HttpTransport
from tabrelay.peers.upstreams.transports.stdio import UpstreamProcess
from tabrelay.peers.upstreams.upstream import Upstream
from tabrelay.routing.question_limits import limits_of
from tabrelay.routing.registry import Registry
from tabrelay.system.program import NAME
from tabrelay.system.tasks import cancel
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls

log = logging.getLogger(__name__)

# The first clients should find most upstreams connected, but a slow one must not delay the start of the relay.
START_WAIT_S: Final = 0.25
# Sessions of one upstream that serve a single client each: each is a process, or costs memory at a remote server.
MAX_CHILDREN: Final = 8
MAX_SESSIONS: Final = 64


@dataclass(frozen=True, slots=True)
class PooledUpstream:
    """One upstream: its spec and its sessions. The state of the first session is the state of the upstream."""

    spec: UpstreamSpec
    sessions: UpstreamSessions

    @property
    def supervisor(self) -> Supervisor:
        return self.sessions.first.supervisor

    @property
    def is_connecting(self) -> bool:
        return self.supervisor.status.state == "connecting"

    async def wait_for_start(self) -> None:
        await self.supervisor.wait_for_start()

    def dismiss(self, error: RelayError) -> None:
        self.supervisor.dismiss(error)

    def offline_text(self) -> str:
        return self.supervisor.absence()

    def describe(self) -> dict[str, Any]:
        """For the status page: its state, and when the next attempt is."""
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
            "era": self.sessions.first.upstream.era,
            "sessions": len(self.sessions),
        }


class UpstreamPool:
    """The upstreams of one relay by name."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        on_up: Callable[[str], None],
        sign_in: Callable[[HttpSpec], SignIn | None] | None = None,
        command: str = NAME,
    ) -> None:
        """`sign_in` returns the source of tokens for a server that requires one. `command`: what starts this program,
        for messages."""
        self._command = command
        self._sign_in = sign_in
        self._registry = registry
        self._settings = settings
        self._on_up = on_up
        self._parked_calls: ParkedCalls[LegacyCall] = ParkedCalls(ttl_s=settings.park_s, most=settings.park_caller)
        self._upstreams: dict[str, PooledUpstream] = {}

    async def start(self, specs: Iterable[UpstreamSpec]) -> None:
        """Start them all. Returns when they are connected, or after `START_WAIT_S`."""
        await self.change(specs)
        waits = [asyncio.create_task(pooled.wait_for_start()) for pooled in self._upstreams.values()]
        if waits:
            await asyncio.wait(waits, timeout=START_WAIT_S)
            await cancel(*waits)

    async def change(self, specs: Iterable[UpstreamSpec]) -> None:
        """Replace the set of upstreams. Those with an unchanged spec are not touched."""
        wanted = {spec.name: spec for spec in specs}
        gone = [name for name, pooled in self._upstreams.items() if wanted.get(name) != pooled.spec]
        await asyncio.gather(*(self._remove(name, is_replaced=name in wanted) for name in gone))
        for name, spec in wanted.items():
            if name not in self._upstreams:
                self._add(spec)

    async def stop(self) -> None:
        await asyncio.gather(*(pooled.sessions.stop() for pooled in self._upstreams.values()))

    def reconnect(self, name: str) -> None:
        pooled = self._upstreams.get(name)
        if pooled is None:
            raise UnknownServer(f'"{name}" is not an upstream of this relay.')
        pooled.supervisor.reconnect()

    def _add(self, spec: UpstreamSpec) -> None:
        settings, name = self._settings, spec.name
        history, owners = AskHistory(), TaskOwners()
        sessions = UpstreamSessions(
            name,
            lambda introduction: self._session(spec, introduction, history, owners, lambda: sessions),
            is_shared=spec.is_shared,
            max_sessions=MAX_CHILDREN if isinstance(spec, StdioSpec) else MAX_SESSIONS,
            in_flight_limit=settings.in_flight_server,
        )
        pooled = self._upstreams[name] = PooledUpstream(spec, sessions)
        self._registry.hold_upstream(name, sessions, pooled, fingerprint(spec))
        pooled.supervisor.start()

    def _session(
        self,
        spec: UpstreamSpec,
        identity: ClientIdentity | None,
        history: AskHistory,
        owners: TaskOwners,
        whole: Callable[[], UpstreamSessions],
    ) -> UpstreamSession:
        """Make one session. The first one, without a client's identity, is entered in the registry."""
        settings, name, is_first = self._settings, spec.name, identity is None
        redact, roots = Redactor(spec.secrets), _roots(spec)
        shared = ALL_CAPABILITIES if spec.is_shared else {"roots": {}} if roots else {}
        identity = identity or ClientIdentity(dict(CLIENT), shared)
        transport = self._transport(spec, redact)
        may_ask = not is_first or spec.is_shared
        upstream = Upstream(
            name,
            parked_calls=self._parked_calls,
            in_flight_limit=settings.in_flight_server,
            timeout_s=settings.upstream_timeout_s or spec.timeout_s,
            routing_headers=None if isinstance(spec, StdioSpec) else RoutingHeaders(name),
            roots=roots,
            wait_for_start=lambda: supervisor.wait_for_start(),
            task_owners=owners,
        )

        def up(connection: UpstreamConnection) -> None:
            upstream.up(connection)
            if is_first:
                self._registry.take(name, whole())
                self._on_up(name)

        def away() -> None:
            upstream.away()
            if is_first:
                self._registry.mark_away(name, whole())

        async def negotiated(connection: UpstreamConnection) -> ServerAbout:
            return await negotiate(connection.dispatcher, spec.era if is_first else "legacy", identity)

        supervisor = Supervisor(
            name,
            transport=transport,
            retry_policy=_retry_policy(spec, is_first=is_first),
            redact=redact,
            new_connection=lambda: UpstreamConnection(
                upstream,
                spec.ids,
                limits_of(settings),
                QuestionQueue(history) if may_ask and not transport.has_call_context else None,
            ),
            negotiate=negotiated,
            start_s=settings.upstream_start_s,
            on_up=up,
            on_away=away,
            command=self._command,
        )
        return UpstreamSession(upstream, supervisor)

    def _transport(self, spec: UpstreamSpec, redact: Redactor) -> UpstreamTransport:
        limits = MessageLimits(self._settings.max_message, self._settings.max_values)
        if isinstance(spec, StdioSpec):
            return UpstreamProcess(spec, limits=limits, redact=redact)
        sign_in = self._sign_in(spec) if self._sign_in is not None and spec.may_sign_in else None
        return HttpTransport(spec, limits=limits, redact=redact, sign_in=sign_in)

    async def _remove(self, name: str, *, is_replaced: bool) -> None:
        pooled = self._upstreams.pop(name)
        await pooled.sessions.stop()
        self._registry.release(name, pooled.sessions)
        if not is_replaced:
            self._registry.remove(name)


def _problem(status: Status, retry_s: float | None) -> str | None:
    """A sentence for users."""
    if status.state == "connected":
        return None
    parts = [status.state, f"{status.attempts} attempts" if status.attempts else ""]
    parts.append(f"next in {retry_s:g} s" if retry_s is not None else "")
    summary = ", ".join(part for part in parts if part)
    return f"{summary}: {status.error}" if status.error else summary


def _retry_policy(spec: UpstreamSpec, *, is_first: bool) -> RetryPolicy:
    if is_first:
        return RetryPolicy(probes=not isinstance(spec, StdioSpec))
    # A client without a separate session shares the first one, so it need not wait long.
    return RetryPolicy(probes=False, steps_s=())


def _roots(spec: UpstreamSpec) -> list[dict[str, Any]]:
    """The working folder that the spec gives a child process, if any."""
    if not isinstance(spec, StdioSpec) or spec.cwd is None:
        return []
    folder = Path(spec.cwd)
    return [{"uri": folder.absolute().as_uri(), "name": folder.name}]
