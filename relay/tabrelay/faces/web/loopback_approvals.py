"""Approvals that cover the other loopback names of a port: localhost, 127.0.0.1 and [::1].

A dev server has one port and three names. A page that was approved under one of them is approved under the others, for
the same server name, scheme and port. Each origin still gets a token that is bound to it. The request must come from a
program of the relay's own user on this computer: an Origin header can be forged, the user of a socket can't. Systems
other than Linux do not tell the user of a socket, so there any local program counts.

Creates no token and stores nothing. Revoking covers the same names (`Tokens.revoke_pages`).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final

from starlette.types import Scope

from tabrelay.admission.rate_limiter import RateLimiter
from tabrelay.admission.tokens import Tokens
from tabrelay.http.addresses import is_loopback, loopback_siblings
from tabrelay.system.connection_user import users_of_connection

# Each request can add a token to the store: a few browser profiles, and then one every ten minutes.
BURST: Final = 6
PER_S: Final = 1 / 600
# A developer opens the app in new browser profiles, and tests do.
APP_BURST: Final = 60
APP_PER_S: Final = 1 / 20
ROOT: Final = 0  # may read every file, the relay's token too; forwards of WSL and of containers run as root


class LoopbackApprovals:
    """Finds the approval that covers a page's request."""

    def __init__(
        self,
        tokens: Tokens,
        *,
        is_direct: bool,
        users: Callable[[int, int], frozenset[int] | None] = users_of_connection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`is_direct`: there is no proxy before the relay, whose clients would all come from this computer."""
        self._tokens = tokens
        self._is_direct = is_direct
        self._users = users
        self._clock = clock
        self._rates = RateLimiter(PER_S, BURST)
        self._app_rates = RateLimiter(APP_PER_S, APP_BURST)

    async def covering(self, origin: str, server: str, scope: Scope) -> str | None:
        """The approved origin that covers this one; None if the user must approve."""
        siblings = loopback_siblings(origin)
        approved = sorted(
            issued.origin
            for issued in self._tokens.issued()
            if issued.origin in siblings and issued.servers is not None and server in issued.servers
        )
        if not approved or not self._is_direct or not await self._is_own_user(scope):
            return None
        # defence: tokens that approvals of loopback names add
        return None if self._rates.take(f"{origin} {server}", self._clock()) else approved[0]

    async def allows_app(self, origin: str, server: str, scope: Scope) -> bool:
        """May the app that this relay serves be paired without a question, by this request?"""
        # defence: another user of this computer under the app's origin
        if not self._is_direct or not await self._is_own_user(scope):
            return False
        return not self._app_rates.take(f"{origin} {server}", self._clock())

    async def _is_own_user(self, scope: Scope) -> bool:
        client: Any = scope.get("client")
        server: Any = scope.get("server")
        if not client or not server or not is_loopback(client[0]):
            return False
        users = await asyncio.to_thread(self._users, client[1], server[1])
        # defence: another user of this computer under an approved loopback name
        return users is None or (bool(users) and users <= {os.getuid(), ROOT})
