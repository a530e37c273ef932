"""HTTP+SSE transport of 2024-11-05: a stream at `GET /{server}/sse`, and messages POSTed to `/{server}/messages`.

The stream is the session: when it closes, the session ends, and nothing can be resumed. Of several relays the one that
holds the stream handles its messages; the others forward them. Messages are handled by the legacy face.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from tabrelay.calls.calls import Reply
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, RelayError, RelayUnavailable
from tabrelay.faces.mcp.body import CLIENT_GONE, BodyReader
from tabrelay.faces.mcp.event_store import EventStore, EventStream
from tabrelay.faces.mcp.jsonrpc import check_message, is_request
from tabrelay.faces.mcp.legacy import LegacyFace
from tabrelay.faces.mcp.sessions import Session
from tabrelay.http.exchange import Exchange, error_body
from tabrelay.routing.drain import Drain, unavailable
from tabserver.wire import eras, jsonrpc, methods

if TYPE_CHECKING:
    from tabrelay.faces.mcp.bus_sync import BusSync


class SseConnection:
    """One open stream, and the session that its client opened on it."""

    __slots__ = ("exchange", "is_closing", "principal", "server", "session", "stream", "tasks")

    def __init__(self, server: str, principal: Principal, stream: EventStream, exchange: Exchange) -> None:
        self.exchange = exchange
        self.server = server
        self.principal = principal
        self.stream = stream
        self.session: Session | None = None
        self.is_closing = False
        self.tasks: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self.is_closing and not self.tasks:
            self.stream.finish()

    def close(self) -> None:
        """The relay stops: end the stream once all requests are answered. Answers have no other way to the client."""
        self.is_closing = True
        if not self.tasks:
            self.stream.finish()


class SseFace:
    """Answers GET at `/{server}/sse` and POST at `/{server}/messages`."""

    def __init__(self, legacy: LegacyFace, body_reader: BodyReader, settings: Settings, drain: Drain) -> None:
        self._legacy = legacy
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._body_reader = body_reader
        self._max_streams = settings.max_sessions
        self._event_store = EventStore()
        self._connections: dict[str, SseConnection] = {}
        self._bus_sync: BusSync | None = None

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    # -- the stream ----------------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        if self._drain.is_on:
            raise unavailable()
        if len(self._connections) >= self._max_streams:
            raise BadRequest(
                f"The relay has {self._max_streams:,} open streams.", status=503, reason="too_many_sessions"
            )
        id = secrets.token_hex(16)
        stream = EventStream(id, self._event_store)
        connection = self._connections[id] = SseConnection(server, principal, stream, exchange)
        stream.reader = exchange
        exchange.watch(stream.wake)
        try:
            await exchange.start_stream()
            # A path without an origin, so that the client stays at the origin that it trusts.
            await exchange.named_event("endpoint", f"/{server}/messages?session_id={id}")
            await self._pump(exchange, stream)
        finally:
            exchange.unwatch()
            del self._connections[id]
            for task in connection.tasks:
                task.cancel()
            if connection.session is not None:
                self._legacy.leave(connection.session)
            stream.forget()
        await exchange.end_stream()

    async def _pump(self, exchange: Exchange, stream: EventStream) -> None:
        while not exchange.is_gone:
            for event in stream.after(stream.sent):
                stream.sent = event.seq
                await exchange.event(event.payload)
            if stream.is_over:
                return
            if not stream.after(stream.sent) and not await stream.wait(self._keepalive_s):
                await exchange.comment()

    # -- messages ------------------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, server: str, principal: Principal) -> None:
        query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
        ids = query.get("session_id", [])
        if len(ids) != 1 or len(ids[0]) != 32:
            raise BadRequest("Send messages to the address that the stream's endpoint event gave.", reason="no_session")
        connection = self._connections.get(ids[0])
        if connection is None and self._drain.is_on:
            raise _unavailable(unavailable())
        if connection is None and self._bus_sync is not None:
            await self._forward_post(exchange, {"session_id": ids[0], "server": server, "principal": principal.id})
            return
        if connection is None or connection.server != server or connection.principal.id != principal.id:
            raise _not_found()
        message = await self._body_reader.read(exchange)
        if message is CLIENT_GONE:
            return
        check_message(message)
        self._handle(exchange, connection, message)
        await _accepted(exchange)

    def share(self, bus_sync: BusSync) -> None:
        """A client's messages may arrive at another relay than the one that holds its stream."""
        self._bus_sync = bus_sync
        bus_sync.serve_streams(lambda asked: {} if self._find(asked) is not None else None, self._receive_post)

    def _find(self, asked: dict[str, Any]) -> SseConnection | None:
        connection = self._connections.get(str(asked.get("session_id")))
        if connection is None or (connection.server, connection.principal.id) != (
            asked.get("server"),
            asked.get("principal"),
        ):
            return None
        return connection

    def _receive_post(self, asked: dict[str, Any], message: dict[str, Any]) -> None:
        connection = self._find(asked)
        if connection is not None:
            self._handle(connection.exchange, connection, message)

    async def _forward_post(self, exchange: Exchange, where: dict[str, Any]) -> None:
        assert self._bus_sync is not None
        message = await self._body_reader.read(exchange)
        if message is CLIENT_GONE:
            return
        check_message(message)
        try:
            is_taken = await self._bus_sync.forward_post(where, message)
        except RelayUnavailable as error:
            raise _unavailable(error) from None
        if not is_taken:
            raise _not_found()
        await _accepted(exchange)

    def _handle(self, exchange: Exchange, connection: SseConnection, message: dict[str, Any]) -> None:
        if not is_request(message):
            if connection.session is not None:
                self._legacy.pass_on(connection.session, message)
            return
        connection.spawn(self._request(exchange, connection, message))

    async def _request(self, exchange: Exchange, connection: SseConnection, message: dict[str, Any]) -> None:
        try:
            if message["method"] == methods.INITIALIZE:
                connection.stream.add(await self._initialize(exchange, connection, message))
            elif connection.session is None:
                raise _too_early(message)
            else:
                await self._forward(exchange, connection, connection.session, message)
        except RelayError as error:
            connection.stream.add(error_body(error, message["id"], connection.server))

    async def _initialize(self, exchange: Exchange, connection: SseConnection, message: dict[str, Any]) -> bytes:
        if connection.session is not None:
            raise BadRequest("This session is already initialized.", reason="already_initialized")
        entry = self._legacy.entry(connection.server)
        started, initialization = self._legacy.initialize(
            exchange, entry, connection.principal, message, exchange.scope
        )
        body, session = initialization.open(await initialization.reply(await started.started()))
        # All messages of the session go to its only stream.
        session.streams.get_stream = connection.stream
        session.is_http_sse = True
        connection.session = session
        self._legacy.session_replay.listen(session)
        return body

    async def _forward(
        self, exchange: Exchange, connection: SseConnection, session: Session, message: dict[str, Any]
    ) -> None:
        known = self._legacy.calls.offline_answer(session, message)
        if known is not None:
            connection.stream.add(known)
            return
        entry = self._legacy.entry(session.server)
        pending = await self._legacy.calls.start(exchange, entry, session, message, exchange.scope).started()
        try:
            while True:
                event = await pending.next()
                if isinstance(event, Reply) or (event is not None and not event.ends_stream):
                    connection.stream.add(event.payload.encode())
                if isinstance(event, Reply):
                    return
        finally:
            pending.release()


async def _accepted(exchange: Exchange) -> None:
    await exchange.reply(202, b"Accepted", ((b"content-type", b"text/plain; charset=utf-8"),))


def _not_found() -> BadRequest:
    return BadRequest("Session not found. Open the stream again.", status=404, reason="session_not_found")


def _unavailable(error: RelayUnavailable) -> BadRequest:
    """Clients of this transport read a response body only if the status is an error."""
    return BadRequest(error.message, status=503, code=error.code, reason=error.reason)


def _too_early(message: dict[str, Any]) -> BadRequest:
    """A client that tries the modern era first must learn that this transport is legacy."""
    meta = (message.get("params") or {}).get("_meta") if isinstance(message.get("params"), dict) else None
    if isinstance(meta, dict) and eras.META_VERSION in meta:
        text = f'"{message["method"]}" is not supported here: this transport starts with initialize.'
        return BadRequest(text, code=jsonrpc.METHOD_NOT_FOUND, reason="method_not_found")
    return BadRequest(f"{message['method']} came before initialize.")
