"""WebSocket endpoint for browsers: one WebSocket at `/{server}` becomes a socket of a `BrowserPeer`.

A refused browser gets an HTTP response before the 101, and after the handshake a `bye` frame with a close code. A
session is resumed only by the same principal, origin, server and worker. The gate has authenticated the request, so
this module checks no token. It is plain ASGI: FastAPI has nothing to add to a byte pipe.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any

from starlette.types import Receive, Scope, Send

from tabrelay.admission.page_refusals import PageRefusals
from tabrelay.admission.policy import Refuse
from tabrelay.calls.calls import Pending
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.http.headers import RequestHeaders
from tabrelay.observe.call_metrics import CallMetrics
from tabrelay.payloads.sliced import SlicedCodec
from tabrelay.peers.browsers.asgi_bypass import direct_channel
from tabrelay.peers.browsers.asgi_socket import BrowserDismissed, BrowserLeft, BrowserRefused, next_text
from tabrelay.peers.browsers.link_faults import DelayingWriter, LinkFaults
from tabrelay.peers.browsers.name_claims import NameClaims, OtherRelays
from tabrelay.peers.browsers.peer import BrowserPeer
from tabrelay.peers.browsers.plain_endpoint import PlainEndpoint
from tabrelay.peers.browsers.plain_peer import PlainPeer
from tabrelay.peers.browsers.user_agent import browser_name
from tabrelay.peers.browsers.writer import SLOW, SocketWriter
from tabrelay.routing.drain import Drain
from tabrelay.routing.instances import read_tabs
from tabrelay.routing.registry import Registry
from tabserver.wire import frames
from tabserver.wire.errors import RemoteProtocolError, ServerNameError
from tabserver.wire.frames import (
    CLOSE_FORBIDDEN,
    CLOSE_GOING_AWAY,
    CLOSE_PROTOCOL,
    CLOSE_SLOW,
    CLOSE_TRY_LATER,
    CLOSE_UNAUTHORIZED,
    SUBPROTOCOL,
    Terms,
)
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tabserver.wire.names import INSTANCE_SEPARATOR, check_instance, check_server_name, server_of
from tabserver.wire.pending_calls import PendingCalls

log = logging.getLogger(__name__)


class BrowserEndpoint:
    """ASGI application for WebSockets. Keeps the sessions that may be resumed."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        build: str,
        on_up: Callable[[str], None],
        on_gone: Callable[[str], None],
        drain: Drain,
        state_key: Callable[[str, str], str],
        metrics: CallMetrics | None = None,
        calls_by_name: dict[str, PendingCalls[Pending]] | None = None,
        refusals: PageRefusals | None = None,
        others: OtherRelays | None = None,
    ) -> None:
        """`on_up` and `on_gone` are called with the names of browsers that connected, and whose session ended.
        `state_key`: the key with which a server of a principal seals the state that clients carry for it. `metrics`
        counts connections, disconnections and refusals. `calls_by_name`: the pending calls of each name, shared with
        the peers of other relays. `others`: the other relays on a bus, which are asked for names too."""
        self._metrics = metrics or CallMetrics(0)
        self._refusals = PageRefusals(settings) if refusals is None else refusals
        self._registry = registry
        self._settings = settings
        self._build = build
        self._on_up = on_up
        self._on_gone = on_gone
        self._state_key = state_key
        self._drain = drain
        self._epoch = secrets.token_hex(8)
        self._limits = Limits(
            greeting_s=settings.hello_deadline_s,
            heartbeat_s=settings.heartbeat_s,
            grace_s=settings.grace_s,
            replay_messages=settings.replay_messages,
            replay_bytes=settings.replay_bytes,
            max_message=settings.max_message,
            max_part=settings.max_part,
        )
        self._sessions: dict[str, BrowserPeer] = {}
        self.faults = LinkFaults.for_settings(settings, self._sessions.values)
        self._plain = PlainEndpoint(registry, settings, on_up)
        self.claims = NameClaims(registry, settings, drain, others)
        self._calls_by_name: dict[str, PendingCalls[Pending]] = {} if calls_by_name is None else calls_by_name
        # Large messages wait when three quarters are spent; the rest is for what is on its way by then.
        self._budget = MemoryBudget(settings.replay_budget * 3 // 4, slack=settings.replay_budget // 4)
        self._writers: dict[SocketWriter, BrowserPeer | None] = {}  # and the session that has the socket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        principal: Principal = scope["state"]["principal"]
        try:
            server = check_server_name(scope["path"].removeprefix("/"))
        except ServerNameError as error:
            await self._refuse(scope, send, Refuse(404, "bad_name", str(error)))
            return
        offered = scope.get("subprotocols", ())
        is_plain = self._plain.accepts(server, offered)
        if SUBPROTOCOL not in offered and not is_plain:
            await self._refuse(
                scope, send, Refuse(400, "subprotocol", f"Offer the WebSocket subprotocol {SUBPROTOCOL}.")
            )
            return
        refusal = await self.claims.refusal_at_dial(principal, server)
        refusal = refusal or (self._plain.refusal(server) if is_plain else None)
        if refusal is not None:
            await self._refuse(scope, send, refusal)
            return
        chosen = self._plain.subprotocol(offered) if is_plain else SUBPROTOCOL
        await send({"type": "websocket.accept", "subprotocol": chosen})
        socket = self._writer(scope, send)
        writer = asyncio.create_task(socket.run())
        self._writers[socket] = None
        if not is_plain and (signature := scope["state"].get("signature")) is not None:
            # defence: another program on the port: a socket begins with a signature
            socket.write([(signature, None)])  # P6: before the worker says anything
        with self._drain.sockets:
            try:
                if is_plain:
                    self._metrics.record_connection("plain")
                    await self._plain.serve(server, principal, socket, lambda: next_text(receive))
                else:
                    await self._serve(server, principal, scope, receive, socket)
            except BrowserDismissed as dismissed:
                socket.close(CLOSE_UNAUTHORIZED, str(dismissed))
            except (BrowserLeft, BrowserRefused):
                pass
            finally:
                self._metrics.record_disconnection()
                del self._writers[socket]
                await socket.finish()
                await writer

    def _writer(self, scope: Scope, send: Send) -> SocketWriter:
        channel = direct_channel(scope)
        more: Any = {} if channel is None else {"try_write": channel.try_write}
        limits: Any = {"queue_bytes": self._settings.send_queue, "timeout_s": self._settings.send_timeout_s}
        if self.faults is not None:
            delay_s = partial(self.faults.delay_s, scope["path"].removeprefix("/"))
            return DelayingWriter(send, delay_s=delay_s, on_slow=self._slow, **limits, **more)
        return SocketWriter(send, on_slow=self._slow, **limits, **more)

    def _slow(self, socket: SocketWriter) -> None:
        peer = self._writers.get(socket)
        if peer is None:
            socket.close(CLOSE_SLOW, SLOW)
        else:
            peer.slow(socket)

    async def _refuse(self, scope: Scope, send: Send, refusal: Refuse) -> None:
        """Refuse before the 101: a page whose socket is opened and closed at once would dial again without end."""
        self._metrics.record_refusal("door", refusal.reason)
        self._record_refusal(scope, refusal)
        headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"cache-control", b"no-store")]
        await send({"type": "websocket.http.response.start", "status": refusal.status, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": refusal.message.encode()})

    async def _serve(
        self, server: str, principal: Principal, scope: Scope, receive: Receive, socket: SocketWriter
    ) -> None:
        try:
            async with asyncio.timeout(self._limits.greeting_s):
                hello = await next_text(receive)
        except TimeoutError:
            self._metrics.record_refusal("door", "hello")
            socket.close(CLOSE_PROTOCOL, f"no hello within {self._limits.greeting_s:g} s")
            return
        if hello is None:
            return
        # L8: the name may have been taken since the handshake.
        refusal = self.claims.held_by_another(principal, server)
        # defence: take-over: the holder of a name is looked up at the hello
        if refusal is not None:
            self._refuse_greeting(socket, refusal)
            self._record_refusal(scope, refusal)
            return
        try:
            peer = self._session(server, principal, scope, hello)
        except (RemoteProtocolError, ServerNameError) as error:
            self._metrics.record_refusal("door", "hello")
            self._record_refusal(scope, Refuse(400, "hello", f"The page broke the link's protocol: {error}."))
            socket.write([(frames.encode(t="bye", code=CLOSE_PROTOCOL, reason=str(error)), None)])
            socket.close(CLOSE_PROTOCOL, str(error))
            return
        self._writers[socket] = peer
        try:
            peer.attach(socket, hello)
        finally:
            if not self._is_session(peer):
                peer.retire(CLOSE_PROTOCOL, "the hello was refused", is_displaced=True)
        channel = direct_channel(scope)
        if channel is not None:
            channel.start_direct(partial(peer.receive_text, socket))
        try:
            # The direct channel carries neither large messages nor the end of the socket.
            while (text := await next_text(receive)) is not None:
                peer.receive_text(socket, text)
        except BrowserDismissed as dismissed:
            # No browser can resume this session, so its calls fail now and not after the grace.
            peer.retire(CLOSE_UNAUTHORIZED, str(dismissed))
        except BrowserLeft:
            peer.left(socket)
        except BrowserRefused:
            peer.refused(socket)
        finally:
            if channel is not None:
                channel.end_direct()
            peer.detach(socket)

    def _record_refusal(self, scope: Scope, refusal: Refuse) -> None:
        origin = RequestHeaders(scope["headers"]).first.get(b"origin")
        if origin is not None:
            server = scope["path"].removeprefix("/")
            has_token = scope["state"]["principal"].credential is not None
            self._refusals.record(origin, server, refusal, is_socket=True, has_token=has_token)

    def _refuse_greeting(self, socket: SocketWriter, refusal: Refuse) -> None:
        """L8: 4403, as 403 before the handshake. 1013, as 503."""
        self._metrics.record_refusal("door", refusal.reason)
        code = CLOSE_FORBIDDEN if refusal.status == 403 else CLOSE_TRY_LATER
        bye: dict[str, Any] = {"t": "bye", "code": code, "reason": refusal.message}
        if refusal.retry_after_ms is not None:
            bye["retry_ms"] = refusal.retry_after_ms
        socket.write([(frames.encode(**bye), None)])
        socket.close(code, refusal.message)

    def refusal(self, principal: Principal, server: str) -> Refuse | None:
        """Why this principal can't have the name now, if it can't. A page shows it when its dial was refused."""
        return self.claims.refusal(principal, server)

    def _is_shared(self, server: str) -> bool:
        return server in self._settings.instances

    def _session(self, server: str, principal: Principal, scope: Scope, hello: str) -> BrowserPeer:
        """The session that this hello resumes, or a new one."""
        if len(hello) > self._settings.max_hello:
            raise RemoteProtocolError(f"a hello has at most {self._settings.max_hello} characters")
        frame = frames.decode(hello)
        if frame["t"] != "hello":
            raise RemoteProtocolError(f"the first frame must be hello, not {frame['t']}")
        if frame["server"] != server:
            raise RemoteProtocolError("the hello names another server than the URL")
        origin, name = RequestHeaders(scope["headers"]).first.get(b"origin"), server
        if self._is_shared(server):
            # A worker of a page without storage has only its instance name, which ends with the worker.
            name = f"{server}{INSTANCE_SEPARATOR}{check_instance(frame.get('browser') or frame['inst'][:8])}"
        known = self._sessions.get(frame.get("sid", ""))
        # L5: a stolen sid alone resumes nothing: it must come from the same principal, page origin, server and worker.
        # defence: a stolen sid
        if known is not None and (known.server, known.principal, known.origin, known.inst) == (
            name,
            principal.id,
            origin,
            frame["inst"],
        ):
            return known
        terms = Terms(
            sid=secrets.token_urlsafe(24),
            epoch=self._epoch,
            build=self._build,
            grace_ms=round(self._limits.grace_s * 1000),
            beat_ms=round(self._limits.heartbeat_s * 1000),
            max_message=self._limits.max_message,
            static_tools=server in self._settings.static_tools,
            approve=self._settings.approve,
            key=self._state_key(server, principal.id),
            tasks={
                "ttl_ms": round(self._settings.task_ttl_s * 1000),
                "most_ttl_ms": round(self._settings.max_task_ttl_s * 1000),
                "most": self._settings.max_tasks,
                "most_of_principal": self._settings.max_tasks_token,
                "results": self._settings.task_budget,
            },
        )
        peer = BrowserPeer(
            name,
            inst=frame["inst"],
            principal=principal.id,
            origin=origin,
            link=Link.accepter(terms, self._limits, SlicedCodec(self._settings.max_values), self._budget),
            # defence: a result of a call that a browser does not own
            pending_calls=self._calls_by_name.setdefault(name, PendingCalls()),
            budget=self._budget,
            in_flight_limit=self._settings.in_flight_server,
            max_values=self._settings.max_values,
            on_up=self._up,
            on_away=self._away,
            on_gone=self._gone,
            on_tabs=self._tabs_changed,
            browser=browser_name(RequestHeaders(scope["headers"]).first.get(b"user-agent", "")),
        )
        return peer

    def _is_session(self, peer: BrowserPeer) -> bool:
        """Was its hello ever accepted? A dial whose hello was refused leaves nothing behind."""
        return self._sessions.get(peer.link.sid or "") is peer

    def _away(self, peer: BrowserPeer) -> None:
        if self._is_session(peer):
            self._registry.mark_away(peer.server, peer)

    def _up(self, peer: BrowserPeer) -> None:
        self._sessions[peer.link.sid or ""] = peer
        displaced = self._registry.take(peer.server, peer)
        if displaced is not None:
            displaced.displace()
        self._registry.set_browser(peer.server, peer.browser)
        if peer.origin is not None:
            self._refusals.admitted(peer.origin, server_of(peer.server))
        self._metrics.record_connection("resumed" if peer.is_resumed else "new")
        log.info("%s: connected", peer.server)
        self._on_up(peer.server)

    def _gone(self, peer: BrowserPeer) -> None:
        if not self._is_session(peer):
            if self._registry.holder(peer.server) is None and not len(self._calls_by_name[peer.server]):
                del self._calls_by_name[peer.server]
            return
        del self._sessions[peer.link.sid or ""]
        self._registry.release(peer.server, peer)
        asyncio.get_running_loop().call_soon(self._discard_calls, peer.server)  # when its calls have failed
        log.info("%s: gone", peer.server)
        self._on_gone(peer.server)
        self._plain.reclaim(peer.server)

    def _discard_calls(self, name: str) -> None:
        """New names and browsers connect without end, so nothing is kept of those that are gone."""
        if self._registry.holder(name) is None and not self._calls_by_name.get(name, True):
            # defence: bounds: calls of names that are gone
            del self._calls_by_name[name]

    def _tabs_changed(self, peer: BrowserPeer, message: object) -> None:
        known = read_tabs(message)
        if known is not None and self._registry.holder(peer.server) is peer:
            self._registry.set_tabs(peer.server, known)

    @property
    def budget(self) -> MemoryBudget:
        """Bytes that all links keep for replay, together."""
        return self._budget

    @property
    def waiting_bytes(self) -> int:
        """Bytes written to browsers and not sent yet."""
        return sum(writer.waiting_bytes for writer in self._writers)

    def end_absent(self, server: str) -> None:
        """End the sessions of this server whose browser is away, without waiting for the end of their grace."""
        for peer in list(self._sessions.values()):
            if server_of(peer.server) == server and not peer.is_up and not peer.in_flight:
                peer.retire(CLOSE_GOING_AWAY, "forgotten")

    def close(self) -> None:
        """End all sessions, also those in their grace, whose timers would otherwise run on in a program that embeds the
        relay."""
        for peer in list(self._sessions.values()):
            peer.retire(CLOSE_GOING_AWAY, "the relay has stopped")

    @property
    def plain(self) -> PlainEndpoint:
        return self._plain

    def browsers(self) -> list[BrowserPeer | PlainPeer]:
        return [*self._sessions.values(), *self._plain.peers()]
