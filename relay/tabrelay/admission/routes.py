"""Access table of routes: what the gate requires for each method and path.

The only such table. A route that is not in it needs the relay's own token (scope `admin`). Does not dispatch requests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tabrelay.calls.principal import ADMIN, CALL, MANAGE, METRICS, SERVE
from tabrelay.calls.proof import ROUTE as PROVE
from tabrelay.http.headers import RequestHeaders

# Readable by every origin: any page that imports the worker needs them, and they contain no user data.
_SHARED: Final = re.compile(
    r"/-/(healthz|manifest\.json|(retry/[0-9]{1,9}/)?"
    r"((assets|pyodide|pyscript|micropython|editor|demo/playground/frame)/.+|tabserver\.zip|tabrelay\.tgz|"
    r"((client|schema|webmcp|worker)/)?[A-Za-z0-9_.-]+\.(m?js|d\.ts|map)))"
)
# `/notes/mcp` is `/notes`: some clients append it to every address that lacks it.
MCP: Final = "mcp"
# RFC 9728: which authorization server issues tokens. Clients in pages of any origin read it, with MCP's headers.
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_METADATA: Final = re.compile(r"/\.well-known/oauth-(protected-resource(/[^/]+(/mcp)?)?|authorization-server)")
_MANAGED: Final = ("/-/pairs", "/-/calls", "/-/drift", "/-/forget")
_PUBLIC: Final = re.compile(r"/|/-/(demo|docs)|/-/(demo|docs|page)/.*|/\.well-known/.*|/favicon\.ico")


@dataclass(frozen=True, slots=True)
class Route:
    """What the gate requires of a request. ``needs``: the scope; None with ``is_public`` False: any valid token.

    ``is_shared``: readable by every origin, contains no user data. ``is_for_paired``: also for pages of paired origins.
    ``is_for_any_origin``: for pages of all origins. ``place``: which of the server's addresses it is, if not the usual
    one.
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


# A server's address that a person opened in a browser: a page without secrets, instead of a refusal.
PAGE: Final = Route(is_public=True)


def is_page_request(request: RequestHeaders) -> bool:
    """Does a browser want to show the response? MCP clients ask for event streams."""
    if (mode := request.first.get(b"sec-fetch-mode")) is not None and mode != "navigate":
        return False
    accepted = request.accept.lower()
    return "text/html" in accepted and "text/event-stream" not in accepted


@lru_cache(maxsize=256)  # most requests go to a few paths
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
        # For pages of all origins: a revoked page must get the refusal, or it could not tell it from a lost relay.
        return Route(is_public=method == "POST", is_for_any_origin=True, has_cors=True, needs=ADMIN)
    if kind == "http" and path == "/-/reports":
        return Route(is_public=method == "POST", needs=ADMIN)
    if kind == "http" and (path in _MANAGED or path.startswith(("/-/upstreams/", "/-/console/"))):
        return Route(needs=MANAGE)
    if kind == "http" and path == "/-/metrics":
        return Route(needs=METRICS)
    if kind == "http" and path == "/-/status":
        return Route(has_cors=True)
    if kind == "websocket" and path == "/":
        # MCP-B's embed widget: it has no token, and its origin is checked where it connects.
        return Route(is_public=True, is_for_any_origin=True)
    first, _, rest = path.removeprefix("/").partition("/")
    if kind == "http" and path.startswith("/-/packages/"):
        # A worker's own token: packages of a private index may be among them.
        return Route(is_for_paired=True, has_cors=True, needs=SERVE)
    if kind == "http" and path.startswith("/-/probe/"):
        return Route(is_for_paired=True, has_cors=True, needs=SERVE, server=rest.partition("/")[2])
    if first and not first.startswith(("-", ".")):
        if kind == "websocket":
            return Route(is_for_paired=True, needs=SERVE, server=first)
        place = MCP if rest.rstrip("/") == MCP else ""
        return Route(has_cors=True, needs=CALL, server=first, place=place, is_jsonrpc=True)
    return Route(needs=ADMIN)
