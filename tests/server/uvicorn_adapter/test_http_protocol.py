"""Pipelined requests, requests in pieces, and requests to unusual addresses: as bytes to a real relay."""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tabrelay.calls.principal import Principal
from tabrelay.faces.mcp import modern as modern_face
from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import SUBPROTOCOL, Kind
from tests.support.connections import buffered_bytes, http_connections
from tests.support.link_worker import DONE, SyntheticWorker, bearer
from tests.support.raw_http import RawConnection, call_of, raw, written
from tests.support.running_relay import RunningRelay, modern
from tests.support.waiting import BOUND_S, until

BOTH_PATHS = pytest.mark.parametrize("path", [{"fast_lane": True}, {"fast_lane": False}], ids=["fast", "regular"])


class PipelinedConnection:
    """A relay and a browser that answers when the test permits it."""

    def __init__(self, relay: RunningRelay, worker: SyntheticWorker) -> None:
        self.relay = relay
        self.worker = worker
        self.lines: list[RawConnection] = []
        self.waiting: list[tuple[Received[str], dict[str, Any]]] = []
        worker.on_call = lambda worker, event, message: self.waiting.append((event, message))

    async def dial(self) -> RawConnection:
        self.lines.append(RawConnection(self.relay.port))
        return await self.lines[-1].open()

    @property
    def connections(self) -> list[Any]:
        return http_connections(self.relay)

    async def has_half_a_header(self) -> None:
        await until(lambda: any(each._head.data or each._pipelined for each in self.connections))

    async def asked(self, count: int = 1) -> None:
        await until(lambda: len(self.waiting) >= count)

    async def answer(self) -> None:
        for event, message in self.waiting:
            self.worker.echo(event, message)
        self.waiting.clear()
        await self.worker.flush()


@contextlib.asynccontextmanager
async def stage(home: Path, **more: Any) -> AsyncIterator[PipelinedConnection]:
    async with (
        RunningRelay(home, servers=("notes",), away_wait_s=0.2, **more) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        scene = PipelinedConnection(relay, worker)
        yield scene
        for line in scene.lines:
            await line.close()
        relay.recorder.discard_violations()  # a request that is cut off has no end


@BOTH_PATHS
async def test_a_client_that_leaves_with_a_request_behind_its_call_cancels_both(
    tmp_path: Path, path: dict[str, Any]
) -> None:
    async with stage(tmp_path, **path) as scene:
        line = await scene.dial()
        line.send(written(scene.relay, call_of("echo", id=1)))
        await scene.asked()
        for id in (2, 3):  # each is read separately
            line.send(written(scene.relay, call_of("echo", id=id)))
            await until(lambda id=id: any(each._pipelined.count(b"POST") == id - 1 for each in scene.connections))
        await line.close()
        await scene.worker.until(lambda: any(isinstance(event, Closed) for event in scene.worker.seen))
        await until(lambda: not scene.relay.drain.exchanges.count)
        assert [message["id"] for _, message in scene.waiting] == [1]


async def test_a_listener_that_leaves_with_a_request_behind_it_is_not_listened_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(modern_face, "STREAM_AFTER_S", 0.1)
    async with stage(tmp_path, keepalive_s=0.1) as scene:
        line = await scene.dial()
        wish = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        line.send(written(scene.relay, wish["json"]).replace(b"Mcp-Name: None\r\n", b""))
        answer = await line.answer()
        assert answer is not None and answer.status == 200
        line.send(written(scene.relay, call_of("echo", id=2)))
        await until(lambda: any(each._pipelined for each in scene.connections))
        await line.close()
        await until(lambda: not scene.relay.drain.exchanges.count)


@BOTH_PATHS
async def test_a_call_is_answered_though_the_request_behind_it_does_not_go_on(
    tmp_path: Path, path: dict[str, Any]
) -> None:
    """The late request is refused when it is its turn: an earlier answer would be taken for that of the call."""
    async with stage(tmp_path, **path, header_deadline_s=0.3) as scene:
        line = await scene.dial()
        line.send(written(scene.relay, call_of("echo")))
        await scene.asked()
        line.send(b"POST /no")
        await scene.has_half_a_header()
        other = await scene.dial()  # its time begins later, and ends later
        other.send(b"POST /no")
        late = await other.answer()
        assert late is not None and late.status == 408
        await scene.answer()
        answer = await line.answer()
        assert answer is not None and answer.json()["id"] == 1
        late = await line.answer()
        assert late is not None and late.status == 408


@BOTH_PATHS
async def test_a_body_that_we_do_not_read_yet_is_not_late(tmp_path: Path, path: dict[str, Any]) -> None:
    async with stage(tmp_path, **path, body_deadline_s=0.3, header_deadline_s=0.3) as scene:
        line = await scene.dial()
        line.send(written(scene.relay, call_of("echo", id=1)))
        await scene.asked()
        head, end, body = written(scene.relay, call_of("echo", id=2)).partition(b"\r\n\r\n")
        line.send(head + end)
        other = await scene.dial()
        other.send(head + end)
        late = await other.answer()  # of a body that never arrives
        assert late is not None and late.status == 408
        line.send(body)
        await scene.answer()
        await scene.asked()
        await scene.answer()
        for id in (1, 2):
            answer = await line.answer()
            assert answer is not None and answer.json()["id"] == id


async def test_the_end_of_a_header_is_not_known_as_the_whole_of_it(tmp_path: Path) -> None:
    async with stage(tmp_path) as scene:
        scene.worker.on_call = SyntheticWorker.echo
        line = await scene.dial()
        request = written(scene.relay, call_of("echo"))
        start = request.index(b"Content-Type:")
        line.send(request[:start])
        await scene.has_half_a_header()
        line.send(request[start:])
        answer = await line.answer()
        assert answer is not None and answer.status == 200
        line.send(request[start:])
        answer = await line.answer()
        assert answer is not None and answer.status == 400
        assert not scene.relay.recorder.tap.swift_again


@BOTH_PATHS
async def test_an_address_that_is_none_is_refused_also_while_its_body_comes(
    tmp_path: Path, path: dict[str, Any]
) -> None:
    async with stage(tmp_path, **path) as scene:
        line = await scene.dial()
        line.send(raw("http://x:99999/", [("Host", "x:99999"), ("Content-Type", "application/json")], b"{}")[:-1])
        answer = await line.answer()
        assert answer is not None and answer.status == 400


async def test_what_a_browser_sends_before_its_handshake_harms_no_other_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would count for the budget of unfinished messages, and could not be closed in order."""
    async with stage(tmp_path, body_budget=400_000) as scene:
        relay, worker = scene.relay, scene.worker
        is_asked, may_enter = asyncio.Event(), asyncio.Event()

        async def seek(principal: Principal, server: str) -> None:
            """As a relay does that has to ask other relays first."""
            is_asked.set()
            await may_enter.wait()

        monkeypatch.setattr(relay.app._app._app._browser_endpoint.claims, "refusal_at_dial", seek)
        key = base64.b64encode(bytes(16)).decode()
        lines = [
            "GET /slow HTTP/1.1",
            f"Host: 127.0.0.1:{relay.port}",
            *("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
            f"Sec-WebSocket-Key: {key}",
            f"Sec-WebSocket-Protocol: {SUBPROTOCOL}, {bearer(relay.token)}",
        ]
        reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
        writer.write("\r\n".join([*lines, "", ""]).encode())
        await is_asked.wait()
        writer.write(b"\x81\xff" + (390_000).to_bytes(8, "big") + b"abcd" + b"x" * 370_000)
        async with asyncio.timeout(BOUND_S):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert buffered_bytes() == 0
        large = {**DONE, "content": [{"type": "text", "text": "y" * 60_000}]}
        worker.on_call = lambda worker, event, message: worker.send(
            event, Kind.RES, jsonrpc.result_message(message["id"], large)
        )
        assert (await relay.call("notes", "echo")).status_code == 200
        may_enter.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
