"""Every limit of the relay: exceeding it gives the documented error, and the next call works."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tabrelay.peers.browsers.writer import SocketWriter
from tabserver.wire import jsonrpc
from tabserver.wire.errors import MessageTooLarge
from tabserver.wire.events import Received, Welcomed
from tabserver.wire.frames import SUBPROTOCOL, Kind
from tests.support.fake_clock import Clock
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S, pause


def keep(worker: SyntheticWorker) -> list[Received[str]]:
    """Answer no call until the test does."""
    waiting: list[Received[str]] = []
    worker.on_call = lambda worker, event, message: waiting.append(event)
    return waiting


async def answer_all(worker: SyntheticWorker, waiting: list[Received[str]]) -> None:
    for event in waiting:
        worker.answer(event, {"content": []})
    await worker.flush()


def refusal(body: dict[str, Any]) -> tuple[int, str, str, bool]:
    error = body["error"]
    return (error["code"], error["data"]["reason"], error["data"]["delivered"], error["data"]["retryable"])


async def works(relay: RunningRelay, worker: SyntheticWorker) -> bool:
    """The limit has ended one call, not the connection."""
    worker.on_call = SyntheticWorker.echo
    sockets = [event for event in worker.seen if isinstance(event, Welcomed)]
    body = (await relay.call("notes", "echo", {"n": 1})).json()
    return len(sockets) == 1 and body["result"]["content"][0]["text"] == '{"n": 1}'


BUSY = (-31013, "busy", "no", True)


async def test_calls_in_flight_at_a_server(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, in_flight_server=3) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        waiting = keep(worker)
        running = [asyncio.create_task(relay.call("notes", "slow")) for _ in range(3)]
        await worker.until(lambda: len(waiting) == 3)
        assert refusal((await relay.call("notes", "slow")).json()) == BUSY
        await answer_all(worker, waiting)
        assert ["result" in response.json() for response in await asyncio.gather(*running)] == [True] * 3
        assert await works(relay, worker)


async def test_calls_in_flight_of_a_session(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, in_flight_caller=2) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        (_, first), (_, second) = await relay.initialize("notes"), await relay.initialize("notes")
        waiting = keep(worker)

        def call(headers: dict[str, str], id: int) -> asyncio.Task[Any]:
            body = jsonrpc.request(id, "tools/call", {"name": "slow", "arguments": {}})
            return asyncio.create_task(relay.http.post("/notes", json=body, headers=headers))

        running = [call(first, 1), call(first, 2)]
        await worker.until(lambda: len(waiting) == 2)
        assert refusal((await call(first, 3)).json()) == BUSY
        # Another session, and a caller without one, are not affected.
        running += [call(second, 1), asyncio.create_task(relay.call("notes", "slow"))]
        await worker.until(lambda: len(waiting) == 4)
        await answer_all(worker, waiting)
        assert {(await response).status_code for response in running} == {200}
        again = call(first, 4)
        await worker.until(lambda: len(waiting) == 5)
        await answer_all(worker, waiting[4:])
        assert "result" in (await again).text
        assert await works(relay, worker)


async def test_the_replay_buffer_of_a_link(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, replay_messages=6, max_body=1 << 20) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        assert await works(relay, worker)
        # A browser that reads nothing acknowledges nothing.
        worker.pause()
        running = [asyncio.create_task(relay.call("notes", "echo", {"n": 1})) for _ in range(12)]
        done, waiting = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        assert {refusal(task.result().json()) for task in done} == {BUSY}
        worker.resume()
        answers = [(await task).json() for task in waiting]
        assert all("result" in answer or refusal(answer) == BUSY for answer in answers)
        assert any("result" in answer for answer in answers)
        assert await works(relay, worker)


@pytest.mark.parametrize("limit", ["replay_bytes", "replay_budget"])
async def test_the_memory_of_a_link_and_of_all_links_together(tmp_path: Path, limit: str) -> None:
    settings: dict[str, Any] = {limit: 20_000}
    async with (
        RunningRelay(tmp_path, **settings) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        assert await works(relay, worker)
        worker.pause()
        running = [asyncio.create_task(relay.call("notes", "echo", {"n": "x" * 4000})) for _ in range(8)]
        done, waiting = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        assert {refusal(task.result().json()) for task in done} == {BUSY}
        worker.resume()
        answers = [(await task).json() for task in waiting]
        assert any("result" in answer for answer in answers)
        assert await works(relay, worker)


async def test_listeners_do_not_take_the_place_of_calls(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, in_flight_server=2) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        received: list[Received[str]] = []
        worker.on_listen = received.append
        params = {"notifications": {"toolsListChanged": True}}
        listening = [
            asyncio.create_task(relay.http.post("/notes", **relay.modern("subscriptions/listen", params)))
            for _ in range(3)
        ]
        await worker.until(lambda: len(received) == 3)
        assert await works(relay, worker)
        for task in listening:
            task.cancel()
        await asyncio.gather(*listening, return_exceptions=True)


async def test_a_request_body(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_body=2000) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        response = await relay.call("notes", "echo", {"text": "x" * 2000})
        assert response.status_code == 413
        assert refusal(response.json()) == (-32600, "too_large", "no", False)
        assert await works(relay, worker)


async def test_a_request_that_fits_through_http_but_not_through_the_link(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_message=2000, max_part=1000) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        response = await relay.call("notes", "echo", {"text": "x" * 2000})
        assert response.status_code == 413
        assert refusal(response.json()) == (-32600, "too_large", "no", False)
        assert await works(relay, worker)


async def test_a_result_that_is_too_large_for_the_link(tmp_path: Path) -> None:
    def answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        """As the browser's MCP core does: the link refuses the result, and the caller gets an error."""
        try:
            worker.answer(event, {"content": [{"type": "text", "text": "x" * 3000}]})
        except MessageTooLarge as error:
            data = {"reason": "result_too_large", "delivered": "unknown", "retryable": False, "help": "TR105"}
            worker.send(event, Kind.RES, jsonrpc.error_message(message["id"], -31014, str(error), data))

    async with (
        RunningRelay(tmp_path, max_message=2000, max_part=1000) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        worker.on_call = answer
        body = (await relay.call("notes", "large")).json()
        assert refusal(body) == (-31014, "result_too_large", "unknown", False)
        assert await works(relay, worker)


async def test_a_call_that_takes_too_long(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, call_deadline_s=2.0) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        keep(worker)
        assert refusal((await relay.call("notes", "slow")).json()) == (-31012, "timeout", "unknown", False)
        assert await works(relay, worker)


async def test_a_call_for_a_browser_that_stays_away(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, servers=("notes",), away_wait_s=0.1) as relay:
        assert refusal((await relay.call("notes", "echo")).json()) == (-31010, "server_offline", "no", True)
        async with SyntheticWorker(relay.url, relay.token, "notes") as worker:
            assert await works(relay, worker)


async def test_silence_on_an_event_stream_is_filled(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, keepalive_s=0.05) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        _, headers = await relay.initialize("notes", "2025-06-18")
        waiting = keep(worker)
        body = jsonrpc.request(1, "tools/call", {"name": "slow", "arguments": {}})
        async with relay.http.stream("POST", "/notes", json=body, headers=headers) as stream:
            lines = stream.aiter_lines()
            assert [await anext(lines) for _ in range(5)] == [": ping", "", ": ping", "", ": ping"]
            await answer_all(worker, waiting)
            rest = [line async for line in lines]
        assert json.loads(events("\n".join(rest))[0])["result"] == {"content": []}
        assert await works(relay, worker)


@pytest.mark.parametrize(("text", "reason"), [("{" + "x" * 200, "at most 100 characters"), (None, "no hello within")])
async def test_a_first_frame_that_is_too_large_or_too_late(tmp_path: Path, text: str | None, reason: str) -> None:
    async with RunningRelay(tmp_path, max_hello=100, hello_deadline_s=0.2, no_auth=True) as relay:
        stranger = await connect(
            relay.url.replace("http", "ws") + "/notes", subprotocols=[Subprotocol(SUBPROTOCOL)], proxy=None
        )
        if text is not None:
            await stranger.send(text)
        assert await closed(stranger) == (4400, True) and reason in (stranger.close_reason or "")
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        assert await works(relay, worker)


async def closed(connection: ClientConnection) -> tuple[int | None, bool]:
    try:
        while True:
            await connection.recv()
    except ConnectionClosed as end:
        return connection.close_code, end.rcvd is not None


async def test_a_browser_that_reads_too_slowly_loses_its_socket_and_not_its_calls(tmp_path: Path) -> None:
    async with (
        # Slices would wait until the browser has read the first of them.
        RunningRelay(tmp_path, send_queue=64 * 1024, send_timeout_s=1.0, max_part=1 << 20) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        assert await works(relay, worker)
        worker.pause()
        # More than the buffers of both kernels and of the server can hold.
        text = "x" * 400_000
        running = [asyncio.create_task(relay.call("notes", "echo", {"n": n, "text": text})) for n in range(40)]
        while (await relay.http.get("/-/status")).json()["servers"][0]["state"] == "online":
            await pause()
        assert not any(task.done() for task in running)
        await worker.dropped()
        await worker.dial()
        answers = [(await task).json()["result"]["content"][0]["text"] for task in running]
        assert [json.loads(answer)["n"] for answer in answers] == list(range(40))
        assert [event.resumed for event in worker.seen if isinstance(event, Welcomed)] == [False, True]
        assert len(worker.calls) == 41


class SlowWire:
    """An ASGI `send` that accepts each frame when the test permits it."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.may_go = asyncio.Event()

    async def send(self, message: Any) -> None:
        await self.may_go.wait()
        self.sent.append(message.get("text", message.get("code")))


async def test_a_full_queue_is_forgiven_when_it_empties_in_time() -> None:
    wire = SlowWire()
    writer = SocketWriter(wire.send, queue_bytes=10, timeout_s=30)
    running = asyncio.create_task(writer.run())
    for text in ("a" * 20, "b" * 20):
        writer.write([(text, None)])
    wire.may_go.set()
    writer.close(1000, "done")
    await running
    assert wire.sent == ["a" * 20, "b" * 20, 1000]


async def test_a_frame_that_does_not_leave_in_time_is_dropped_and_bye_is_sent() -> None:
    wire = SlowWire()

    def on_slow(writer: SocketWriter) -> None:
        wire.may_go.set()
        writer.write([("bye", None)])
        writer.close(4408, "slow")

    writer = SocketWriter(wire.send, queue_bytes=10, timeout_s=0.05, on_slow=on_slow)
    writer.write([("a" * 20, None)])
    await writer.run()
    assert wire.sent == ["bye", 4408]


@pytest.mark.parametrize(("frame_s", "outcome"), [(3, 4408), (1, 1000)])
async def test_a_browser_that_reads_but_falls_behind_is_slow_only_below_the_rate(frame_s: float, outcome: int) -> None:
    clock, sent = Clock(), list[Any]()

    async def send(message: Any) -> None:
        if "code" not in message:
            clock.now += frame_s  # each frame is sent well within the timeout
            writer.write([("y" * 20, None)])  # and another one always follows it
        sent.append(message.get("code"))
        if len(sent) == 30:
            writer.close(1000, "enough")

    writer = SocketWriter(send, queue_bytes=100, timeout_s=10, clock=clock)
    for _ in range(10):
        writer.write([("x" * 20, None)])
    await writer.run()
    assert sent[-1] == outcome


async def test_a_header_of_any_size_is_not_taken(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_header=8 * 1024) as relay:
        assert (await relay.http.get("/-/healthz", headers={"X-Large": "x" * 7000})).status_code == 200
        # All at once, in pieces, and without an end: a connection that keeps sending is cut before its end.
        for pieces, has_end in (([b"x" * 9000], True), ([b"x" * 1000] * 9, True), ([b"x" * 1000] * 60, False)):
            head = [f"GET /-/healthz HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\nX-Large: ".encode()]
            answer = await raw(relay.port, head + pieces + ([b"\r\n\r\n"] if has_end else []))
            assert answer.startswith(b"HTTP/1.1 431 ")
        # The bytes after the header are a body, which has its own limit.
        assert (await relay.http.post("/-/pair", content=b"x" * 100_000)).status_code == 403


@pytest.mark.parametrize(
    ("said", "received"), [(b"", b""), (b"GET /-/healthz HTTP/1.1\r\nHost:", b"HTTP/1.1 408 Request Timeout")]
)
async def test_a_connection_that_sends_nothing_or_half_a_header_is_closed(
    tmp_path: Path, said: bytes, received: bytes
) -> None:
    async with RunningRelay(tmp_path, header_deadline_s=0.2) as relay:
        assert (await raw(relay.port, [said])).split(b"\r\n")[0] == received


async def raw(port: int, pieces: list[bytes]) -> bytes:
    """Send bytes and read until the relay closes the connection."""
    loop = asyncio.get_running_loop()
    connection = socket.socket()
    connection.setblocking(False)
    answer = b""
    with connection:
        await loop.sock_connect(connection, ("127.0.0.1", port))
        try:
            for piece in pieces:
                await loop.sock_sendall(connection, piece)
            async with asyncio.timeout(BOUND_S):
                while chunk := await loop.sock_recv(connection, 65536):
                    answer += chunk
        except ConnectionError:
            pass  # the relay closed before the rest
    return answer
