"""Composition root: `create_app` builds the relay as one ASGI application.

The layers, from the outside: path aliases, tracing if it is on, the gate, the relay (`relay`). OpenTelemetry, OAuth and
NATS are imported only if the settings ask for them. Nothing is started here: that happens in the ASGI lifespan.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tabrelay.admission.gate import Gate
from tabrelay.admission.policy import Policy
from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.bus.bus import Bus
from tabrelay.calls.trace_context import PassThroughTraces
from tabrelay.config.settings import ConfigError, Settings
from tabrelay.config.specs import HttpSpec, Spec
from tabrelay.faces.web.pairing import OnAsk, log_asking
from tabrelay.http.addresses import bracketed, is_loopback, parse_public_url
from tabrelay.observe.capture.call_capture import CallCapture
from tabrelay.routing.drain import Drain
from tabrelay.server.fast_path import FastPath
from tabrelay.server.path_aliases import AliasTable, PathAliases
from tabrelay.server.relay import Relay
from tabrelay.server.relay_parts import RelayParts
from tabrelay.system.program import NAME, command
from tabrelay.system.relay_records import RelayRecord

if TYPE_CHECKING:
    from tabrelay.admission.oauth import TokenVerifier
    from tabrelay.peers.upstreams.transports.answering_client import SignIn
    from tabrelay.server.otel import Tracing

NO_TRACES: Final = 'Traces need OpenTelemetry, which is not installed: pip install "tabrelay[otel]"'


def create_app(
    settings: Settings,
    *,
    specs: Sequence[Spec] = (),
    tokens: Tokens | None = None,
    policy: Policy | None = None,
    assets: Assets | None = None,
    url: str | None = None,
    app_url: str = "",
    token_command: str | None = None,
    drain: Drain | None = None,
    on_ask: OnAsk = log_asking,
    sign_in: Callable[[HttpSpec], SignIn | None] | None = None,
    backplane: Bus | None = None,  # style: ok, a public name
    record: RelayRecord | None = None,
) -> PathAliases:
    """The relay as one ASGI application. `settings.port` must be the real port: the exact Host list contains it.

    `specs`: servers of the configuration, beyond the names in the settings. `url`: the address to show to users,
    `app_url`: that of an app in development which is served with the relay, `token_command`: the command that prints
    their token. Run `drain` before the server closes its sockets, and calls finish; otherwise they end with them.
    `on_ask` is called when a page asks to be paired; by default that is logged. `sign_in` gets tokens for upstreams
    that require one. The parameter after it is the bus to other relays; by default that of the settings, if any.
    `record`: what the relay writes about itself in the state directory while it runs, for commands; by default nothing.
    """
    tokens = tokens or Tokens(settings.home)
    policy = policy or Policy.for_address(
        settings.host, settings.port, settings.allow_hosts, settings.allow_origins, settings.public_url
    )
    url = url or settings.public_url or f"http://{bracketed(settings.host)}:{settings.port}"
    tracing = _make_tracing(settings, url, capture := CallCapture(settings, url))
    parts = RelayParts(
        settings=settings,
        tokens=tokens,
        policy=policy,
        assets=assets or Assets.find(),
        url=url,
        app_url=app_url,
        token_command=token_command or f"{shown_command(settings)} token",
        command=shown_command(settings),
        drain=drain or Drain.for_settings(settings),
        on_ask=on_ask,
        verifier=_make_token_verifier(settings),
        traces=tracing or PassThroughTraces(capture),
        on_stop=(lambda: None) if tracing is None else tracing.close,
        specs=specs,
        sign_in=sign_in,
        bus=backplane or _make_bus(settings),  # style: ok, a public name
        record=record,
        capture=capture,
    )
    relay = Relay(parts)
    gate = _make_gate(parts, relay)
    aliases = AliasTable(specs)
    if tracing is None:
        fast_path = FastPath(gate, relay.mcp_endpoint, parts.drain.exchanges, aliases)
        return PathAliases(gate, aliases, relay.change, fast_path)
    from tabrelay.server.otel import Traced

    return PathAliases(Traced(gate, tracing), aliases, relay.change)


def shown_command(settings: Settings) -> str:
    """The command that starts this program, for answers of the relay. Readers on other computers get its name: the path
    of this installation is of no use to them."""
    is_direct = is_loopback(settings.host) and not settings.public_url and not settings.trusted_proxies
    return command() if is_direct else NAME


def _make_gate(parts: RelayParts, relay: Relay) -> Gate:
    settings = parts.settings
    # Pages without a token are admitted by their Origin alone, which is trustworthy only on this computer.
    plain = frozenset(settings.plain if is_loopback(settings.host) else ())
    gate = Gate(
        relay,
        parts.policy,
        parts.tokens,
        no_auth=settings.no_auth,
        plain=plain,
        rates=RateLimiter(settings.rate_s, settings.rate_burst),
        resource=parts.verifier,
        on_refused=relay.refused,
        command=parts.command,
    )

    def revoked(principals: set[str]) -> None:
        relay.mcp_endpoint.end_sessions(principals)
        gate.end_revoked()

    parts.tokens.on_revoked.append(revoked)
    return gate


def _make_tracing(settings: Settings, url: str, capture: CallCapture | None = None) -> Tracing | None:
    if not settings.traces:
        return None
    try:
        from tabrelay.server.otel import Tracing
    except ImportError:
        raise ConfigError(NO_TRACES) from None
    return Tracing(url, capture)


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
