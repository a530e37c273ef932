"""The relay as an ASGI application behind the gate: builds faces, switch and peers, and connects them.

`/{server}` goes to the MCP endpoint or to the browser endpoint, all other paths to the web pages. The lifespan starts
the bus and the upstreams and writes state files at the end. Requests are admitted before they arrive here (`app`), and
uvicorn is set up in `runner`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay import __version__
from tabrelay.admission.page_refusals import PageRefusals
from tabrelay.admission.pairing import PairingRequest
from tabrelay.admission.policy import Refuse
from tabrelay.admission.routes import Route
from tabrelay.bus.bus import Bus
from tabrelay.calls.calls import Pending
from tabrelay.calls.peer import Peer
from tabrelay.config.settings import Settings
from tabrelay.config.specs import BrowserSpec, Spec, UpstreamSpec
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.catalogue_reader import CatalogueReader
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.web.admin import DriftRoutes, ForgetRoutes, LogRoutes, MetricsRoutes, ReconnectRoutes
from tabrelay.faces.web.loopback_approvals import LoopbackApprovals
from tabrelay.faces.web.pairing import PairingRoutes
from tabrelay.faces.web.routes import web_app
from tabrelay.http.headers import RequestHeaders
from tabrelay.observe.call_log import CallLog
from tabrelay.observe.call_metrics import CallMetrics
from tabrelay.observe.log_setup import log_path
from tabrelay.peers.browsers.endpoint import BrowserEndpoint
from tabrelay.peers.browsers.peer import BrowserPeer
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.routing.catalogue_store import CatalogueStore
from tabrelay.routing.registry import Registry
from tabrelay.routing.switch import Switch
from tabrelay.server.console_parts import Console
from tabrelay.server.gauges import BusGauges, Gauges
from tabrelay.server.page_routes import page_routes
from tabrelay.server.registration import Registration
from tabrelay.server.relay_parts import RelayParts
from tabrelay.server.status_report import StatusReport
from tabrelay.server.widget_parts import make_widgets
from tabserver.wire.names import server_of
from tabserver.wire.pending_calls import PendingCalls

if TYPE_CHECKING:
    from tabrelay.peers.upstreams.pool import UpstreamPool
    from tabrelay.server.cluster import Cluster

log = logging.getLogger(__name__)


class Relay:
    """One relay. Implements what the drain needs (`Drainable`)."""

    def __init__(self, parts: RelayParts) -> None:
        settings, tokens, drain = parts.settings, parts.tokens, parts.drain
        self._parts = parts
        self._catalogue_store = CatalogueStore(settings.home / "servers.json", most=settings.max_servers)
        self._configured = _browser_names(parts.specs)
        self._console = Console(parts)
        # The registry declares names while it is built.
        self._registration = (
            None
            if parts.record is None
            else Registration(settings.home, parts.record, lambda: self._status.server_states())
        )
        self._registry = self._make_registry()
        parts.capture.use_titles(self._registry.title_of_tab)
        self._acp_sessions = AcpSessions()
        self._refusals = PageRefusals(settings)
        self._status = StatusReport(parts, self._registry, self._acp_sessions, self._refusals, lambda: self._cluster)
        self._call_log = _make_call_log(settings)
        self._metrics = CallMetrics(settings.metrics_servers) if settings.metrics else None
        pending_calls: dict[str, PendingCalls[Pending]] = {}
        self._cluster = None if parts.bus is None else self._make_cluster(parts.bus, pending_calls)
        lookup = None if self._cluster is None else self._cluster.locator
        self._switch = Switch(self._registry, settings, drain.changed, self._call_log, self._metrics, lookup)
        self.mcp_endpoint = McpEndpoint(
            self._switch,
            settings,
            drain,
            SessionIdCodec(tokens.session_key()),
            self._acp_sessions,
            parts.traces,
            self._count_error,
        )
        if self._cluster is not None:
            self.mcp_endpoint.share(self._cluster.bus_sync)
        self._catalogue_reader = CatalogueReader(
            self._switch, __version__, settings.max_list, self.mcp_endpoint.lists_changed
        )
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
            self._refusals,
            None if self._cluster is None else self._cluster.name_release,
        )
        if self._cluster is not None:
            self._cluster.share_claims(self._browser_endpoint.claims)
        self._upstreams: UpstreamPool | None = None
        self._pairing = self._make_pairing()
        self._widgets = make_widgets(parts, self._pairing, self._browser_endpoint, self._refusals)
        self._pages = self._make_pages()
        self._front = self._pages if self._cluster is None else self._cluster.in_front_of(self._pages)
        drain.attach(self)

    # -- builders -----------------------------------------------------------------------------------------------------

    def _make_registry(self) -> Registry:
        settings = self._parts.settings
        return Registry(
            self._catalogue_store,
            declared=settings.servers,
            static_tools=settings.static_tools,
            instances=settings.instances,
            most=settings.max_servers,
            catalogue_budget=settings.catalogue_budget,
            on_front_change=self._follow,
            on_names=self._names_changed,
            on_presence=self._set_presence,
            on_use=self._record_use,
            # Tools of an app in development change with each file that is saved.
            command=self._parts.command,
            drift_level=logging.INFO if self._parts.app_url else logging.WARNING,
        )

    def _make_pairing(self) -> PairingRoutes:
        parts = self._parts
        settings, tokens = parts.settings, parts.tokens
        return PairingRoutes(
            tokens,
            parts.policy,
            on_ask=self._page_asked,
            on_paired=self._registry.declare,
            public_url=settings.public_url,
            loopback=LoopbackApprovals(tokens, is_direct=not settings.public_url and not settings.trusted_proxies),
            declared=settings.servers,
            command=parts.command,
        )

    def _make_cluster(self, bus: Bus, pending_calls: dict[str, PendingCalls[Pending]]) -> Cluster:
        from tabrelay.server.cluster import Cluster  # most relays have no bus

        parts = self._parts
        return Cluster(
            bus,
            parts.tokens.session_key(),
            parts.settings,
            parts.url,
            registry=self._registry,
            drain=parts.drain,
            pending_calls=pending_calls,
            capture=parts.capture,
            count_browsers=lambda: len(self._browser_endpoint.browsers()),
            count_calls=lambda: self._switch.in_flight,
            on_up=self._server_up,
            on_gone=self._server_gone,
        )

    def _make_pages(self) -> ASGIApp:
        parts = self._parts
        return web_app(
            parts.assets,
            self._status.json,
            groups=(
                *page_routes(parts),
                *self._console.groups(self._switch, self._browser_endpoint.faults, self._nodes),
                self.mcp_endpoint.session_routes,
                self._pairing,
                ReconnectRoutes(self._reconnect),
                LogRoutes(self._call_log.recent if self._call_log is not None else None),
                MetricsRoutes(self._make_gauges()),
                DriftRoutes(self._registry.accept_tools, self._registry.changed_tools),
                ForgetRoutes(self._forget, self._registry.is_declared),
                self._acp_sessions,
            ),
            probe=self._browser_endpoint.refusal,
            is_draining=lambda: parts.drain.is_on,
            public_url=parts.settings.public_url,
        )

    def _nodes(self) -> list[str]:
        """The other relays on the bus."""
        return [] if self._cluster is None else list(self._cluster.members.nodes)

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
        elif _is_server_path(scope["path"]) and not scope["state"].get("is_page"):
            if scope["type"] == "websocket":
                await self._browser_endpoint(scope, receive, send)
            else:
                await self.mcp_endpoint(scope, receive, send)
        elif scope["type"] == "websocket" and scope["path"] == "/":
            await self._widgets(scope, receive, send)
        else:
            # A client that disconnects in the middle of its body gets no answer. It is no error of the relay.
            # defence: clients that leave in the middle of a body
            with suppress(ClientDisconnect):
                await self._front(scope, receive, send)

    # -- events -------------------------------------------------------------------------------------------------------

    def _server_up(self, server: str) -> None:
        self._console.status_changed()
        for name in {server, server_of(server)}:
            self.mcp_endpoint.came_up(name)
        self._catalogue_reader.came_up(server)

    def _follow(self, server: str) -> None:
        self._console.status_changed()
        self._catalogue_reader.follow(server)

    def _names_changed(self) -> None:
        self._console.status_changed()
        if self._registration is not None:
            self._registration.names_changed()

    def _set_presence(self, address: str, peer: Peer, state: str) -> None:
        if self._cluster is not None:
            self._cluster.locator.browsers.set_presence(address, peer, state)

    def _record_use(self, address: str) -> None:
        if self._cluster is not None:
            self._cluster.locator.browsers.record_use(address)

    def _server_gone(self, server: str) -> None:
        self._console.status_changed()
        self._catalogue_reader.peer_left(server)
        name = server_of(server)
        if name != server:
            self.mcp_endpoint.peer_left(name, self._registry.differences(server))

    def _count_error(self, error: RelayError) -> None:
        if self._metrics is not None:
            self._metrics.record_refusal("face", error.reason)

    def _page_asked(self, asking: PairingRequest, others: list[str]) -> None:
        """A page of another site asks to be paired."""
        self._console.status_changed()
        self._parts.on_ask(asking, others)

    def refused(self, refusal: Refuse, asked: Route, kind: str, request: RequestHeaders) -> None:
        """The gate refused a request."""
        if self._metrics is not None:
            self._metrics.record_refusal("gate", refusal.reason)
        self._refusals.record_request(refusal, asked, kind, request)
        self._console.status_changed()

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
        if self._registration is not None:
            self._registration.stop()
        if self._cluster is not None:
            await self._cluster.close()
        self._browser_endpoint.close()
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
        if self._registration is not None:
            self._registration.start()

    def _upstream_pool(self) -> UpstreamPool:
        if self._upstreams is None:
            from tabrelay.peers.upstreams.pool import UpstreamPool

            parts = self._parts
            self._upstreams = UpstreamPool(
                self._registry, parts.settings, self._server_up, parts.sign_in, parts.command
            )
        return self._upstreams

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now. Those that have not changed are left alone."""
        before, self._configured = self._configured, _browser_names(specs)
        for name in self._configured:
            self._registry.declare_configured(name)
        for name in before - self._configured:
            self._registry.undeclare(name)
        wanted = _upstream_specs(specs)
        if wanted or self._upstreams is not None:
            await self._upstream_pool().change(wanted)

    def _forget(self, name: str) -> str | None:
        self._browser_endpoint.end_absent(name)
        return self._registry.forget(name)

    def _reconnect(self, name: str) -> None:
        if self._upstreams is None:
            raise UnknownServer("The relay has no upstreams.")
        self._upstreams.reconnect(name)

    # -- drain --------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._console.close()
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


def _browser_names(specs: Sequence[Spec]) -> set[str]:
    return {spec.name for spec in specs if isinstance(spec, BrowserSpec)}


def _make_call_log(settings: Settings) -> CallLog | None:
    path = log_path(settings.home, settings.port, settings.call_log, "calls")
    if path is None:
        return None
    return CallLog(path, settings.log_max, settings.log_keep, with_arguments=settings.call_log_arguments)


def _is_server_path(path: str) -> bool:
    """`/notes` and what is below it, but neither `/` nor `/-/…` nor `/.well-known/…`."""
    return len(path) > 1 and path[1] not in "-./" and path != "/favicon.ico"
