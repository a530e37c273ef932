"""Resuming a session's event stream at another relay than the one that holds it (`Last-Event-ID`).

An event id names the relay that holds the stream. The relay that the client reached requests batches of events after
the last one, at the pace at which its client reads. So neither side buffers more than the stream itself, and batches
that are lost with the bus are requested again. The stream and its call stay where they are.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.bus.bus import BusDown
from tabrelay.bus.errors import unreachable
from tabrelay.bus.members import Membership
from tabrelay.errors import BadRequest, BrowserGone, RelayUnavailable
from tabrelay.faces.mcp.event_store import TOO_OLD, EventStream, StreamEvent, is_get_event, node_of
from tabrelay.faces.mcp.sessions import Session
from tabrelay.http.exchange import Exchange, Header, error_body
from tabrelay.routing.drain import InFlightCounter

# A relay without new events answers after POLL_S; one that has not answered after SILENT_S is asked again.
POLL_S: Final = 5.0
SILENT_S: Final = 7.0
# A reader that requests nothing for this long is considered gone.
READER_TIMEOUT_S: Final = 30.0
# Bytes of events in one batch; a larger event is sent alone.
MAX_BATCH: Final = 512 * 1024
GONE: Final = "The relay that held this stream is gone, and the stream with it. The outcome of its call is unknown."


@dataclass(slots=True, eq=False)
class RemoteReader:
    """A client at another relay that reads a stream of this one."""

    stream: EventStream
    on_leave: Callable[[], None]
    leaving: asyncio.TimerHandle | None = None

    def leave(self) -> None:
        self.leave_after(None)
        self.on_leave()
        if self.stream.reader is self:
            self.stream.reader = None
            self.stream.is_paused = False

    def leave_after(self, delay_s: float | None) -> None:
        """Leave after this time unless more is requested; None: stay."""
        if self.leaving is not None:
            self.leaving.cancel()
        self.leaving = None if delay_s is None else asyncio.get_running_loop().call_later(delay_s, self.leave)


class StreamServer:
    """Serves streams of this relay to other relays."""

    def __init__(
        self, cluster: Membership, find: Callable[[str, str, str], Session | None], exchanges: InFlightCounter
    ) -> None:
        """`find(key, server, principal)`: that session, if it is in memory. `exchanges`: what a drain waits for."""
        self._cluster = cluster
        self._find = find
        self._exchanges = exchanges
        self._readers: dict[tuple[str, int], RemoteReader] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        cluster.handle("read", self._read)
        cluster.handle("left", self._reader_left)
        cluster.on_lost.append(self._node_lost)

    def _read(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        asked = [header.get(key) for key in ("k", "s", "p", "e")]
        number = header.get("x")
        if not isinstance(number, int) or not all(isinstance(text, str) for text in asked):
            return
        key, server, principal, event = (str(text) for text in asked)
        session = self._find(key, server, principal)
        found = session.streams.find(event) if session is not None else None
        if found is None:
            self._answer(node, number, {"state": "unknown"})
            return
        task = asyncio.create_task(self._serve((node, number), *found, is_first=header.get("first") is True))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader_id: tuple[str, int], stream: EventStream, after: int, *, is_first: bool) -> None:
        if is_first and reader_id not in self._readers:
            self._add_reader(reader_id, stream)
        reader = self._readers.get(reader_id)
        if reader is not None and not is_first:
            reader.leave_after(None)
            if not stream.after(after) and not stream.is_over and not stream.is_paused:
                await stream.wait(POLL_S)
        if reader is not None and stream.reader is reader:
            self._send_batch(reader_id, reader, after)
            return
        if reader is not None:
            reader.leave()
        self._answer(*reader_id, {"state": "taken"})

    def _add_reader(self, reader_id: tuple[str, int], stream: EventStream) -> None:
        """Make this the reader of the stream. The previous reader stops."""
        is_call = stream.request is not None
        if is_call:
            self._exchanges.__enter__()

        def leave() -> None:
            if self._readers.pop(reader_id, None) is not None and is_call:
                self._exchanges.__exit__()

        stream.wake()
        stream.reader = self._readers[reader_id] = RemoteReader(stream, leave)

    def _send_batch(self, reader_id: tuple[str, int], reader: RemoteReader, after: int) -> None:
        stream, batch = reader.stream, _batch(reader.stream.after(after))
        stream.sent = max(stream.sent, batch[-1].seq if batch else 0)
        is_all = not batch or not stream.after(batch[-1].seq)
        state = "open"
        if is_all and (stream.is_over or stream.is_paused):
            state = "over" if stream.is_over else "paused"
        # Also at the end of the stream: until the other relay confirms with "left", it may have to request this again.
        reader.leave_after(READER_TIMEOUT_S)
        ids = [event.id for event in batch]
        fields = {"state": state, "events": ids, "retry": stream.retry_ms, "i": stream.request}
        self._answer(*reader_id, fields, "\n".join(event.payload.decode() for event in batch))

    def _answer(self, node: str, number: int, fields: dict[str, Any], payload: str | None = None) -> None:
        with suppress(BusDown):  # the other relay asks again
            self._cluster.send(node, {**fields, "op": "lent", "x": number}, payload)

    def _reader_left(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        number = header.get("x")
        reader = self._readers.get((node, number)) if isinstance(number, int) else None
        if reader is not None:
            reader.leave()

    def _node_lost(self, node: str) -> None:
        for reader_id, reader in list(self._readers.items()):
            if reader_id[0] == node:
                reader.leave()


StreamBatch = tuple[dict[str, Any], str]
RETRY: Final[StreamBatch] = ({}, "")


class StreamReader:
    """Reads streams of other relays for clients of this one."""

    def __init__(self, cluster: Membership) -> None:
        self._cluster = cluster
        self._numbers = itertools.count(1)
        # By reader number: the node that holds the stream, and the future of its next answer.
        self._waiting: dict[int, tuple[str, asyncio.Future[StreamBatch | None]]] = {}
        self._closed = False
        cluster.handle("lent", self._receive_batch)
        cluster.on_lost.append(self._node_lost)
        cluster.on_up.append(self._ask_again)

    def remote_node(self, event: str) -> str | None:
        """The other relay that holds this event's stream; None if it is this one, or the id names none."""
        node = node_of(event)
        return None if node == self._cluster.id else node

    def close(self) -> None:
        """This relay stops: its clients resume at another relay."""
        self._closed = True
        for number in list(self._waiting):
            self._resolve(number, None)

    async def resume(
        self, exchange: Exchange, session: Session, key: str, event: str, headers: tuple[Header, ...]
    ) -> bool:
        """Send the events after this one, then new ones. False, and nothing was sent, if this is a GET stream that is
        gone: the stream of this relay takes its place. Raises BadRequest for any other stream that is gone."""
        node, number = self.remote_node(event) or "", next(self._numbers)
        asked = {"op": "read", "x": number, "k": key, "s": session.server, "p": session.caller.principal}
        try:
            first = await self._request_batch(node, number, {**asked, "e": event, "first": True})
            if first is None or first[0].get("state") in ("unknown", "taken"):
                if is_get_event(event):
                    return False
                raise BadRequest(GONE if first is None else TOO_OLD, reason="unknown_event")
            exchange.watch(lambda: self._resolve(number, None))
            await exchange.start_stream(headers)
            await exchange.comment()
            await self._pump(exchange, session, node, number, {**asked, "e": event}, first)
        finally:
            exchange.unwatch()
            with suppress(BusDown):
                self._cluster.send(node, {"op": "left", "x": number})
        return True

    async def _pump(
        self,
        exchange: Exchange,
        session: Session,
        node: str,
        number: int,
        asked: dict[str, Any],
        batch: StreamBatch | None,
    ) -> None:
        request = batch[0].get("i") if batch is not None else None
        while batch is not None:
            header, payload = batch
            for id, event in zip(header.get("events", ()), payload.split("\n"), strict=False):
                asked["e"] = id
                await exchange.event(event.encode(), id)
            if header.get("state") == "paused":
                await exchange.retry(header.get("retry"))
            if header.get("state") != "open" or exchange.is_gone or self._closed:
                break
            if not header.get("events"):
                await exchange.comment()
            try:
                batch = await self._request_batch(node, number, asked)
            except BadRequest:  # the bus stays down; a client that resumes may reach the other relay directly
                break
        if batch is None and request is not None and not exchange.is_gone and not self._closed:
            await exchange.event(error_body(BrowserGone(GONE), request, session.server))
        await exchange.end_stream()

    async def _request_batch(self, node: str, number: int, asked: dict[str, Any]) -> StreamBatch | None:
        """None: that relay is gone, or this one stops. Raises if it can't be asked: for the first batch immediately,
        later if the bus stays down."""
        while node in self._cluster.nodes and not self._closed:
            waiting: asyncio.Future[StreamBatch | None] = asyncio.get_running_loop().create_future()
            self._waiting[number] = node, waiting
            is_sent = self._send(node, asked)
            try:
                if not is_sent and asked.get("first"):
                    raise _unavailable(unreachable())
                async with asyncio.timeout(SILENT_S):
                    batch = await waiting
                if batch is not RETRY:
                    return batch
            except TimeoutError:
                if not is_sent:
                    raise _unavailable(unreachable()) from None
            finally:
                del self._waiting[number]
        return None

    def _send(self, node: str, message: dict[str, Any]) -> bool:
        """False: the bus is down."""
        try:
            self._cluster.send(node, message)
        except BusDown:
            return False
        return True

    def _receive_batch(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        number = header.get("x")
        if isinstance(number, int) and self._waiting.get(number, ("", None))[0] == node:
            self._resolve(number, (header, payload or ""))

    def _resolve(self, number: int, batch: StreamBatch | None) -> None:
        _, waiting = self._waiting.get(number, ("", None))
        if waiting is not None and not waiting.done():
            waiting.set_result(batch)

    def _ask_again(self) -> None:
        """The bus was down, and answers were lost: ask again."""
        for number in self._waiting:
            self._resolve(number, RETRY)

    def _node_lost(self, node: str) -> None:
        for number, (lender, _) in list(self._waiting.items()):
            if lender == node:
                self._resolve(number, None)


def _unavailable(error: RelayUnavailable) -> BadRequest:
    """Clients read a body in response to a GET only if the status is an error."""
    again = ((b"retry-after", b"1"),)
    return BadRequest(error.message, status=503, code=error.code, reason=error.reason, headers=again)


def _batch(events: list[StreamEvent]) -> list[StreamEvent]:
    """The events of one batch, at least one."""
    size = 0
    batch: list[StreamEvent] = []
    for event in events:
        size += len(event.payload)
        if batch and size > MAX_BATCH:
            break
        batch.append(event)
    return batch
