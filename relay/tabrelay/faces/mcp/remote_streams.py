"""A session's stream that is read at another relay than the one that has it: a client that lost its connection may come
back to any of them (`Last-Event-ID`).

Which relay has a stream stands in the ids of its events. The one that the client reached asks it for what came after
the last, again and again, at the pace at which its client reads; so neither keeps more than the stream itself, and what
is lost with the bus is asked for again. The stream, and the call that it belongs to, stay where they are.
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
from tabrelay.faces.mcp.event_store import EventStream, StreamEvent, is_get_event, node_of
from tabrelay.faces.mcp.sessions import Session
from tabrelay.http.exchange import Exchange, Header, error_body
from tabrelay.routing.drain import InFlightCounter

# A relay with nothing new says so after this, and is taken for silent after that.
POLL_S: Final = 5.0
SILENT_S: Final = 7.0
# Nobody asked for more in this time: whoever read is gone.
READER_TIMEOUT_S: Final = 30.0
# Events that travel together, in bytes; one that is larger travels alone.
MAX_BATCH: Final = 512 * 1024
GONE: Final = "The relay that had this stream is gone, and the stream with it. What became of its call is not known."
TOO_OLD: Final = "This stream can't be taken up again: it is too old, or the relay was restarted."


@dataclass(slots=True, eq=False)
class RemoteReader:
    """Somebody at another relay who reads a stream of ours."""

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
        """Leave after this, if nobody reads on; None: stay."""
        if self.leaving is not None:
            self.leaving.cancel()
        self.leaving = None if delay_s is None else asyncio.get_running_loop().call_later(delay_s, self.leave)


class StreamServer:
    """Lends our streams to other relays."""

    def __init__(
        self, cluster: Membership, find: Callable[[str, str, str], Session | None], exchanges: InFlightCounter
    ) -> None:
        """`find(key, server, principal)`: that session, if its memory is here. `exchanges`: what a relay that stops
        waits for."""
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
        """Whoever read it before reads no longer."""
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
        # Also when all was said: until the other relay says that it has it, it may have to ask again.
        reader.leave_after(READER_TIMEOUT_S)
        ids = [event.id for event in batch]
        said = {"state": state, "events": ids, "retry": stream.retry_ms, "i": stream.request}
        self._answer(*reader_id, said, "\n".join(event.payload.decode() for event in batch))

    def _answer(self, node: str, number: int, said: dict[str, Any], payload: str | None = None) -> None:
        with suppress(BusDown):  # it asks again
            self._cluster.send(node, {**said, "op": "lent", "x": number}, payload)

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
    """Reads streams of other relays for clients of ours."""

    def __init__(self, cluster: Membership) -> None:
        self._cluster = cluster
        self._numbers = itertools.count(1)
        # By the number of the loan: whose it is, and who waits for the next answer.
        self._waiting: dict[int, tuple[str, asyncio.Future[StreamBatch | None]]] = {}
        self._closed = False
        cluster.handle("lent", self._receive_batch)
        cluster.on_lost.append(self._node_lost)
        cluster.on_up.append(self._ask_again)

    def remote_node(self, event: str) -> str | None:
        """The other relay whose stream this event is of; None if it is ours, or nobody's."""
        node = node_of(event)
        return None if node == self._cluster.id else node

    def close(self) -> None:
        """This relay stops: its readers go on elsewhere."""
        self._closed = True
        for number in list(self._waiting):
            self._resolve(number, None)

    async def resume(
        self, exchange: Exchange, session: Session, key: str, event: str, headers: tuple[Header, ...]
    ) -> bool:
        """Send what came after an event, then what comes; False, and nothing was sent, if this is a GET stream that is
        gone: then ours does. Raises what is to be said of any other."""
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
            except BadRequest:  # the bus is away; whoever comes back may reach that relay itself
                break
        if batch is None and request is not None and not exchange.is_gone and not self._closed:
            await exchange.event(error_body(BrowserGone(GONE), request, session.server))
        await exchange.end_stream()

    async def _request_batch(self, node: str, number: int, asked: dict[str, Any]) -> StreamBatch | None:
        """None: that relay is gone, or nobody wants to know any more. Raises when it can't be asked."""
        while node in self._cluster.nodes and not self._closed:
            waiting: asyncio.Future[StreamBatch | None] = asyncio.get_running_loop().create_future()
            self._waiting[number] = node, waiting
            try:
                self._cluster.send(node, asked)
                async with asyncio.timeout(SILENT_S):
                    said = await waiting
                if said is not RETRY:
                    return said
            except BusDown:
                raise _unavailable(unreachable()) from None
            except TimeoutError:
                continue
            finally:
                del self._waiting[number]
        return None

    def _receive_batch(self, node: str, header: dict[str, Any], payload: str | None) -> None:
        number = header.get("x")
        if isinstance(number, int) and self._waiting.get(number, ("", None))[0] == node:
            self._resolve(number, (header, payload or ""))

    def _resolve(self, number: int, batch: StreamBatch | None) -> None:
        _, waiting = self._waiting.get(number, ("", None))
        if waiting is not None and not waiting.done():
            waiting.set_result(batch)

    def _ask_again(self) -> None:
        """The bus was away, and with it the answers."""
        for number in self._waiting:
            self._resolve(number, RETRY)

    def _node_lost(self, node: str) -> None:
        for number, (lender, _) in list(self._waiting.items()):
            if lender == node:
                self._resolve(number, None)


def _unavailable(error: RelayUnavailable) -> BadRequest:
    """A body is read in answer to a GET only when the status is an error."""
    again = ((b"retry-after", b"1"),)
    return BadRequest(error.message, status=503, code=error.code, reason=error.reason, headers=again)


def _batch(events: list[StreamEvent]) -> list[StreamEvent]:
    """As many as travel together, and one at least."""
    size = 0
    batch: list[StreamEvent] = []
    for event in events:
        size += len(event.payload)
        if batch and size > MAX_BATCH:
            break
        batch.append(event)
    return batch
