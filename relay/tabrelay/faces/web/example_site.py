"""The demo's example of an app on another origin: `tabrelay demo` serves its files on a port next to the relay's.

Its origin has no rights at the relay: its page asks to be paired, as every app does. This port serves the files of the
example and the loader with the relay's address, and nothing of the relay. The example's address at the relay leads
here. Does not serve folders of the user: `app_site` does.
"""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from tabrelay.assets.files import LOADER, Assets
from tabrelay.faces.web.routes import file_response

ROUTE: Final = "/-/demo/examples/cross_origin/"
_FOLDER: Final = "demo/examples/cross_origin/"
_FILES: Final = {"/": "index.html", "/notes.js": "notes.js", "/notes.css": "notes.css"}
_HEADERS: Final = {"Cross-Origin-Resource-Policy": "same-origin"}


class ExampleSite:
    """Wraps the relay's application; requests on the relay's port are passed on, except for the example's address."""

    def __init__(self, relay: ASGIApp, assets: Assets, *, port: int, address: str, relay_url: str) -> None:
        """`port`, `address`: of the example's origin."""
        self._relay, self._assets = relay, assets
        self._port, self._address, self._relay_url = port, address, relay_url
        self._host = address.partition("://")[2]
        # POST requests for servers may be answered before they arrive here; the gate compares their Host header.
        self.fast_path: object = getattr(relay, "fast_path", None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        server = scope.get("server")
        if server is None or server[1] != self._port:
            is_link = scope["type"] == "http" and scope["path"] == ROUTE and scope["method"] in ("GET", "HEAD")
            answer: ASGIApp = RedirectResponse(f"{self._address}/", 307) if is_link else self._relay
        elif scope["type"] == "websocket":
            answer = WebSocketClose(code=1008)  # before it is accepted: refused with 403
        else:
            answer = await self._answer(Request(scope))
        await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        # defence: a rebound Host at the example's address
        if [host.strip().lower() for host in request.headers.getlist("host")] != [self._host]:
            return _text("This is not a name of the example's address.", 421)
        if request.method not in ("GET", "HEAD"):
            return _text("This origin has files only.", 405)
        if request.url.path == f"/{LOADER}":
            asset = await asyncio.to_thread(self._assets.loader, self._relay_url)
        else:
            name = _FILES.get(request.url.path)
            asset = await asyncio.to_thread(self._assets.lookup, f"{_FOLDER}{name}") if name else None
        if asset is None:
            return _text(f"There is nothing at this address. The relay's pages are at {self._relay_url}/ [TR204]", 404)
        return file_response(asset, request, _HEADERS)


def _text(text: str, status: int) -> Response:
    return PlainTextResponse(f"{text}\n", status, headers={**_HEADERS, "Cache-Control": "no-store"})
