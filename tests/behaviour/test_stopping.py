"""Requests that arrive while the relay stops: each is answered or refused, and no answer is lost."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import Counter
from pathlib import Path

import pytest

from tabrelay.server.listener_close import empty_queue, stop_handshakes
from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tests.support.demo import Demo
from tests.support.link_worker import SyntheticWorker
from tests.support.raw_http import RawConnection, raw
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, until

CLIENTS = 24
ENOUGH = 300  # requests before the relay starts to stop


def health(port: int, *more: tuple[str, str]) -> bytes:
    return raw("/-/healthz", [("Host", f"127.0.0.1:{port}"), *more], b"").replace(b"POST", b"GET", 1)


async def test_a_request_on_an_idle_connection_is_answered_while_the_relay_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HttpProtocol, "idle_close_s", 5.0)
    shut_down: list[HttpProtocol] = []
    shutdown = HttpProtocol.shutdown

    def note(connection: HttpProtocol) -> None:
        shutdown(connection)
        shut_down.append(connection)

    monkeypatch.setattr(HttpProtocol, "shutdown", note)
    relay = RunningRelay(tmp_path)
    await relay.__aenter__()
    lines = [await RawConnection(relay.port).open() for _ in range(2)]
    for line in lines:
        line.send(health(relay.port))
        answer = await line.answer("GET")
        assert answer is not None and answer.header("connection") is None
    stopping = asyncio.create_task(relay.stop())
    await until(lambda: len(shut_down) == 2)
    lines[0].send(health(relay.port))
    answer = await lines[0].answer("GET")
    assert answer is not None and answer.header("connection") == "close"
    assert await lines[0].answer("GET") is None
    for line in lines:
        await line.close()
    await stopping
    await relay.http.aclose()


async def test_an_idle_connection_does_not_keep_the_relay_from_stopping(tmp_path: Path) -> None:
    relay = RunningRelay(tmp_path)
    await relay.__aenter__()
    line = await RawConnection(relay.port).open()
    line.send(health(relay.port))
    assert await line.answer("GET") is not None
    await relay.http.aclose()
    async with asyncio.timeout(10):
        await relay.stop()
    assert await line.answer("GET") is None
    await line.close()


async def ask_until_it_is_gone(port: int, keeps: bool, counts: Counter[str]) -> None:
    request = health(port) if keeps else health(port, ("Connection", "close"))
    while True:
        line = RawConnection(port)
        try:
            await line.open()
        except OSError:
            return
        is_open = True
        while is_open:
            line.send(request)
            answer = await line.answer("GET")
            counts["unanswered" if answer is None else "answered"] += 1
            is_open = answer is not None and answer.header("connection") != "close"
        await line.close()


async def test_a_relay_that_stops_under_load_leaves_no_request_unanswered(tmp_path: Path) -> None:
    counts: Counter[str] = Counter()
    async with Demo(tmp_path, verb="demo") as demo:
        clients = [
            asyncio.create_task(ask_until_it_is_gone(demo.port, number % 2 == 0, counts)) for number in range(CLIENTS)
        ]
        await until(lambda: counts["answered"] > ENOUGH)
        demo.signal()
        async with asyncio.timeout(60):
            await asyncio.gather(*clients)
        assert await demo.ended() == 0
    assert counts["unanswered"] == 0


async def test_a_client_that_sends_on_and_reads_later_can_read_why_it_was_refused(tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with RunningRelay(tmp_path) as relay:
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, ("127.0.0.1", relay.port))
            async with asyncio.timeout(BOUND_S):
                await loop.sock_sendall(client, b"GET /-/healthz HTTP/1.1\r\nX: " + b"x" * 4_000_000)
                answer = b""
                while data := await loop.sock_recv(client, 65_536):
                    answer += data
            assert answer.startswith(b"HTTP/1.1 431 ")


@pytest.mark.skipif(sys.platform != "linux", reason="needs socket filters")
async def test_a_listening_socket_that_is_about_to_close_takes_what_is_in_its_queue_and_nothing_else() -> None:
    loop = asyncio.get_running_loop()
    accepted: list[asyncio.BaseTransport] = []

    class Guest(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            accepted.append(transport)

    with contextlib.ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        queued = [stack.enter_context(socket.create_connection(listener.getsockname())) for _ in range(3)]
        assert stop_handshakes(listener)
        late = stack.enter_context(socket.socket())
        late.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            late.connect(listener.getsockname())
        server = await loop.create_server(Guest, sock=listener)
        await empty_queue(listener)
        server.close()
        assert len(accepted) == len(queued)
        for transport in accepted:
            transport.close()


async def test_no_session_of_a_browser_that_is_away_outlives_the_relay(tmp_path: Path) -> None:
    """Its timer would run on in a program that embeds the relay and does not drain it."""
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        await worker.cut()
        browsers = relay.app._app._app._browser_endpoint.browsers
        assert len(browsers()) == 1
        await relay.stop()
        assert browsers() == []
