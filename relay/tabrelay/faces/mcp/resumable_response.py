"""HTTP response of a call in a legacy session: one JSON body if the reply comes soon, else a resumable event stream.

Closing the connection does not cancel the call: its events are kept for a while in the session's event store, and the
client can resume with Last-Event-ID.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Notice, Pending, Reply
from tabrelay.errors import RelayError
from tabrelay.faces.mcp.event_store import EventStream, SessionStreams
from tabrelay.faces.mcp.modern_response import QUICK_REPLY_S
from tabrelay.http.exchange import Exchange, Header, error_body

STREAM_AFTER_S: Final = 0.5
RETRY_MS: Final = 500
# The first version whose clients accept an event with an id and no data; older parsers fail on it.
EVENT_ID_ONLY_SINCE: Final = "2025-11-25"


class ResumableResponses:
    """Sends responses of sessions. Keeps the tasks that store the events of calls whose client is gone."""

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(
        self,
        exchange: Exchange,
        pending: Pending,
        streams: SessionStreams,
        *,
        server: str,
        version: str,
        headers: tuple[Header, ...],
        prefers_stream: bool,
        stream_after_s: float = STREAM_AFTER_S,
    ) -> None:
        """Answer a POST with the outcome of its call. Raises a RelayError only while nothing was sent.

        `prefers_stream`: send even an immediate reply as a stream, for a client that wants to be able to resume every
        response. `stream_after_s`: start a stream after this time.
        """
        try:
            first = await pending.next(QUICK_REPLY_S)
        except RelayError:
            pending.release()
            raise
        if isinstance(first, Reply) and not prefers_stream:
            first = None
            await exchange.json(200, pending.body(), headers)
            pending.release()
            return
        can_pause = version >= EVENT_ID_ONLY_SINCE
        stream = streams.open(pending.call.id)
        stream.reader = exchange
        self._keep(_follow(pending, stream, server, first, can_pause=can_pause))
        exchange.watch(stream.wake)
        try:
            has_event = isinstance(first, Notice) and (can_pause or not first.ends_stream)
            if not has_event and not prefers_stream:
                await stream.wait(max(stream_after_s - QUICK_REPLY_S, 0.0))
            events = stream.after(0)
            if exchange.is_gone:
                return
            if stream.is_over and len(events) == 1 and not prefers_stream:
                await exchange.json(200, events[0].payload, headers)
                streams.drop(stream)
                return
            await exchange.start_stream(headers)
            if can_pause:
                await exchange.prime(stream.event_id(0), RETRY_MS)
            await self._pump(exchange, stream, 0)
        finally:
            _leave(exchange, stream)

    async def resume(self, exchange: Exchange, stream: EventStream, after: int, headers: tuple[Header, ...]) -> None:
        """Send the events after `after`, then new ones. The previous reader of the stream stops."""
        if stream.reader is not None:
            stream.wake()
        stream.reader = exchange
        exchange.watch(stream.wake)
        try:
            await exchange.start_stream(headers)
            # A comment at once: some HTTP stacks deliver the response to the client only with its first byte.
            await exchange.comment()
            await self._pump(exchange, stream, after)
        finally:
            _leave(exchange, stream)

    async def _pump(self, exchange: Exchange, stream: EventStream, cursor: int) -> None:
        while True:
            for event in stream.after(cursor):
                cursor = event.seq
                stream.sent = max(stream.sent, cursor)
                await exchange.event(event.payload, event.id)
            if exchange.is_gone or stream.reader is not exchange or stream.is_over:
                break
            if stream.is_paused:
                await exchange.retry(stream.retry_ms)
                break
            if not stream.after(cursor) and not await stream.wait(self._keepalive_s):
                await exchange.comment()
        await exchange.end_stream()

    def _keep(self, following: Any) -> None:
        task = asyncio.create_task(following)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _follow(
    pending: Pending, stream: EventStream, server: str, event: Notice | Reply | None, *, can_pause: bool
) -> None:
    """Store the events of a call until it is answered, with or without a reader."""
    try:
        while not isinstance(event, Reply):
            if event is not None and not event.ends_stream:
                stream.add(event.payload.encode())
            elif event is not None and can_pause:
                stream.pause(_retry_ms(event.payload))
            event = await pending.next()
        stream.add(event.body())
    except RelayError as error:
        stream.add(error_body(error, pending.call.id, server))
    finally:
        pending.release()
        stream.finish()


def _leave(exchange: Exchange, stream: EventStream) -> None:
    exchange.unwatch()
    if stream.reader is exchange:
        stream.reader = None
        stream.is_paused = False


def _retry_ms(payload: str) -> int | None:
    params = orjson.loads(payload).get("params")
    value = params.get("retryMs") if isinstance(params, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 600_000 else None
