"""The principal of a request: an identity with scopes, and the servers that it may see."""

from __future__ import annotations

from dataclasses import dataclass, field

from tabserver.wire.names import server_of

CALL = "call"  # an MCP client that calls tools


SERVE = "serve"  # a browser that offers them


METRICS = "metrics"  # whoever watches the relay: reads its figures, and nothing else


MANAGE = "manage"  # the relay's own page: decides who is paired


ADMIN = "admin"  # the token file's own token: may mint pairing codes


@dataclass(frozen=True, slots=True)
class Principal:
    """Whoever stands behind a request; everything that is owned is owned by one of these."""

    id: str
    scopes: frozenset[str]
    origin: str | None = None
    servers: frozenset[str] | None = None  # None: every server
    # What it came in with, so that it can be sent away when that is revoked or over. Neither says who it is.
    credential: str | None = field(default=None, compare=False, repr=False)  # a token's digest
    expires: float | None = field(default=None, compare=False, repr=False)  # seconds since 1970

    def may_see(self, server: str) -> bool:
        """A server, or one browser of it."""
        return self.servers is None or server in self.servers or server_of(server) in self.servers
