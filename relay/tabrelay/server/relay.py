"""The relay as an ASGI application behind the gate: builds faces, switch and peers, and connects them.

`/{server}` goes to the MCP endpoint or to the browser endpoint, all other paths to the web pages. The lifespan starts
the bus and the upstreams and writes state files at the end. Requests are admitted before they arrive here (`app`), and
uvicorn is set up in `runner`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay import __version__
from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.bus.bus import Bus
from tabrelay.calls.calls import Pending
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import Traces
from tabrelay.config.settings import Settings
from tabrelay.config.specs import BrowserSpec, HttpSpec, Spec, UpstreamSpec
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.catalogue_reader import CatalogueReader
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.nodes.leader import LeaderProxy
from tabrelay.faces.web.admin import DriftRoutes, LogRoutes, MetricsRoutes, ReconnectRoutes
from tabrelay.faces.web.csp_reports import CspReports
from tabrelay.faces.web.oauth_metadata import OAuthMetadata
from tabrelay.faces.web.pairing import OnAsk, PairingRoutes
from tabrelay.faces.web.proving import Proving
from tabrelay.faces.web.routes import web_app
from tabrelay.observe.call_log import CallLog
from tabrelay.observe.call_metrics import CallMetrics
from tabrelay.observe.log_setup import log_path
from tabrelay.peers.browsers.endpoint import BrowserEndpoint
from tabrelay.peers.browsers.peer import BrowserPeer
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.routing.catalogue_store import CatalogueStore
from tabrelay.routing.drain import Drain
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import encode_rows, iter_rows
from tabrelay.routing.switch import Switch
from tabrelay.server.cluster import Cluster
from tabrelay.server.gauges import BusGauges, Gauges
from tabrelay.system.loop_turns import run_in_turns
from tabserver.wire.names import server_of
from tabserver.wire.pending_calls import PendingCalls

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier
    from tabrelay.peers.upstreams.pool import UpstreamPool
    from tabrelay.peers.upstreams.transports.answering_client import SignIn

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayParts:
    """What `create_app` chooses or makes, and a relay is built from. The arguments are described there."""

    settings: Settings
    tokens: Tokens
    policy: Policy
    assets: Assets
    url: str
    token_command: str
    drain: Drain
    on_ask: OnAsk
    verifier: TokenVerifier | None
    traces: Traces
    on_stop: Callable[[], None]
    specs: Sequence[Spec]
    sign_in: Callable[[HttpSpec], SignIn | None] | None
    bus: Bus | None


class Relay:
    """One relay. Implements what the drain needs (`Drainable`)."""

    def __init__(self, parts: RelayParts) -> None:
        settings, tokens, drain = parts.settings, parts.tokens, parts.drain
        self._parts = parts
        self._catalogue_store = CatalogueStore(
            settings.home / "servers.json", is_shared=parts.bus is not None, most=settings.max_servers
        )
        self._registry = _make_registry(
            settings, self._catalogue_store, lambda server: self._catalogue_reader.follow(server)
        )
        self._call_log = _make_call_log(settings)
        self._metrics = CallMetrics(settings.metrics_servers) if settings.metrics else None
        self._switch = Switch(self._registry, settings, drain.changed, self._call_log, self._metrics)
        self._acp_sessions = AcpSessions()
        self.mcp_endpoint = McpEndpoint(
            self._switch,
            settings,
            drain,
            SessionIdCodec(tokens.session_key()),
            self._acp_sessions,
            parts.traces,
            self._count_error,
        )
        self._catalogue_reader = CatalogueReader(
            self._switch, __version__, settings.max_list, self.mcp_endpoint.lists_changed
        )
        pending_calls: dict[str, PendingCalls[Pending]] = {}
        self._cluster = None if parts.bus is None else self._make_cluster(parts.bus, pending_calls)
        self._browser_endpoint = BrowserEndpoint(
            self._registry,
            settings,
            parts.assets.build,
            self._server_up,
            self._server_gone,
            drain,
            tokens.state_key,
            self._metrics,
            pending_calls,
            self._switch.locate if parts.bus is not None else None,
        )
        self._upstreams: UpstreamPool | None = None
        self._pairing = PairingRoutes(
            tokens,
            parts.policy,
            on_ask=parts.on_ask,
            on_paired=self._registry.declare,
            public_url=settings.public_url,
        )
        self._pages = self._make_pages()
        drain.attach(self)

    # -- builders -----------------------------------------------------------------------------------------------------

    def _make_cluster(self, bus: Bus, pending_calls: dict[str, PendingCalls[Pending]]) -> Cluster:
        parts = self._parts
        return Cluster(
            bus,
            parts.tokens.session_key(),
            parts.settings,
            parts.url,
            registry=self._registry,
            switch=self._switch,
            endpoint=self.mcp_endpoint,
            drain=parts.drain,
            pending_calls=pending_calls,
            count_browsers=lambda: len(self._browser_endpoint.browsers()),
            on_up=self._server_up,
            on_gone=self._server_gone,
        )

    def _make_pages(self) -> ASGIApp:
        parts = self._parts
        pages = web_app(
            parts.assets,
            self._status,
            groups=(
                self._pairing,
                Proving(parts.tokens.prove, parts.policy.authorities),
                CspReports(parts.policy),
                ReconnectRoutes(self._reconnect),
                LogRoutes(self._call_log.recent if self._call_log is not None else None),
                MetricsRoutes(self._make_gauges()),
                DriftRoutes(self._registry.accept_tools),
                OAuthMetadata(parts.verifier),
                self._acp_sessions,
            ),
            probe=self._browser_endpoint.refusal,
            is_draining=lambda: parts.drain.is_on,
            public_url=parts.settings.public_url,
        )
        return pages if self._cluster is None else LeaderProxy(pages, self._cluster.members)

    def _make_gauges(self) -> Callable[[], str] | None:
        if self._metrics is None:
            return None
        gauges = Gauges(
            self._metrics,
            build=self._parts.assets.build,
            registry=self._registry,
            switch=self._switch,
            browsers=self._browser_endpoint,
            endpoint=self.mcp_endpoint,
            drain=self._parts.drain,
            call_log=self._call_log,
        )
        if self._cluster is not None:
            gauges.add(BusGauges(self._cluster.members).families)
        return gauges.text

    # -- requests -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif _is_server_path(scope["path"]):
            if scope["type"] == "websocket":
                await self._browser_endpoint(scope, receive, send)
            else:
                await self.mcp_endpoint(scope, receive, send)
        else:
            # A client that disconnects in the middle of its body gets no answer. It is no error of the relay.
            # defence: clients that leave in the middle of a body
            with suppress(ClientDisconnect):
                await self._pages(scope, receive, send)

    async def _status(self, principal: Principal) -> bytes:
        """JSON of the status route. Catalogues of many servers take several iterations of the event loop."""
        parts = self._parts
        rows = await run_in_turns(iter_rows(self._registry, parts.url, principal.may_see, time.time()))
        about = {
            "version": __version__,
            "build": parts.assets.build,
            "url": parts.url,
            "token_command": parts.token_command,
        }
        more: dict[str, Any] = {"acp": self._acp_sessions.describe(principal.may_see)}
        if self._cluster is not None:
            rows, more["nodes"] = await self._cluster.status.gather(rows, principal.may_see)
        servers = await run_in_turns(encode_rows(rows))
        return orjson.dumps(about)[:-1] + b',"servers":' + servers + b"," + orjson.dumps(more)[1:]

    # -- events -------------------------------------------------------------------------------------------------------

    def _server_up(self, server: str) -> None:
        for name in {server, server_of(server)}:
            self.mcp_endpoint.came_up(name)
        self._catalogue_reader.came_up(server)

    def _server_gone(self, server: str) -> None:
        self._catalogue_reader.peer_left(server)
        name = server_of(server)
        if name != server:
            self.mcp_endpoint.peer_left(name, self._registry.differences(server))

    def _count_error(self, error: RelayError) -> None:
        if self._metrics is not None:
            self._metrics.record_refusal("face", error.reason)

    def refused(self, reason: str) -> None:
        """The gate refused a request."""
        if self._metrics is not None:
            self._metrics.record_refusal("gate", reason)

    def dismiss(self, principals: set[str]) -> None:
        """The tokens of these principals are not valid any more."""
        self.mcp_endpoint.end_sessions(principals)

    # -- start and stop -----------------------------------------------------------------------------------------------

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start_peers()
        except Exception as error:
            log.exception("The relay can't start.")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._cluster is not None:
            await self._cluster.members.stop()
        if self._upstreams is not None:
            await self._upstreams.stop()
        self._catalogue_store.flush()
        self.mcp_endpoint.flush()
        if self._call_log is not None:
            self._call_log.flush()
        await asyncio.to_thread(self._parts.on_stop)
        await send({"type": "lifespan.shutdown.complete"})

    async def _start_peers(self) -> None:
        """Connect to the bus and to the upstreams. Without upstreams, their modules are not loaded."""
        if self._cluster is not None:
            await self._cluster.members.start()
        if specs := _upstream_specs(self._parts.specs):
            await self._upstream_pool().start(specs)

    def _upstream_pool(self) -> UpstreamPool:
        if self._upstreams is None:
            from tabrelay.peers.upstreams.pool import UpstreamPool

            parts = self._parts
            self._upstreams = UpstreamPool(self._registry, parts.settings, self._server_up, parts.sign_in)
        return self._upstreams

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now. Those that have not changed are left alone."""
        for spec in specs:
            if isinstance(spec, BrowserSpec):
                self._registry.declare(spec.name)
        wanted = _upstream_specs(specs)
        if wanted or self._upstreams is not None:
            await self._upstream_pool().change(wanted)

    def _reconnect(self, name: str) -> None:
        if self._upstreams is None:
            raise UnknownServer("The relay has no upstreams.")
        self._upstreams.reconnect(name)

    # -- drain --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._switch.close()
        self.mcp_endpoint.close()
        self._catalogue_reader.close()
        self._pairing.close()

    def browsers(self) -> list[BrowserPeer | PlainPeer]:
        return self._browser_endpoint.browsers()

    def give_up(self, patience_s: float) -> None:
        self._switch.give_up(patience_s)


def _upstream_specs(specs: Sequence[Spec]) -> list[UpstreamSpec]:
    return [spec for spec in specs if not isinstance(spec, BrowserSpec)]


def _make_registry(settings: Settings, store: CatalogueStore, on_front_change: Callable[[str], None]) -> Registry:
    return Registry(
        store,
        declared=settings.servers,
        static_tools=settings.static_tools,
        instances=settings.instances,
        most=settings.max_servers,
        catalogue_budget=settings.catalogue_budget,
        on_front_change=on_front_change,
    )


def _make_call_log(settings: Settings) -> CallLog | None:
    path = log_path(settings.home, settings.port, settings.call_log, "calls")
    if path is None:
        return None
    return CallLog(path, settings.log_max, settings.log_keep, with_arguments=settings.call_log_arguments)


def _is_server_path(path: str) -> bool:
    """`/notes` and what is below it, but neither `/` nor `/-/…` nor `/.well-known/…`."""
    return len(path) > 1 and path[1] not in "-./" and path != "/favicon.ico"
