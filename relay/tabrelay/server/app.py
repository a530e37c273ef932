"""Composition root: the only file that knows every room. Builds the ASGI application out of them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay import __version__
from tabrelay.admission.gate import Gate
from tabrelay.admission.policy import Policy
from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.bus.bus import Bus
from tabrelay.bus.members import Membership
from tabrelay.calls.calls import PeerKind, Pending
from tabrelay.calls.principal import Principal
from tabrelay.calls.trace_context import PassThroughTraces, Traces
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.config.specs import BrowserSpec, HttpSpec, Spec
from tabrelay.errors import RelayError, UnknownServer
from tabrelay.faces.mcp.acp_sessions import AcpSessions
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.catalogue_reader import CatalogueReader
from tabrelay.faces.mcp.endpoint import McpEndpoint
from tabrelay.faces.mcp.session_ids import SessionIdCodec
from tabrelay.faces.nodes.cluster_status import ClusterStatus
from tabrelay.faces.nodes.forwarded_calls import Forwarding
from tabrelay.faces.nodes.leader import LeaderProxy
from tabrelay.faces.web.admin import DriftRoutes, LogRoutes, MetricsRoutes, ReconnectRoutes
from tabrelay.faces.web.csp_reports import CspReports
from tabrelay.faces.web.oauth_metadata import OAuthMetadata
from tabrelay.faces.web.pairing import OnAsk, PairingRoutes, log_asking
from tabrelay.faces.web.proving import Proving
from tabrelay.faces.web.routes import web_app
from tabrelay.http.addresses import bracketed, is_loopback, parse_public_url
from tabrelay.observe.call_log import CallLog
from tabrelay.observe.call_metrics import CallMetrics
from tabrelay.observe.log_setup import log_path
from tabrelay.peers.browsers.endpoint import BrowserEndpoint
from tabrelay.peers.browsers.peer import BrowserPeer
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.peers.nodes.locator import BrowserLocator
from tabrelay.routing.catalogue_store import CatalogueStore
from tabrelay.routing.drain import Drain
from tabrelay.routing.registry import Registry
from tabrelay.routing.status import describe, encode_rows, iter_rows
from tabrelay.routing.switch import Switch
from tabrelay.server.fast_path import FastPath
from tabrelay.server.gauges import BusGauges, Gauges
from tabrelay.server.path_aliases import PathAliases
from tabrelay.system.loop_turns import run_in_turns
from tabserver.wire.names import INSTANCE_SEPARATOR, server_of
from tabserver.wire.pending_calls import PendingCalls

log = logging.getLogger(__name__)

NO_TRACES: Final = 'Traces need OpenTelemetry, which is not installed: pip install "tabrelay[otel]"'

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier
    from tabrelay.peers.upstreams.pool import UpstreamPool
    from tabrelay.peers.upstreams.transports.answering_client import SignIn
    from tabrelay.server.otel import Tracing


class Relay:
    """The application behind the gate: `/{server}` goes straight to its face or peer, the rest to the pages."""

    def __init__(
        self,
        settings: Settings,
        *,
        tokens: Tokens,
        policy: Policy,
        assets: Assets,
        url: str,
        token_command: str,
        drain: Drain,
        on_ask: OnAsk,
        resource: TokenVerifier | None,
        traces: Traces,
        on_stop: Callable[[], None],
        specs: Sequence[Spec],
        sign_in: Callable[[HttpSpec], SignIn | None] | None,
        bus: Bus | None,
    ) -> None:
        self._settings = settings
        self._on_stop = on_stop
        self._sign_in = sign_in
        self._url = url
        self._token_command = token_command
        self._catalogue_store = CatalogueStore(
            settings.home / "servers.json", is_shared=bus is not None, most=settings.max_servers
        )
        self._registry = Registry(
            self._catalogue_store,
            declared=settings.servers,
            static_tools=settings.static_tools,
            instances=settings.instances,
            most=settings.max_servers,
            catalogue_budget=settings.catalogue_budget,
        )
        self._assets = assets
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
            traces,
            self._count_error,
        )
        self._catalogue_reader = CatalogueReader(
            self._switch, __version__, settings.max_list, self.mcp_endpoint.lists_changed
        )
        self._registry.shared_names.on_front_change = self._catalogue_reader.follow
        pending_calls: dict[str, PendingCalls[Pending]] = {}
        self._cluster = self._join(bus, tokens, pending_calls, drain) if bus is not None else None
        self._browser_endpoint = BrowserEndpoint(
            self._registry,
            settings,
            assets.build,
            self._server_up,
            self._server_gone,
            drain,
            tokens.state_key,
            self._metrics,
            pending_calls,
            self._switch.locate if bus is not None else None,
        )
        self._pairing = PairingRoutes(
            tokens, policy, on_ask=on_ask, on_paired=self._registry.declare, public_url=settings.public_url
        )
        self._specs = [spec for spec in specs if not isinstance(spec, BrowserSpec)]
        self._upstreams: UpstreamPool | None = None
        recent = self._call_log.recent if self._call_log is not None else None
        self._pages: ASGIApp = web_app(
            assets,
            self._status,
            groups=(
                self._pairing,
                Proving(tokens.prove, policy.authorities),
                CspReports(policy),
                ReconnectRoutes(self._reconnect),
                LogRoutes(recent),
                MetricsRoutes(self._gauges(drain)),
                DriftRoutes(self._registry.accept_tools),
                OAuthMetadata(resource),
                self._acp_sessions,
            ),
            probe=self._browser_endpoint.refusal,
            is_draining=lambda: drain.is_on,
            public_url=settings.public_url,
        )
        if self._cluster is not None:
            self._pages = LeaderProxy(self._pages, self._cluster)
        drain.attach(self)

    def _join(
        self, bus: Bus, tokens: Tokens, pending_calls: dict[str, PendingCalls[Pending]], drain: Drain
    ) -> Membership:
        """This relay is one of several: their browsers are its peers, and its browsers theirs."""
        cluster = Membership(
            bus,
            tokens.session_key(),
            self._describe_node,
            self._settings.bus_beat_s,
            keep_s=self._settings.call_deadline_s,
        )
        self._locator = locator = BrowserLocator(
            cluster, self._registry, pending_calls, self._settings, on_up=self._server_up, on_gone=self._server_gone
        )
        self._forwarding = Forwarding(
            cluster, self._registry, drain, locator.local, lambda peer: peer.kind is PeerKind.BROWSER
        )
        locator.has_moved = self._forwarding.moved
        self._switch.remote_lookup = locator
        self.mcp_endpoint.share(BusSync(cluster))
        self._nodes = ClusterStatus(cluster, self._url, self._own_names, self._rows, self._describe_node)
        return cluster

    def _describe_node(self) -> dict[str, Any]:
        """What the other relays are told with every beat."""
        return {
            "version": __version__,
            "port": self._settings.port,
            "browsers": len(self._browser_endpoint.browsers()),
            "in_flight": self._switch.in_flight,
        }

    def _own_names(self) -> list[str]:
        """The servers that have a browser here."""
        names = [entry.name for entry in self._registry.entries() if INSTANCE_SEPARATOR not in entry.name]
        return [name for name in names if self._locator.has(name)]

    def _rows(self, names: Collection[str]) -> list[dict[str, Any]]:
        return describe(self._registry, self._url, names.__contains__, time.time())

    def _server_up(self, server: str) -> None:
        for name in {server, server_of(server)}:
            self.mcp_endpoint.came_up(name)
        self._catalogue_reader.came_up(server)

    def _server_gone(self, server: str) -> None:
        self._catalogue_reader.peer_left(server)
        whole = server_of(server)
        if whole != server:
            self.mcp_endpoint.peer_left(whole, self._registry.differences(server))

    def _gauges(self, drain: Drain) -> Callable[[], str] | None:
        if self._metrics is None:
            return None
        gauges = Gauges(
            self._metrics,
            build=self._assets.build,
            registry=self._registry,
            switch=self._switch,
            browsers=self._browser_endpoint,
            endpoint=self.mcp_endpoint,
            drain=drain,
            call_log=self._call_log,
        )
        if self._cluster is not None:
            gauges.add(BusGauges(self._cluster).families)
        return gauges.text

    def _count_error(self, error: RelayError) -> None:
        if self._metrics is not None:
            self._metrics.record_refusal("face", error.reason)

    def refused(self, reason: str) -> None:
        """The gate let somebody not in."""
        if self._metrics is not None:
            self._metrics.record_refusal("gate", reason)

    def dismiss(self, principals: set[str]) -> None:
        """These have no valid token any more."""
        self.mcp_endpoint.end_sessions(principals)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif _is_server_path(scope["path"]):
            if scope["type"] == "websocket":
                await self._browser_endpoint(scope, receive, send)
            else:
                await self.mcp_endpoint(scope, receive, send)
        else:
            # A client that leaves in the middle of its body gets no answer, and is no error of the relay's.
            # defence: clients that leave in the middle of a body
            with suppress(ClientDisconnect):
                await self._pages(scope, receive, send)

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
            await self._cluster.stop()
        if self._upstreams is not None:
            await self._upstreams.stop()
        self._catalogue_store.flush()
        self.mcp_endpoint.flush()
        if self._call_log is not None:
            self._call_log.flush()
        await asyncio.to_thread(self._on_stop)
        await send({"type": "lifespan.shutdown.complete"})

    async def _start_peers(self) -> None:
        """Connect to the bus and to servers elsewhere, if there are any: who has none need not load what they need."""
        if self._cluster is not None:
            await self._cluster.start()
        if self._specs:
            await self._upstream_pool().start(self._specs)

    def _upstream_pool(self) -> UpstreamPool:
        if self._upstreams is None:
            from tabrelay.peers.upstreams.pool import UpstreamPool

            self._upstreams = UpstreamPool(self._registry, self._settings, self._server_up, self._sign_in)
        return self._upstreams

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now. Those that are as before notice nothing."""
        for spec in specs:
            if isinstance(spec, BrowserSpec):
                self._registry.declare(spec.name)
        wanted = [spec for spec in specs if not isinstance(spec, BrowserSpec)]
        if wanted or self._upstreams is not None:
            await self._upstream_pool().change(wanted)

    def _reconnect(self, name: str) -> None:
        if self._upstreams is None:
            raise UnknownServer("The relay has no servers elsewhere.")
        self._upstreams.reconnect(name)

    # -- what the drain asks ------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._switch.close()
        self.mcp_endpoint.close()
        self._catalogue_reader.close()
        self._pairing.close()

    def browsers(self) -> list[BrowserPeer | PlainPeer]:
        return self._browser_endpoint.browsers()

    def give_up(self, patience_s: float) -> None:
        self._switch.give_up(patience_s)

    # -- what the status route shows ----------------------------------------------------------------------------------

    async def _status(self, principal: Principal) -> bytes:
        """As JSON. Catalogues of many servers take several turns of the event loop."""
        rows = await run_in_turns(iter_rows(self._registry, self._url, principal.may_see, time.time()))
        about = {
            "version": __version__,
            "build": self._assets.build,
            "url": self._url,
            "token_command": self._token_command,
        }
        more: dict[str, Any] = {"acp": self._acp_sessions.describe(principal.may_see)}
        if self._cluster is not None:
            rows, more["nodes"] = await self._nodes.gather(rows, principal.may_see)
        servers = await run_in_turns(encode_rows(rows))
        return orjson.dumps(about)[:-1] + b',"servers":' + servers + b"," + orjson.dumps(more)[1:]


def create_app(
    settings: Settings,
    *,
    specs: Sequence[Spec] = (),
    tokens: Tokens | None = None,
    policy: Policy | None = None,
    assets: Assets | None = None,
    url: str | None = None,
    token_command: str = "tabrelay token",
    drain: Drain | None = None,
    on_ask: OnAsk = log_asking,
    sign_in: Callable[[HttpSpec], SignIn | None] | None = None,
    bus: Bus | None = None,
) -> PathAliases:
    """The relay as one ASGI application. `settings.port` must be the real one: the exact Host list is made of it.

    `specs` is what a configuration says of servers, beyond the names that the settings have.
    `url` is the address to show to people, `token_command` how they print the token. Whoever runs `drain` before the
    server closes its sockets lets calls finish; without one, they end as the server ends them. `on_ask` hears of pages
    that ask to be paired; without one, the log does. `sign_in` gets tokens for servers elsewhere that want one.
    `backplane` is the bus that this relay shares with others; without one it has that of the settings, if any.
    """
    tokens = tokens or Tokens(settings.home)
    policy = policy or Policy.for_address(
        settings.host, settings.port, settings.allow_hosts, settings.allow_origins, settings.public_url
    )
    resource = _make_token_verifier(settings)
    url = url or settings.public_url or f"http://{bracketed(settings.host)}:{settings.port}"
    tracing = _make_tracing(settings, url)
    drain = drain or Drain.for_settings(settings)
    relay = Relay(
        settings,
        tokens=tokens,
        policy=policy,
        assets=assets or Assets.find(),
        url=url,
        token_command=token_command,
        drain=drain,
        on_ask=on_ask,
        resource=resource,
        traces=tracing or PassThroughTraces(),
        on_stop=(lambda: None) if tracing is None else tracing.close,
        specs=specs,
        sign_in=sign_in,
        bus=bus or _make_bus(settings),
    )
    # Pages that bring no token are let in by their Origin alone, which is worth something only on this computer.
    plain = frozenset(settings.plain if is_loopback(settings.host) else ())
    rates = RateLimiter(settings.rate_s, settings.rate_burst)
    gate = Gate(
        relay,
        policy,
        tokens,
        no_auth=settings.no_auth,
        plain=plain,
        rates=rates,
        resource=resource,
        on_refused=relay.refused,
    )

    def revoked(principals: set[str]) -> None:
        relay.dismiss(principals)
        gate.end_revoked()

    tokens.on_revoked = revoked
    if tracing is None:
        app = PathAliases(gate, specs, relay.change)
        app.fast_path = FastPath(gate, relay.mcp_endpoint, drain.exchanges, app.resolve)
        return app
    from tabrelay.server.otel import Traced

    return PathAliases(Traced(gate, tracing), specs, relay.change)


def _make_tracing(settings: Settings, url: str) -> Tracing | None:
    if not settings.traces:
        return None
    try:
        from tabrelay.server.otel import Tracing
    except ImportError:
        raise ConfigError(NO_TRACES) from None
    return Tracing(url)


def _make_token_verifier(settings: Settings) -> TokenVerifier | None:
    if not settings.oauth_issuer:
        return None
    from tabrelay.admission.oauth import TokenVerifier
    from tabrelay.admission.oauth_keys import JwksCache

    base = parse_public_url(settings.public_url)
    return TokenVerifier(settings.oauth_issuer, base, JwksCache(settings.oauth_issuer, settings.oauth_keys))


def _make_bus(settings: Settings) -> Bus | None:
    if not settings.bus:
        return None
    from tabrelay.bus.nats import NatsAuth, NatsBus

    def path(text: str) -> Path | None:
        return Path(text).expanduser() if text else None

    access = NatsAuth(credentials=path(settings.bus_credentials), ca=path(settings.bus_ca))
    return NatsBus(settings.bus, access, f"tabrelay {settings.port}")


def _make_call_log(settings: Settings) -> CallLog | None:
    path = log_path(settings.home, settings.port, settings.call_log, "calls")
    if path is None:
        return None
    return CallLog(path, settings.log_max, settings.log_keep, with_arguments=settings.call_log_arguments)


def _is_server_path(path: str) -> bool:
    """`/notes` and what is below it, but neither `/` nor `/-/…` nor `/.well-known/…`."""
    return len(path) > 1 and path[1] not in "-./" and path != "/favicon.ico"
