"""HTTP+SSE, the transport of 2024-11-05: one stream from us at `/{server}/sse`, and messages POSTed beside it.

The stream is the session: when it closes, the session ends, and nothing can be taken up again. What a message means is
the handshake face's business.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Coroutine
from typing import Any
from urllib.parse import parse_qs

from tabrelay.calls.calls import Reply
from tabrelay.calls.principal import Principal
from tabrelay.config.settings import Settings
from tabrelay.errors import BadRequest, RelayError, RelayUnavailable
from tabrelay.faces.mcp.body import NOTHING, BodyReader
from tabrelay.faces.mcp.bus_sync import BusSync
from tabrelay.faces.mcp.event_store import EventStore, EventStream
from tabrelay.faces.mcp.jsonrpc import check_message, is_request
from tabrelay.faces.mcp.legacy import LegacyFace
from tabrelay.faces.mcp.sessions import Session
from tabrelay.http.exchange import Exchange, error_body
from tabrelay.routing.drain import Drain, unavailable
from tabserver.wire import eras, jsonrpc, methods


class SseSession:
    """One open stream, and the session that its client began on it."""

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
        """The relay stops: end when what was asked is answered. There is no other way for an answer to go."""
        self.is_closing = True
        if not self.tasks:
            self.stream.finish()


class SseFace:
    """Answers GET at `/{server}/sse` and POST at `/{server}/messages`."""

    def __init__(self, handshake: LegacyFace, mailbox: BodyReader, settings: Settings, drain: Drain) -> None:
        self._handshake = handshake
        self._drain = drain
        self._keepalive_s = settings.keepalive_s
        self._mailbox = mailbox
        self._most = settings.max_sessions
        self._memory = EventStore()
        self._pipes: dict[str, SseSession] = {}
        self._sharing: BusSync | None = None

    def close(self) -> None:
        for pipe in self._pipes.values():
            pipe.close()

    # -- the stream ---------------------------------------------------------------------------------------------------

    async def get(self, exchange: Exchange, server: str, principal: Principal) -> None:
        self._drain.admit()
        if len(self._pipes) >= self._most:
            raise BadRequest(f"The relay has {self._most:,} open streams.", status=503, reason="too_many_sessions")
        id = secrets.token_hex(16)
        stream = EventStream(id, self._memory)
        pipe = self._pipes[id] = SseSession(server, principal, stream, exchange)
        stream.reader = exchange
        exchange.watch(stream.wake)
        try:
            await exchange.start_stream()
            # A path and no address: the client then stays at the origin that it trusts.
            await exchange.named_event("endpoint", f"/{server}/messages?session_id={id}")
            await self._pump(exchange, stream)
        finally:
            exchange.unwatch()
            del self._pipes[id]
            for task in pipe.tasks:
                task.cancel()
            if pipe.session is not None:
                self._handshake.leave(pipe.session)
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

    # -- messages -----------------------------------------------------------------------------------------------------

    async def post(self, exchange: Exchange, server: str, principal: Principal) -> None:
        query = parse_qs(exchange.scope.get("query_string", b"").decode("latin-1"))
        ids = query.get("session_id", [])
        if len(ids) != 1 or len(ids[0]) != 32:
            raise BadRequest("Send messages to the address that the stream's endpoint event gave.", reason="no_session")
        pipe = self._pipes.get(ids[0])
        if pipe is None and self._drain.is_on:
            raise _unavailable(unavailable())
        if pipe is None and self._sharing is not None:
            await self._pass(exchange, {"session_id": ids[0], "server": server, "principal": principal.id})
            return
        if pipe is None or pipe.server != server or pipe.principal.id != principal.id:
            raise _not_found()
        message = await self._mailbox.read(exchange)
        if message is NOTHING:
            return
        check_message(message)
        self._take(exchange, pipe, message)
        await _accepted(exchange)

    def share(self, sharing: BusSync) -> None:
        """A client's messages may come in at another relay than the one that has its stream."""
        self._sharing = sharing
        sharing.streams(lambda asked: {} if self._asked_for(asked) is not None else None, self._posted)

    def _asked_for(self, asked: dict[str, Any]) -> SseSession | None:
        pipe = self._pipes.get(str(asked.get("session_id")))
        if pipe is None or (pipe.server, pipe.principal.id) != (asked.get("server"), asked.get("principal")):
            return None
        return pipe

    def _posted(self, asked: dict[str, Any], message: dict[str, Any]) -> None:
        pipe = self._asked_for(asked)
        if pipe is not None:
            self._take(pipe.exchange, pipe, message)

    async def _pass(self, exchange: Exchange, where: dict[str, Any]) -> None:
        assert self._sharing is not None
        message = await self._mailbox.read(exchange)
        if message is NOTHING:
            return
        check_message(message)
        try:
            is_taken = await self._sharing.post(where, message)
        except RelayUnavailable as error:
            raise _unavailable(error) from None
        if not is_taken:
            raise _not_found()
        await _accepted(exchange)

    def _take(self, exchange: Exchange, pipe: SseSession, message: dict[str, Any]) -> None:
        if not is_request(message):
            if pipe.session is not None:
                self._handshake.pass_on(pipe.session, message)
            return
        pipe.spawn(self._request(exchange, pipe, message))

    async def _request(self, exchange: Exchange, pipe: SseSession, message: dict[str, Any]) -> None:
        try:
            if message["method"] == methods.INITIALIZE:
                pipe.stream.add(await self._initialize(exchange, pipe, message))
            elif pipe.session is None:
                raise _too_early(message)
            else:
                await self._forward(exchange, pipe, pipe.session, message)
        except RelayError as error:
            pipe.stream.add(error_body(error, message["id"], pipe.server))

    async def _initialize(self, exchange: Exchange, pipe: SseSession, message: dict[str, Any]) -> bytes:
        if pipe.session is not None:
            raise BadRequest("This session is initialized already.", reason="already_initialized")
        body, session = await self._handshake.initialize(exchange, pipe.server, pipe.principal, message)
        # Whatever the session says goes to its only stream.
        session.streams.standing = pipe.stream
        session.is_pipe = True
        pipe.session = session
        self._handshake.briefing.listen(session)
        return body

    async def _forward(self, exchange: Exchange, pipe: SseSession, session: Session, message: dict[str, Any]) -> None:
        known = self._handshake.recall(session, message)
        if known is not None:
            pipe.stream.add(known)
            return
        pending = await self._handshake.start(exchange, session, message)
        try:
            while True:
                event = await pending.next()
                if isinstance(event, Reply) or (event is not None and not event.ends_stream):
                    pipe.stream.add(event.payload.encode())
                if isinstance(event, Reply):
                    return
        finally:
            pending.release()


async def _accepted(exchange: Exchange) -> None:
    await exchange.reply(202, b"Accepted", ((b"content-type", b"text/plain; charset=utf-8"),))


def _not_found() -> BadRequest:
    return BadRequest("Session not found. Open the stream again.", status=404, reason="session_not_found")


def _unavailable(error: RelayUnavailable) -> BadRequest:
    """A body is read in this transport only when the status is an error."""
    return BadRequest(error.message, status=503, code=error.code, reason=error.reason)


def _too_early(message: dict[str, Any]) -> BadRequest:
    """A client that tries the modern era first must learn that this pipe is of the other one."""
    meta = (message.get("params") or {}).get("_meta") if isinstance(message.get("params"), dict) else None
    if isinstance(meta, dict) and eras.META_VERSION in meta:
        text = f'"{message["method"]}" is not known here: this transport begins with initialize.'
        return BadRequest(text, code=jsonrpc.METHOD_NOT_FOUND, reason="method_not_found")
    return BadRequest(f"{message['method']} came before initialize.")
