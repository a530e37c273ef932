"""WebSocket endpoint at `/` for pages with MCP-B's embed widget, which connects to a host and a port without a path.

Origin and name are decided in `admission.widget_pages`. The socket of a page that waits for the user's approval is open
and idle: a widget whose socket is refused tries 32 other ports, which a browser slows down more and more. An approved
page is a plain page of its server.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from starlette.types import Receive, Scope, Send

from tabrelay.admission.page_refusals import PageRefusals
from tabrelay.admission.policy import Refuse
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.http.addresses import is_loopback
from tabrelay.http.headers import RequestHeaders
from tabrelay.peers.browsers.asgi_socket import BrowserDismissed, BrowserLeft, BrowserRefused, next_text
from tabrelay.peers.browsers.plain_endpoint import PlainEndpoint
from tabrelay.peers.browsers.widget_page import PROTOCOL, WidgetPage, server_hello
from tabrelay.peers.browsers.writer import SocketWriter
from tabrelay.routing.drain import Drain
from tabserver.wire.frames import CLOSE_FORBIDDEN, CLOSE_PROTOCOL, CLOSE_TRY_LATER, CLOSE_UNAUTHORIZED

# Who the page is and the name of its server; None: it waits for the user's approval.
Admit = Callable[[str], "tuple[Principal, str] | Refuse | None"]
Claim = Callable[[Principal, str], Refuse | None]
MAX_SOCKETS: Final = 256
WIDGET: Final = "widget"  # in the list of refused pages, where there is no name of a server
MAX_WAITING: Final = 16  # sockets of pages that are not approved; the one that has waited longest is closed
CHECK_S: Final = 0.5


class WidgetEndpoint:
    """`claim`: why a principal can't have a name now."""

    def __init__(
        self, plain: PlainEndpoint, settings: Settings, drain: Drain, refusals: PageRefusals, claim: Claim, admit: Admit
    ) -> None:
        self._plain, self._settings, self._drain = plain, settings, drain
        self._refusals, self._claim, self._admit = refusals, claim, admit
        self._instance = secrets.token_hex(8)
        self._sockets: dict[SocketWriter, str] = {}  # and the id of its principal; empty while it waits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        origin = RequestHeaders(scope["headers"]).first.get(b"origin") or ""
        refusal = self._refusal(scope, origin)
        if refusal is not None:
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
            await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": refusal.message.encode()})
            return
        await send({"type": "websocket.accept", "subprotocol": PROTOCOL})
        socket = SocketWriter(send, queue_bytes=self._settings.send_queue, timeout_s=self._settings.send_timeout_s)
        writer = asyncio.create_task(socket.run())
        self._sockets[socket] = ""
        self._drop_oldest()
        with self._drain.sockets:
            try:
                with suppress(BrowserDismissed, BrowserLeft, BrowserRefused):
                    await self._serve(origin, socket, receive)
            finally:
                del self._sockets[socket]
                await socket.finish()
                await writer

    def end(self, principals: set[str]) -> None:
        """Pairings were revoked: close the sockets of their pages."""
        for socket, principal in list(self._sockets.items()):
            if principal in principals:
                socket.close(CLOSE_UNAUTHORIZED, "the pairing was revoked")

    def _drop_oldest(self) -> None:
        waiting = [socket for socket, principal in self._sockets.items() if not principal]
        # defence: bounds: widgets that wait for an approval
        if len(waiting) > MAX_WAITING:
            waiting[0].close(CLOSE_TRY_LATER, "too many pages wait for an approval")

    def _refusal(self, scope: Scope, origin: str) -> Refuse | None:
        """Why the socket is not opened."""
        if PROTOCOL not in scope.get("subprotocols", ()):
            return Refuse(404, "not_found", "No server has this address. The WebSocket of a server is at /NAME.")
        # Programs there can forge an Origin.
        # defence: widgets on a relay that other computers reach
        if not is_loopback(self._settings.host) or self._settings.public_url:
            return Refuse(403, "forbidden", "The widget is served on a loopback address only.")
        # defence: bounds: sockets of widgets
        if len(self._sockets) >= MAX_SOCKETS:
            return Refuse(409, "busy", "There are too many pages with the widget already. Close some.")
        admitted = self._admit(origin)
        if isinstance(admitted, tuple):
            return self._held(origin, *admitted)
        return admitted

    def _held(self, origin: str, principal: Principal, server: str) -> Refuse | None:
        """Why the page can't have its name now."""
        refusal = self._claim(principal, server) or self._plain.refusal(server)
        if refusal is not None:
            self._refusals.record(origin, server, refusal, is_socket=True)
        return refusal

    async def _serve(self, origin: str, socket: SocketWriter, receive: Receive) -> None:
        settings = self._settings
        socket.write([(server_hello(self._instance, "127.0.0.1", settings.port), None)])
        page = WidgetPage(socket, lambda: next_text(receive))
        try:
            try:
                async with asyncio.timeout(settings.hello_deadline_s):
                    greeted = await page.greet()
            except TimeoutError:
                socket.close(CLOSE_PROTOCOL, f"no hello within {settings.hello_deadline_s:g} s")
                return
            if not greeted:
                socket.close(CLOSE_PROTOCOL, "no list of tools within the first messages")
                return
            admitted = await self._approved(page, origin)
            if isinstance(admitted, Refuse):
                socket.close(CLOSE_FORBIDDEN, admitted.message)
            elif admitted is not None:
                principal, server = admitted
                self._sockets[socket] = principal.id
                self._refusals.admitted(origin, server)
                await self._plain.serve(server, principal, page, page.next_text)
        finally:
            page.stop()

    async def _approved(self, page: WidgetPage, origin: str) -> tuple[Principal, str] | Refuse | None:
        """Wait for the user's approval. None: the page has left."""
        # defence: a widget that is hosted by another site than its page
        if page.origin != origin:
            text = f"the widget is hosted by {origin} and not by its page: host embed.js and widget.html there"
            refusal = Refuse(403, "forbidden", text)
            self._refusals.record(origin, WIDGET, refusal, is_socket=True)
            return refusal
        while (admitted := self._admit(origin)) is None:
            if not await page.stays(CHECK_S):
                return None
        # The name may have been taken meanwhile.
        return admitted if isinstance(admitted, Refuse) else self._held(origin, *admitted) or admitted
