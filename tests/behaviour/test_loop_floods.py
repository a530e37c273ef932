"""Many small items at once, and large tables: each callback of the event loop handles a bounded share of them."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from tabrelay.calls.calls import Notice, Pending
from tabrelay.config.settings import Settings
from tabrelay.errors import Busy
from tabrelay.faces.mcp.event_store import EventStore, SessionStreams
from tabrelay.faces.mcp.session_replay import SessionReplay
from tabrelay.faces.mcp.session_store import SessionRecord, SessionStore, digest
from tabrelay.faces.mcp.sessions import Session
from tabrelay.system.loop_turns import run_in_turns
from tabrelay.translation.subscribers import MAX_ANNOUNCED, MAX_URIS, Subscribers
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.behaviour.test_loop_messages import Attack, measured
from tests.behaviour.test_loop_time import JSON, LIMIT_MS, TRIES, Answering, warm_up
from tests.support.measured_relay import Slow, measured_relay
from tests.support.plain_page import ScriptedPage
from tests.support.running_relay import modern
from tests.support.waiting import BOUND_S, until

READ = 256 * 1024  # bytes that the event loop reads at once
FLOOD = READ + READ // 4


def frame(payload: bytes, kind: int = 0x81) -> bytes:
    """A small masked WebSocket frame; the mask is zero."""
    return bytes((kind, 0x80 | len(payload))) + bytes(4) + payload


FRAMES = {
    "acks": frame(b'{"t":"ack","a":0}'),
    "pings": frame(b"", 0x89),
    "binary": frame(b"", 0x82),
}


async def test_many_frames_of_a_browser_in_one_read(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0) as relay:
        for name, one in FRAMES.items():
            async with Answering(relay.url, relay.token, "notes") as worker:
                if name == "acks":
                    await warm_up(relay)

                async def flood(worker: Answering = worker, one: bytes = one) -> None:
                    assert worker._socket is not None
                    worker._socket.transport.write(one * (FLOOD // len(one)))
                    # The answer follows the frames.
                    await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

                slow |= await measured(relay, {name: flood})
    assert slow == {}


async def test_many_messages_of_a_plain_page_in_one_read(tmp_path: Path) -> None:
    slow: dict[str, Slow] = {}
    async with measured_relay(tmp_path, rate_s=0, plain=["notes"]) as relay:
        for text in (b"1", b'{"method":"a"}', b'{"id":1,"method":"ping"}'):
            page = ScriptedPage(relay.url, "notes")
            async with page:
                if text == b"1":
                    await warm_up(relay)

                async def flood(page: ScriptedPage = page, text: bytes = text) -> None:
                    assert page._socket is not None
                    page._socket.transport.write(frame(text) * (FLOOD // (len(text) + 6)))
                    await relay.http.post("/notes", **modern("tools/call", {"name": "echo", "arguments": {}}))

                slow |= await measured(relay, {text.decode(): flood})
    assert slow == {}


async def test_many_http_requests_and_chunks_in_one_read(tmp_path: Path) -> None:
    async with measured_relay(tmp_path, rate_s=0) as relay, Answering(relay.url, relay.token, "notes"):
        await warm_up(relay)
        host = urlsplit(relay.url).netloc
        base = f"Host: {host}\r\nAuthorization: Bearer {relay.token}\r\n"
        healthz = f"GET /-/healthz HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        request = modern("tools/call", {"name": "echo", "arguments": {}})
        given = {**request["headers"], **JSON, "Accept": "application/json, text/event-stream"}
        said = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        body = json.dumps(request["json"]).encode()
        head = f"POST /notes HTTP/1.1\r\n{base}{said}"
        call = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        chunked = f"{head}Transfer-Encoding: chunked\r\n\r\n".encode()
        fields = "".join(f"x-{number}: {number}\r\n" for number in range(80))
        most = Settings().max_header - 2_048

        def send(data: bytes) -> Attack:
            async def attack() -> None:
                reader, writer = await asyncio.open_connection(*host.split(":"))
                writer.write(data)
                writer.write_eof()
                async with asyncio.timeout(BOUND_S):
                    while await reader.read(1 << 16):
                        pass
                writer.close()

            return attack

        attacks = {
            "requests sent ahead": send(healthz * (Settings().max_ahead // len(healthz))),
            "calls sent ahead": send(call * (Settings().max_ahead // len(call))),
            "requests beyond what may be sent ahead": send(healthz * (FLOOD // len(healthz))),
            "chunks of one byte": send(chunked + b"1\r\n \r\n" * (FLOOD // 6)),
            "chunks of four bytes": send(chunked + b"4\r\n    \r\n" * (FLOOD // 9) + b"0\r\n\r\n"),
            "trailer fields": send(chunked + b"1\r\n1\r\n0\r\n" + b"a:\r\n" * (most // 4)),
            "header fields": send(f"{head}{fields}\r\n".encode()),
            "too many header fields": send(head.encode() + b"a:\r\n" * (most // 4) + b"\r\n"),
            "a long Accept header": send(f"{head}Accept: {',' * most}\r\n\r\n".encode()),
            "a long query": send(f"GET /notes?{'&a' * (most // 2)} HTTP/1.1\r\n{base}\r\n".encode()),
        }
        assert await measured(relay, attacks) == {}


def catalogue(tools: int, name: int) -> dict[str, Any]:
    """An entry of the file of known servers."""
    listed = [
        {"name": f"tool_{name}_{number}", "description": "a", "inputSchema": {"type": "object"}}
        for number in range(tools)
    ]
    about = {"serverInfo": {"name": f"n{name}", "version": "1"}, "capabilities": {"tools": {}}}
    return {"initialize": about, "tools": listed, "resources": [], "templates": [], "prompts": []}


async def test_the_status_and_the_figures_of_many_servers(tmp_path: Path) -> None:
    most, tools = Settings().max_servers, Settings().max_tools
    rows = {f"n{number}": {"last_seen": 1e9, **catalogue(tools // 4, number)} for number in range(most)}
    (tmp_path / "servers.json").write_text(json.dumps(rows))
    (tmp_path / "servers.json").chmod(0o600)
    async with measured_relay(tmp_path, rate_s=0) as relay:

        async def status() -> None:
            known = (await relay.http.get("/-/status")).json()["servers"]
            assert len(known) == most and sum(len(row["tools"]) for row in known) > most

        async def figures() -> None:
            assert (await relay.http.get("/-/metrics")).is_success

        assert await measured(relay, {"status": status, "figures": figures}) == {}


def test_a_notification_for_many_callers_of_one_server() -> None:
    """With the largest number of callers and subscriptions, and a long notification of a page."""
    audience, received = Subscribers(), Counter[str]()

    def receive(channel: str, notice: Notice) -> None:
        received[channel] += len(notice.payload)

    for number in range(MAX_URIS):
        audience.subscribe(f"c{number % 1_000}", f"x:{number}")
    for number in range(1_000):
        audience.listen(f"c{number}", partial(receive, f"c{number}"))
    long = {"a": "x" * 2_000_000}
    found = {}
    for method, params in (
        ("notifications/resources/updated", {"uri": "x:7/8", **long}),
        ("notifications/tools/list_changed", long),
    ):
        tries = []
        for _ in range(TRIES):
            began = time.thread_time()
            audience.announce({"jsonrpc": "2.0", "method": method, "params": params})
            tries.append((time.thread_time() - began) * 1000)
        found[method] = min(tries)
    assert {method: ms for method, ms in found.items() if ms > LIMIT_MS} == {}
    assert len(received) == 1_000 and received["c7"] > received["c8"]
    assert max(received.values()) < 2 * TRIES * MAX_ANNOUNCED


@contextmanager
def no_collector() -> Iterator[None]:
    """Turns the garbage collector off: in this process, it would scan all objects of the tests."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class BusyPeer:
    """A browser that accepts no more requests."""

    is_up = True

    def __init__(self) -> None:
        self.listening: list[str] = []

    def start(self, pending: Pending) -> None:
        raise Busy("no room")

    def listen(self, channel: str, caller: Caller, sink: object) -> None:
        self.listening.append(channel)


async def test_a_browser_that_comes_back_to_many_sessions() -> None:
    """Each session repeats the client's settings to it; sessions that have ended meanwhile do not."""
    peer, memory, caller = BusyPeer(), EventStore(), Caller(Era.LEGACY, "2025-11-25", "tester")
    uris = dict.fromkeys(f"x:{number}" for number in range(256))
    known = [
        Session(
            f"s{number}", "notes", f"c{number}", caller, 0.0, SessionStreams(memory), "error", uris, wants_notices=True
        )
        for number in range(2_000)
    ]
    sessions: Any = SimpleNamespace(of_server=lambda server: known if server == "notes" else [])
    shared_names = SimpleNamespace(bound_to=lambda server, channel: server)
    registry = SimpleNamespace(holder=lambda server, channel: peer, shared_names=shared_names)
    switch: Any = SimpleNamespace(registry=registry)
    replay = SessionReplay(switch, sessions)
    tries = []
    for tell in (replay.came_up, lambda server: replay.lists_changed(server, frozenset({"tools", "prompts"}))):
        with no_collector():
            began = time.thread_time()
            tell("notes")
            tries.append((time.thread_time() - began) * 1000)
    assert max(tries) < LIMIT_MS
    known[-1].streams.end()
    await until(lambda: len(peer.listening) == len(known) - 1)
    await until(lambda: len(known[-2].streams.get_stream.after(0)) == 2)


async def test_long_work_lets_other_callbacks_run_every_few_milliseconds() -> None:
    async def tick() -> None:
        while True:
            gaps.append(time.thread_time())
            await asyncio.sleep(0)

    def work() -> Generator[None, None, str]:
        until_s = time.thread_time() + 0.3
        while time.thread_time() < until_s:
            yield
        return "done"

    gaps: list[float] = []
    ticking = asyncio.create_task(tick())
    assert await run_in_turns(work()) == "done"
    ticking.cancel()
    assert max(after - before for before, after in pairwise(gaps)) * 1000 < LIMIT_MS
    assert gaps[-1] - gaps[0] > 0.2


async def test_sessions_that_another_process_wrote_are_taken_over_in_several_callbacks() -> None:
    uris = tuple(f"x:{number}" for number in range(100))
    store = SessionStore(None)
    store.write("ours", SessionRecord(1.0, is_ended=True))
    theirs = {f"{number:032x}": SessionRecord(2.0, "error", uris) for number in range(9_998)}
    with no_collector():
        began = time.thread_time()
        store.merge({**theirs, digest("ours"): SessionRecord(3.0)})
        took_ms = (time.thread_time() - began) * 1000
    assert took_ms < LIMIT_MS and len(store) < 2_000
    await until(lambda: len(store) == 9_999)
    page = store.find("ours")
    assert page is not None and page.is_ended
