"""Composition root: the only file that knows every room. Builds the ASGI application out of them."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import Receive, Scope, Send

from tabrelay import __version__
from tabrelay.aliases import Aliases
from tabrelay.assets import Assets
from tabrelay.config import Settings
from tabrelay.directory import describe
from tabrelay.drain import Drain
from tabrelay.errors import UnknownServer
from tabrelay.faces.drifts import Drifts
from tabrelay.faces.editors import Editors
from tabrelay.faces.entry import Entry
from tabrelay.faces.librarian import Librarian
from tabrelay.faces.log import Log
from tabrelay.faces.metadata import Metadata
from tabrelay.faces.pages import pages
from tabrelay.faces.pairs import Pairs, Told, log_asking
from tabrelay.faces.reconnects import Reconnects
from tabrelay.faces.reports import Reports
from tabrelay.faces.seal import Seal
from tabrelay.gate import Gate
from tabrelay.journal import Journal
from tabrelay.logs import log_path
from tabrelay.peers.door import Door
from tabrelay.peers.socket import SocketPeer
from tabrelay.peers.tab import TabPeer
from tabrelay.policy import Policy, Principal, bracketed, is_loopback, parse_public_url
from tabrelay.rates import Rates
from tabrelay.registry import Registry
from tabrelay.shelf import Shelf
from tabrelay.specs import BrowserSpec, HttpSpec, Spec
from tabrelay.switch import Switch
from tabrelay.tokens import Tokens
from tabserver.wire.names import server_of

log = logging.getLogger(__name__)

if TYPE_CHECKING:
    from tabrelay.oauth.resource import Resource
    from tabrelay.peers.fleet import Fleet
    from tabrelay.peers.http import SignIn


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
        on_ask: Told,
        resource: Resource | None,
        specs: Sequence[Spec],
        sign_in: Callable[[HttpSpec], SignIn | None] | None,
    ) -> None:
        self._settings = settings
        self._sign_in = sign_in
        self._url = url
        self._token_command = token_command
        self._shelf = Shelf(settings.home / "servers.json")
        self._registry = Registry(
            self._shelf,
            declared=settings.servers,
            static_tools=settings.static_tools,
            instances=settings.instances,
            most=settings.max_servers,
        )
        self._assets = assets
        self._journal = _journal(settings)
        self._switch = Switch(self._registry, settings, drain.changed, self._journal)
        self._editors = Editors()
        self._entry = Entry(self._switch, settings, drain, Seal(tokens.session_key()), self._editors)
        self._librarian = Librarian(self._switch, __version__, self._entry.lists_changed)
        self._registry.on_turn = self._librarian.follow
        self._door = Door(self._registry, settings, assets.build, self._came_up, self._went, drain, tokens.state_key)
        pairs = Pairs(tokens, policy, on_ask=on_ask, on_paired=self._registry.declare, public_url=settings.public_url)
        self._specs = [spec for spec in specs if not isinstance(spec, BrowserSpec)]
        self._fleet: Fleet | None = None
        recent = self._journal.recent if self._journal is not None else None
        self._pages = pages(
            assets,
            self._status,
            rooms=(
                pairs,
                Reports(policy),
                Reconnects(self._reconnect),
                Log(recent),
                Drifts(self._registry.accept),
                Metadata(resource),
                self._editors,
            ),
            probe=self._door.refusal,
            is_draining=lambda: drain.is_on,
        )
        drain.serve(self)

    def _came_up(self, server: str) -> None:
        for name in {server, server_of(server)}:
            self._entry.came_up(name)
        self._librarian.came_up(server)

    def _went(self, server: str) -> None:
        whole = server_of(server)
        if whole != server:
            self._entry.went(whole, self._registry.differences(server))

    def dismiss(self, principals: set[str]) -> None:
        """These have no valid token any more."""
        self._entry.dismiss(principals)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif _is_server_path(scope["path"]):
            if scope["type"] == "websocket":
                await self._door(scope, receive, send)
            else:
                await self._entry(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._set_out()
        except Exception as error:
            log.exception("The relay can't start.")
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            return
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._fleet is not None:
            await self._fleet.stop()
        self._shelf.flush()
        self._entry.flush()
        if self._journal is not None:
            self._journal.flush()
        await send({"type": "lifespan.shutdown.complete"})

    async def _set_out(self) -> None:
        """Connect to the servers elsewhere, if there are any: who has none need not load what they need."""
        if self._specs:
            await self._make_fleet().start(self._specs)

    def _make_fleet(self) -> Fleet:
        if self._fleet is None:
            from tabrelay.peers.fleet import Fleet

            self._fleet = Fleet(self._registry, self._settings, self._came_up, self._sign_in)
        return self._fleet

    async def change(self, specs: Sequence[Spec]) -> None:
        """The configuration has these servers now. Those that are as before notice nothing."""
        for spec in specs:
            if isinstance(spec, BrowserSpec):
                self._registry.declare(spec.name)
        wanted = [spec for spec in specs if not isinstance(spec, BrowserSpec)]
        if wanted or self._fleet is not None:
            await self._make_fleet().change(wanted)

    def _reconnect(self, name: str) -> None:
        if self._fleet is None:
            raise UnknownServer("The relay has no servers elsewhere.")
        self._fleet.reconnect(name)

    # -- what the drain asks ------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._switch.close()
        self._entry.close()
        self._librarian.close()

    def browsers(self) -> list[TabPeer | SocketPeer]:
        return self._door.browsers()

    def give_up(self, patience_s: float) -> None:
        self._switch.give_up(patience_s)

    # -- what the status route shows ----------------------------------------------------------------------------------

    def _status(self, principal: Principal) -> dict[str, Any]:
        return {
            "version": __version__,
            "build": self._assets.build,
            "url": self._url,
            "token_command": self._token_command,
            "servers": describe(self._registry, self._url, principal.may_see, time.time()),
            "acp": self._editors.describe(principal.may_see),
        }


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
    on_ask: Told = log_asking,
    sign_in: Callable[[HttpSpec], SignIn | None] | None = None,
) -> Aliases:
    """The relay as one ASGI application. `settings.port` must be the real one: the exact Host list is made of it.

    `specs` is what a configuration says of servers, beyond the names that the settings have.
    `url` is the address to show to people, `token_command` how they print the token. Whoever runs `drain` before the
    server closes its sockets lets calls finish; without one, they end as the server ends them. `on_ask` hears of pages
    that ask to be paired; without one, the log does. `sign_in` gets tokens for servers elsewhere that want one.
    """
    tokens = tokens or Tokens(settings.home)
    policy = policy or Policy.for_address(
        settings.host, settings.port, settings.allow_hosts, settings.allow_origins, settings.public_url
    )
    resource = _resource(settings)
    relay = Relay(
        settings,
        tokens=tokens,
        policy=policy,
        assets=assets or Assets.find(),
        url=url or settings.public_url or f"http://{bracketed(settings.host)}:{settings.port}",
        token_command=token_command,
        drain=drain or Drain.for_settings(settings),
        on_ask=on_ask,
        resource=resource,
        specs=specs,
        sign_in=sign_in,
    )
    # Pages that bring no token are let in by their Origin alone, which is worth something only on this computer.
    plain = frozenset(settings.plain if is_loopback(settings.host) else ())
    rates = Rates(settings.rate_s, settings.rate_burst)
    gate = Gate(relay, policy, tokens, no_auth=settings.no_auth, plain=plain, rates=rates, resource=resource)

    def revoked(principals: set[str]) -> None:
        relay.dismiss(principals)
        gate.look()

    tokens.on_revoked = revoked
    return Aliases(gate, specs, relay.change)


def _resource(settings: Settings) -> Resource | None:
    if not settings.oauth_issuer:
        return None
    from tabrelay.oauth.keys import Keys
    from tabrelay.oauth.resource import Resource

    base = parse_public_url(settings.public_url)
    return Resource(settings.oauth_issuer, base, Keys(settings.oauth_issuer, settings.oauth_keys))


def _journal(settings: Settings) -> Journal | None:
    path = log_path(settings.home, settings.port, settings.call_log, "calls")
    if path is None:
        return None
    return Journal(path, settings.log_max, settings.log_keep, with_arguments=settings.call_log_arguments)


def _is_server_path(path: str) -> bool:
    """`/notes` and what is below it, but neither `/` nor `/-/…` nor `/.well-known/…`."""
    return len(path) > 1 and path[1] not in "-./" and path != "/favicon.ico"
