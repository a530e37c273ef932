"""Principal of a request: an identity with scopes, and the servers that it may see.

Sessions, names and streams belong to a principal. Tokens are checked in `admission`; nothing is decided here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tabserver.wire.names import server_of

CALL = "call"  # an MCP client that calls tools


SERVE = "serve"  # a browser that offers them


METRICS = "metrics"  # a monitoring system: reads the metrics, and nothing else


MANAGE = "manage"  # the relay's page: decides which pages are paired


ADMIN = "admin"  # the token of the token file: may create pairing codes


PAGE = "page:"  # begins the ids of pages, whichever of their keys is shown


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity that sends a request."""

    id: str
    scopes: frozenset[str]
    origin: str | None = None  # of a page: it may call only servers that its own origin offers at the moment
    servers: frozenset[str] | None = None  # None: every server
    # The credential, so that the principal can be cut off when it is revoked or expires. Neither identifies it.
    credential: str | None = field(default=None, compare=False, repr=False)  # a token's digest
    expires: float | None = field(default=None, compare=False, repr=False)  # seconds since 1970

    def may_see(self, server: str) -> bool:
        """A server, or one browser of it."""
        return self.servers is None or server in self.servers or server_of(server) in self.servers
