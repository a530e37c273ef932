"""The developer's app and the relay at one address: `tabrelay dev` serves both on a port of its own origin.

    /            files of the app's folder
    /{server}    MCP, and the worker's WebSocket
    /-/          the client's files, pairing and proof: what pages of any origin may use

The relay's own pages and everything that needs the relay's token are on another port: code of the app runs on this
origin, and must not be able to use them. A request for anything that is not listed here gets a file or 404. Who may use
the relay is decided by its gate, behind this.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tabrelay.admission.routes import is_page_request, route
from tabrelay.assets.app_folder import AppFile, AppFolder, Moved, server_names
from tabrelay.faces.web.routes import StoredFileResponse
from tabrelay.http.headers import RequestHeaders

EVENTS: Final = "/-/dev/events"
MOST_STREAMS: Final = 64  # pages of one browser share one
_ICON: Final = "/favicon.ico"  # browsers request it for a page that declares no icon
_MOST_NAMED: Final = 20  # files in a message
_MAX_COMPARED: Final = 64  # characters of a name that is not there
_TICK_S: Final = 0.3
_PING_TICKS: Final = 50
_ASKING: Final = frozenset({"/-/ask", "/-/ask/answer", "/-/prove", "/-/reports"})
# Pages must not take the app's origin for the relay's own: they ask to be paired instead of redeeming a code.
BUILD_ON_APP_ORIGIN: Final = 'export const BUILD = "";\nexport const SERVES_APP = true;\n'
_BUILD: Final = re.compile(r"/-/(retry/[0-9]{1,9}/|assets/js-[0-9a-f]{16}/)?build\.js")
_HEADERS: Final = {
    # No page of another origin may embed the app's files.
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}


class AppSite:
    """Wraps the relay's application; requests on other ports are passed on unchanged."""

    def __init__(
        self,
        relay: ASGIApp,
        folder: AppFolder,
        *,
        port: int,
        hosts: frozenset[str],
        relay_url: str,
        is_stopping: Callable[[], bool],
        servers: Sequence[str] = (),
    ) -> None:
        """`port`, `hosts`: of the app's origin. `relay_url`: where the relay's own pages are. `servers`: names
        that are known from the start."""
        self._relay, self._folder = relay, folder
        self._port, self._hosts, self._relay_url = port, hosts, relay_url
        self._is_stopping, self._servers = is_stopping, servers
        self._streams = 0
        # A page that sees another one after a pause is loaded again: files may have changed while the relay was away.
        self._run = secrets.token_hex(4)
        # POST requests for servers may be answered before they arrive here, as on the relay's own port.
        self.fast_path: object = getattr(relay, "fast_path", None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = scope.get("server")
        is_of_app = scope["type"] == "http" and server is not None and server[1] == self._port
        answer = await self._answer(Request(scope)) if is_of_app else None
        await (self._relay if answer is None else answer)(scope, receive, send)

    async def _answer(self, request: Request) -> ASGIApp | None:
        """None: the relay answers."""
        path, is_read = request.url.path, request.method in ("GET", "HEAD")
        # defence: a rebound Host at the app's address
        if [host.strip().lower() for host in request.headers.getlist("host")][1:] or (
            request.headers.get("host", "").strip().lower() not in self._hosts
        ):
            return _text("This is not a name of the app's address.", 421)
        if path.startswith(("/-/", "/.")) or path == "/-":
            return await self._reserved(request, path, is_read)
        if not is_read:
            return None
        try:
            found = await asyncio.to_thread(self._folder.find, path)
        except OSError as problem:
            return _text(f"{quote(path)} can't be read: {problem.strerror}", 404)
        if found is None and path == _ICON:
            return Response(status_code=204, headers=_HEADERS)  # 404 would be an error in the console of every page
        if found is None and "text/event-stream" in request.headers.get("accept", ""):
            return None
        if isinstance(found, Moved):
            return Response(status_code=308, headers={**_HEADERS, "Location": found.location})
        if found is None:
            is_page = is_page_request(RequestHeaders(request.scope["headers"]))
            return await self._server_page(path) if is_page else await self._missing(path)
        return _file(found, request)

    async def _reserved(self, request: Request, path: str, is_read: bool) -> ASGIApp | None:
        if path == EVENTS and request.method == "GET":
            return self._send_events
        if is_read and _BUILD.fullmatch(path):
            return Response(
                BUILD_ON_APP_ORIGIN, media_type="text/javascript", headers={**_HEADERS, "Cache-Control": "no-cache"}
            )
        asked = route("http", request.method, path)
        # defence: the relay's own pages and routes are not on the app's origin
        if (is_read and asked.is_shared) or path in _ASKING or path.startswith(("/-/probe/", "/-/packages/")):
            return None
        if path.startswith("/.well-known/oauth-"):
            return None
        return _text(f"There is nothing at this address. The relay's own pages are at {self._relay_url}/ [TR204]", 404)

    async def _server_page(self, path: str) -> Response:
        """A person opened the address of an MCP server: the relay's own page explains it."""
        name = path.removeprefix("/")
        names = {*self._servers, *await asyncio.to_thread(lambda: tuple(server_names(self._folder.root)))}
        if name not in names:
            return await self._missing(path)
        return Response(status_code=303, headers={**_HEADERS, "Location": f"{self._relay_url}/{name}"})

    async def _missing(self, path: str) -> Response:
        return _text(f"{quote(path)} is not there.{await asyncio.to_thread(self._hint, path)}", 404)

    def _hint(self, path: str) -> str:
        """What the folder has instead. May take a while: many names are compared."""
        from difflib import get_close_matches  # only for a mistake

        names, wanted = self._folder.beside(path), path.rpartition("/")[2]
        close = get_close_matches(wanted, names, 1) if len(wanted) <= _MAX_COMPARED else []
        if close:
            return f" Did you mean {close[0]}?"
        return f" Its folder has: {', '.join(names[:_MOST_NAMED])}" if names else ""

    async def _send_events(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Stream of server-sent events: which of the requested files have changed."""
        # defence: streams of changes
        if self._streams >= MOST_STREAMS:
            await _text("Too many pages ask for changes.", 503)(scope, receive, send)
            return
        self._streams += 1
        try:
            headers = {"Cache-Control": "no-store"}
            await StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)(
                scope, receive, send
            )
        finally:
            self._streams -= 1

    async def _events(self) -> AsyncIterator[str]:
        version = self._folder.version
        yield f"event: run\ndata: {self._run}\n\n"
        ticks = 0
        while not self._is_stopping():
            await asyncio.sleep(_TICK_S)
            changed = await asyncio.to_thread(self._folder.changes, version)
            version, ticks = self._folder.version, ticks + 1
            if changed:
                yield f"event: changed\ndata: {json.dumps(sorted(set(changed)))}\n\n"
            elif ticks % _PING_TICKS == 0:
                yield ": \n\n"


def _file(file: AppFile, request: Request) -> Response:
    etag = f'"{file.etag}"'
    headers = {**_HEADERS, "ETag": etag, "Cache-Control": "no-cache"}
    given = [part.strip().removeprefix("W/") for part in request.headers.get("if-none-match", "").split(",")]
    if etag in given:  # RFC 9110 §13.1.2
        return Response(status_code=304, headers=headers)
    headers["Content-Type"] = file.mime
    if isinstance(file.body, bytes):
        return Response(file.body, headers=headers)
    return StoredFileResponse(file.body, headers)


def _text(text: str, status: int) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers={**_HEADERS, "Cache-Control": "no-store"})
