"""Admission of pages with MCP-B's embed widget, which can show neither a token nor a code.

The browser's Origin header decides, as for plain pages. An origin is admitted if the user has listed it
(`--allow-origin`), or has paired it: in its own name, by `connect()`, or by approving the request that the relay makes
for the widget. That request is in the list of pages that ask, and ends in an entry that can be revoked like any other.
A server name comes from the pairing, else from the origin. Does not open sockets.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from tabrelay.admission.pairing import Pairing, PairingRequest, PairingState
from tabrelay.admission.policy import Policy, Refuse
from tabrelay.admission.token_store import IssuedToken
from tabrelay.admission.tokens import StateError, Tokens
from tabrelay.calls.principal import SERVE, Principal
from tabrelay.http.addresses import PolicyError, parse_origin
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import MAX_NAME, check_server_name

MAX_ASKED: Final = 64  # origins whose widget has asked


class WidgetPages:
    """`on_ask` is called with a request that the user is to be shown."""

    def __init__(
        self,
        policy: Policy,
        tokens: Tokens,
        pairing: Pairing,
        on_ask: Callable[[PairingRequest], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._tokens, self._pairing = policy, tokens, pairing
        self._on_ask, self._clock = on_ask, clock
        self._asked: OrderedDict[str, str] = OrderedDict()  # tickets by origin

    def admit(self, origin: str) -> tuple[Principal, str] | Refuse | None:
        """Who the page is, and the name of its server. None: it waits for the user's approval."""
        try:
            name = name_of(origin)
        except (PolicyError, ServerNameError):
            return Refuse(403, "forbidden", "A page with the widget needs an origin: http or https, and a host.")
        if (granted := self._granted(origin)) is not None:
            return granted
        # defence: a widget of an origin that the user has not approved
        if self._policy.check_origin(origin) is None:
            return Principal(f"origin:{origin}", frozenset({SERVE}), origin, frozenset({name})), name
        return self._ask(origin, name)

    def _granted(self, origin: str) -> tuple[Principal, str] | None:
        """The newest pairing of this origin that is for a server."""
        if not self._tokens.has_page(origin):
            return None
        grants = [grant for grant in self._tokens.issued() if grant.origin == origin and _serves(grant)]
        newest = max(grants, key=lambda grant: grant.created, default=None)
        return None if newest is None or not newest.servers else (newest.principal, newest.servers[0])

    def _ask(self, origin: str, name: str) -> tuple[Principal, str] | Refuse | None:
        now, ticket = self._clock(), self._asked.get(origin)
        found = None if ticket is None else self._pairing.find(ticket, origin, now)
        if found is not None and found.state is PairingState.APPROVED and ticket is not None:
            return self._collect(found, ticket)
        if found is not None and found.state is PairingState.REFUSED:
            return Refuse(403, "forbidden", "This page was refused.")
        if found is None or found.state is not PairingState.WAITING:
            asked = self._pairing.ask(origin, name, now)
            self._asked[origin] = asked.request
            self._asked.move_to_end(origin)
            # defence: bounds: widgets that ask
            while len(self._asked) > MAX_ASKED:
                self._asked.popitem(last=False)
            if asked.is_user_notified:
                self._on_ask(PairingRequest(asked.code, origin, name, now))
        return None

    def _collect(self, found: PairingRequest, ticket: str) -> tuple[Principal, str] | None:
        """The entry that the approval allows. None: it can't be stored now."""
        try:
            self._tokens.issue_for_page(found.origin, found.server, (SERVE,))
        except (OSError, StateError):
            return None
        self._pairing.collect(ticket, self._clock())
        del self._asked[found.origin]
        return self._granted(found.origin)


def _serves(grant: IssuedToken) -> bool:
    return SERVE in grant.scopes and bool(grant.servers)


def name_of(origin: str) -> str:
    """`https://shop.example` → `shop.example`, `http://localhost:5173` → `localhost-5173`."""
    if parse_origin(origin) != origin:
        raise PolicyError("The Origin is not written the way a browser writes it.")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", urlsplit(origin).netloc).strip(".-")
    return check_server_name(name[:MAX_NAME])
