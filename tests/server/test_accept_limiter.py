"""Connections and handshakes that arrive at the same moment: a few in each iteration of the event loop, in order, with
a bounded queue."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tabrelay.server.accept_limiter import PER_ITERATION, HandshakeLimiter
from tabrelay.server.runner import bind, listener_copies
from tabrelay.server.uvicorn_adapter.guarded_websocket import GuardedWebSocket
from tabrelay.server.uvicorn_adapter.websocket_protocol import WebSocketProtocol
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, until


async def test_a_few_come_in_now_and_the_others_a_few_in_each_turn_in_their_order() -> None:
    limiter = HandshakeLimiter.of(asyncio.get_running_loop())
    inside: list[int] = []

    def come_in(number: int) -> Callable[[], None]:
        return lambda: inside.append(number)

    many = 3 * PER_ITERATION + 1
    now = [limiter.admit(come_in(number)) for number in range(many)]
    assert now == [True] * PER_ITERATION + [False] * (many - PER_ITERATION)
    sizes = [len(inside)]
    while len(inside) < many:
        await asyncio.sleep(0)
        sizes.append(len(inside))
    assert sizes == [PER_ITERATION, 2 * PER_ITERATION, 3 * PER_ITERATION, many]
    assert inside == list(range(many))
    assert limiter.waiting == 0


async def test_a_connection_that_fails_while_it_is_accepted_blocks_no_other() -> None:
    loop = asyncio.get_running_loop()
    failures: list[Any] = []
    loop.set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    limiter = HandshakeLimiter.of(loop)
    inside: list[int] = []
    for number in range(PER_ITERATION):
        limiter.admit(partial(inside.append, number))
    limiter.admit(partial(inside.remove, 99))
    limiter.admit(lambda: inside.append(-1))
    await until(lambda: inside[-1] == -1)
    assert [type(failure) for failure in failures] == [ValueError]


def handshake(relay: RunningRelay, name: str) -> bytes:
    lines = [
        f"GET /{name} HTTP/1.1",
        f"Host: 127.0.0.1:{relay.port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==",
        f"Sec-WebSocket-Protocol: tabrelay.v1, {bearer(relay.token)}",
    ]
    return "\r\n".join([*lines, "", ""]).encode()


async def test_when_too_many_handshakes_wait_the_next_gets_503_and_calls_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        # No handshake starts: all of them wait.
        monkeypatch.setattr(HandshakeLimiter, "admit", lambda self, start: self._waiting.append(start))
        for kind in (WebSocketProtocol, GuardedWebSocket):
            monkeypatch.setattr(kind, "max_handshakes", 3)
        limiter = HandshakeLimiter.of(asyncio.get_running_loop())
        async with contextlib.AsyncExitStack() as stack:
            readers = []
            for number in range(4):
                reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
                stack.callback(writer.close)
                writer.write(handshake(relay, f"browser-{number}"))
                if number < 3:
                    await until(lambda number=number: limiter.waiting == number + 1)
                readers.append(reader)
            async with asyncio.timeout(BOUND_S):
                answer = await readers[3].read()
            head, _, body = answer.partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1" in head
            assert f"content-length: {len(body)}".encode() in head
            assert "result" in (await relay.call("notes", "echo", {"n": 1})).json()
            monkeypatch.undo()
            limiter._next_iteration()
            async with asyncio.timeout(BOUND_S):
                for reader in readers[:3]:
                    assert (await reader.readline()).startswith(b"HTTP/1.1 101 ")


def test_those_who_came_during_a_long_turn_are_taken_together() -> None:
    uvloop = pytest.importorskip("uvloop")
    made: list[asyncio.BaseTransport] = []

    class Guest(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

    async def turns() -> int:
        loop = asyncio.get_running_loop()
        listening = listener_copies(bind("127.0.0.1", 0))
        servers = [await loop.create_server(Guest, sock=sock) for sock in listening]
        address = listening[0].getsockname()
        with contextlib.ExitStack() as stack:
            for _ in range(20):
                stack.enter_context(socket.create_connection(address))
            taken = 0
            while len(made) < 20:
                await asyncio.sleep(0)
                taken += 1
            for transport in made:
                transport.close()
        for server in servers:
            server.close()
        for sock in listening:
            sock.close()
        return taken

    async def bounded() -> int:
        async with asyncio.timeout(BOUND_S):
            return await turns()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(bounded()) <= 5
