"""The one table of who may go where. A route that nobody named here wants the token file's own token."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tabrelay.calls.principal import ADMIN, CALL, MANAGE, METRICS, SERVE
from tabrelay.calls.proof import ROUTE as PROVE

# Shared with every origin, as any page that imports the worker needs them and they hold nothing of the user's.
_SHARED: Final = re.compile(
    r"/-/(healthz|manifest\.json|(retry/[0-9]{1,9}/)?"
    r"((assets|pyodide|pyscript|micropython)/.+|tabserver\.zip|tabrelay\.tgz|"
    r"((client|schema|webmcp|worker)/)?[A-Za-z0-9_.-]+\.(m?js|d\.ts|map)))"
)
# `/notes/mcp` is `/notes`: some clients put it behind every address that lacks it.
MCP: Final = "mcp"
# RFC 9728: which authorization server gives out tokens. Read by clients in pages of any origin, with headers of MCP's.
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_METADATA: Final = re.compile(r"/\.well-known/oauth-(protected-resource(/[^/]+(/mcp)?)?|authorization-server)")
_PUBLIC: Final = re.compile(r"/|/-/demo|/-/(demo|page)/.*|/\.well-known/.*|/favicon\.ico")


@dataclass(frozen=True, slots=True)
class Route:
    """What the gate asks of a request. ``needs``: the scope; None with ``is_public`` False: any valid token.

    ``is_shared``: read by every origin, with nothing of the user's. ``is_for_paired``: also for pages of origins that
    were paired. ``is_for_asking``: for a page of any origin at all. ``place``: which of the server's addresses it
    is, if not the usual one.
    """

    is_public: bool = False
    is_shared: bool = False
    is_for_paired: bool = False
    is_for_any_origin: bool = False
    has_cors: bool = False
    needs: str | None = None
    server: str | None = None
    place: str = ""
    is_jsonrpc: bool = False


@lru_cache(maxsize=256)  # calls go to few paths, again and again
def route(kind: str, method: str, path: str) -> Route:
    """``kind``: http or websocket."""
    is_read = kind == "http" and method in ("GET", "HEAD")
    if kind == "http" and method in ("GET", "HEAD", "OPTIONS") and _METADATA.fullmatch(path):
        is_preflight = method == "OPTIONS"
        return Route(not is_preflight, not is_preflight, is_for_any_origin=is_preflight, has_cors=True, needs=ADMIN)
    if is_read and _SHARED.fullmatch(path):
        return Route(is_public=True, is_shared=True)
    if is_read and _PUBLIC.fullmatch(path):
        return Route(is_public=True)
    if kind == "http" and path == "/-/pair":
        return Route(is_public=method == "POST", has_cors=True, needs=ADMIN)
    if kind == "http" and path in ("/-/ask", "/-/ask/answer"):
        return Route(is_public=method == "POST", is_for_any_origin=True, has_cors=True, needs=ADMIN)
    if kind == "http" and path == PROVE:
        # For a page of any origin: one that was revoked must be told so, or it could not tell that from a lost relay.
        return Route(is_public=method == "POST", is_for_any_origin=True, has_cors=True, needs=ADMIN)
    if kind == "http" and path == "/-/reports":
        return Route(is_public=method == "POST", needs=ADMIN)
    if kind == "http" and (path in ("/-/pairs", "/-/calls", "/-/drift") or path.startswith("/-/upstreams/")):
        return Route(needs=MANAGE)
    if kind == "http" and path == "/-/metrics":
        return Route(needs=METRICS)
    if kind == "http" and path == "/-/status":
        return Route(has_cors=True)
    first, _, rest = path.removeprefix("/").partition("/")
    if kind == "http" and path.startswith("/-/probe/"):
        return Route(is_for_paired=True, has_cors=True, needs=SERVE, server=rest.partition("/")[2])
    if first and not first.startswith(("-", ".")):
        if kind == "websocket":
            return Route(is_for_paired=True, needs=SERVE, server=first)
        place = MCP if rest.rstrip("/") == MCP else ""
        return Route(has_cors=True, needs=CALL, server=first, place=place, is_jsonrpc=True)
    return Route(needs=ADMIN)
