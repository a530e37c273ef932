"""Event streams on the fast path: they are written as on the regular path, and continue there when they must wait."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from tabrelay.calls.principal import CALL
from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import Kind
from tests.server.test_fast_path import REGULAR_PATH, stage, until
from tests.support.link_worker import SyntheticWorker
from tests.support.raw_http import call_of, written
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import BOUND_S

NOTE: dict[str, Any] = {"jsonrpc": "2.0", "method": "notifications/progress"}
Waiting = list[tuple[Received[str], dict[str, Any]]]


def progress(worker: SyntheticWorker, event: Received[str], value: float, **more: Any) -> None:
    worker.send(event, Kind.NOTE, {**NOTE, "params": {"progressToken": "t", "progress": value, **more}})


def held(worker: SyntheticWorker, notices: int = 1, **more: Any) -> Waiting:
    """The calls of a tool that reports progress and gets no result until the test sends one."""
    calls: Waiting = []

    def begin(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        for number in range(notices):
            progress(worker, event, number, **more)
        calls.append((event, message))

    worker.on_call = begin
    return calls


Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def connect(relay: RunningRelay) -> Line:
    return await asyncio.open_connection("127.0.0.1", relay.port)


def ask(relay: RunningRelay, line: Line) -> None:
    line[1].write(written(relay, call_of("progress")))


async def read_stream(line: Line) -> bytes:
    """All bytes of one response that is a chunked stream, without its date."""
    data = b""
    async with asyncio.timeout(BOUND_S):
        while not data.endswith(b"0\r\n\r\n"):
            piece = await line[0].read(65536)
            assert piece, data
            data += piece
    return b"\r\n".join(row for row in data.split(b"\r\n") if not row.startswith(b"date: "))


async def stream_of(relay: RunningRelay) -> bytes:
    line = await connect(relay)
    ask(relay, line)
    data = await read_stream(line)
    line[1].close()
    return data


async def continues_on_regular_path(relay: RunningRelay) -> None:
    """A request that left the fast path is recorded only where it continues."""
    await until(lambda: any(asked.method == "tools/call" for asked in relay.recorder.asked))


def number_of_streams(relay: RunningRelay) -> int:
    return int(relay.recorder.tap.swift_streams)


async def test_a_stream_has_the_same_bytes_on_both_paths(tmp_path: Path) -> None:
    async with stage(tmp_path / "a") as (swift, _), stage(tmp_path / "b", **REGULAR_PATH) as (plain, _):
        expected = await stream_of(plain)
        assert expected.count(b"event: message\ndata: ") == 2
        async with asyncio.timeout(BOUND_S):
            while not number_of_streams(swift):  # on a busy machine a call may be slow and leave the fast path
                assert await stream_of(swift) == expected
        assert number_of_streams(plain) == 0


async def test_a_connection_serves_more_requests_after_a_stream(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):
        line, found = await connect(relay), set()
        for _ in range(5):
            ask(relay, line)
            found.add(await read_stream(line))
        assert len(found) == 1
        await until(lambda: not relay.drain.exchanges.count)
        line[1].close()


async def test_a_stream_that_waits_for_its_result_continues_on_the_regular_path(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):
        calls = held(worker)
        call = asyncio.create_task(relay.call("notes", "progress"))
        await continues_on_regular_path(relay)
        assert relay.drain.exchanges.count == 1
        [(event, message)] = calls
        progress(worker, event, 2)
        worker.echo(event, message)
        await worker.flush()
        first, second, last = map(json.loads, events((await call).text))
        assert [first["params"]["progress"], second["params"]["progress"], last["id"]] == [0, 2, 1]
        assert number_of_streams(relay) == 0


async def test_a_stream_of_a_call_that_fails_ends_with_the_error(tmp_path: Path) -> None:
    async with stage(tmp_path, call_deadline_s=0.1) as (relay, worker):
        held(worker)
        first, last = map(json.loads, events((await relay.call("notes", "progress")).text))
        assert (first["method"], last["error"]["data"]["reason"]) == ("notifications/progress", "timeout")
        await until(lambda: not relay.drain.exchanges.count)


async def test_a_stream_may_end_with_an_error_of_the_server(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):

        def fail(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
            progress(worker, event, 1)
            worker.send(event, Kind.RES, jsonrpc.error_message(message["id"], jsonrpc.METHOD_NOT_FOUND, "No.", None))

        worker.on_call = fail
        answer = await relay.call("notes", "progress")
        _, last = map(json.loads, events(answer.text))
        assert (answer.status_code, last["error"]["code"]) == (200, jsonrpc.METHOD_NOT_FOUND)


async def test_a_client_that_leaves_a_stream_cancels_its_call(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):
        held(worker)
        line = await connect(relay)
        ask(relay, line)
        await line[0].readuntil(b"event: message")
        line[1].close()
        await worker.until(lambda: any(isinstance(event, Closed) for event in worker.seen))
        await until(lambda: not relay.drain.exchanges.count)


def buffered(relay: RunningRelay) -> int:
    """The most bytes that the relay has written to a client and that the kernel did not take."""
    connections: Any = relay._server.server_state.connections if relay._server else ()
    return max(int(each.transport.get_write_buffer_size()) for each in connections)


async def test_a_client_that_does_not_read_gets_the_result_later(tmp_path: Path) -> None:
    count, text = 200, "x" * 100_000
    async with stage(tmp_path) as (relay, worker):
        calls = held(worker, count, message=text)
        # The kernel takes little, so what the relay writes meanwhile stays in its buffer.
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.connect(("127.0.0.1", relay.port))
        line = await asyncio.open_connection(sock=client)
        ask(relay, line)
        await worker.until(lambda: bool(calls))
        await continues_on_regular_path(relay)
        assert buffered(relay) < 10 * len(text)
        worker.echo(*calls[0])
        await worker.flush()
        data = await read_stream(line)
        *notices, last = [json.loads(part.partition(b"\n\n")[0]) for part in data.split(b"event: message\ndata: ")[1:]]
        # Notices that a client does not read are bounded: the oldest are dropped, and the others keep their order.
        numbers = [notice["params"]["progress"] for notice in notices]
        assert numbers == sorted(set(numbers)) and (numbers[0], numbers[-1]) == (0, count - 1)
        assert last["id"] == 1 and number_of_streams(relay) == 0
        line[1].close()


async def test_a_stream_ends_when_its_token_is_revoked(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):
        calls = held(worker)
        token = relay.tokens.issue_named("one", [CALL])
        line = await connect(relay)
        line[1].write(written(relay, call_of("progress"), token=token))
        await worker.until(lambda: bool(calls))
        relay.tokens.revoke(lambda issued: issued.name == "one")
        data = await read_stream(line)
        assert data.count(b"event: message") == 1
        await worker.until(lambda: any(isinstance(event, Closed) for event in worker.seen))
        line[1].close()
