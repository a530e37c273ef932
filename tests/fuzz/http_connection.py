"""HTTP/1.1 connections: the relay's, with and without its fast path, against h11.

All get the same reads. With and without the fast path the same requests must have the same outcome. Compared with h11,
the relay may refuse more; what it accepts, h11 must accept with the same method, target and body. Known differences, in
which the relay accepts what h11 refuses and the framing is the same:

- no Host, or several: the relay reads the request, and the gate refuses it. It also reads what follows.

An empty query (`/notes?`) equals none: an ASGI scope does not distinguish them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import h11
import uvicorn
from uvicorn.server import ServerState

from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tests.fuzz.fast_path import FakeFastPath, has_one_host
from tests.fuzz.slicing import sliced
from tests.fuzz.transport import FakeTransport, settle

Request = tuple[bytes, bytes, bytes]  # method, target, body
MAX_HEADER: Final = 4 * 1024
MAX_AHEAD: Final = 64 * 1024


class WithFastPath(HttpProtocol):
    max_header = MAX_HEADER


class WithoutFastPath(HttpProtocol):
    max_header = MAX_HEADER
    fast_path = None


def check(data: bytes) -> None:
    reads = sliced(data)
    fast, regular = _loop.run_until_complete(_both(reads))
    assert fast == regular, f"with the fast path {fast}, without {regular}"
    requests, _, comparable = regular
    requests = requests[:comparable]
    expected = _by_h11(reads)
    assert requests == expected[: len(requests)], f"the relay read {requests}, h11 {expected}"


_loop: Final = asyncio.new_event_loop()
End = tuple[list[Request], list[int], int | None]


async def _both(reads: list[bytes]) -> tuple[End, End]:
    return await _by_relay(reads, WithFastPath), await _by_relay(reads, WithoutFastPath)


async def _by_relay(reads: list[bytes], kind: type[HttpProtocol]) -> End:
    """The requests in order, the status of each answer, and how many requests can be compared with h11's."""
    app = _Application()
    fast_path = FakeFastPath(app.requests)
    config = uvicorn.Config(app, http=kind, lifespan="off", log_config=None, access_log=False)
    config.load()
    kind.fast_path = fast_path if kind is WithFastPath else None
    connection, transport = kind(config, ServerState(), {}), FakeTransport()
    connection.connection_made(transport)
    for data in reads:
        if data and not transport.is_closed and not transport.is_half_closed and transport.protocol is None:
            connection.data_received(data)
            await settle()
    await settle()
    statuses = _statuses(bytes(transport.written))
    (transport.protocol or connection).connection_lost(None)
    await settle()
    return app.requests, statuses, app.comparable


class _Application:
    """An ASGI application that reads a request whole, and answers."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.comparable: int | None = None  # up to the first of the known differences

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await receive()
            await send({"type": "websocket.close"})
            return
        body = b""
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return  # it is incomplete
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if self.comparable is None and not has_one_host(scope["headers"]):
            self.comparable = len(self.requests)
        query = b"?" + scope["query_string"] if scope["query_string"] else b""
        self.requests.append((scope["method"].encode(), scope["raw_path"] + query, body))
        headers = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


def _statuses(written: bytes) -> list[int]:
    """The statuses of all answers in the written bytes."""
    return [int(line[9:12]) for line in written.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


def _by_h11(reads: Sequence[bytes]) -> list[Request]:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEADER + MAX_AHEAD)
    found: list[Request] = []
    method, target, body = b"", b"", b""
    try:
        for data in reads:
            if data:
                connection.receive_data(data)
            while True:
                event = connection.next_event()
                if event is h11.NEED_DATA:
                    break
                if event is h11.PAUSED:
                    if connection.our_state is h11.SEND_RESPONSE or connection.our_state is h11.SEND_BODY:
                        _answer(connection)
                    if connection.our_state is h11.DONE and connection.their_state is h11.DONE:
                        connection.start_next_cycle()
                        continue
                    return found
                if isinstance(event, h11.Request):
                    method, target, body = event.method, event.target, b""
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    found.append((method, _origin_form(target), body))
                    _answer(connection)
                    if connection.our_state is not h11.DONE or connection.their_state is not h11.DONE:
                        return found
                    connection.start_next_cycle()
    except h11.RemoteProtocolError:
        pass
    return found


def _origin_form(target: bytes) -> bytes:
    """RFC 9112, 3.2.2: the target of an absolute address, as the relay's application gets it."""
    target = target.removesuffix(b"?") if target.count(b"?") == 1 else target  # ASGI can't express an empty query
    if target.startswith(b"/"):
        return target
    _, _, rest = target.partition(b"://")
    _, slash, path = rest.partition(b"/")
    return slash + path


def _answer(connection: h11.Connection) -> None:
    """A request for another protocol is not granted, as in the relay."""
    status = 405 if str(connection.their_state) == "MIGHT_SWITCH_PROTOCOL" else 200
    connection.send(h11.Response(status_code=status, headers=[("content-length", "0")]))
    connection.send(h11.EndOfMessage())
