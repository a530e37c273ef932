"""Clients that send too much, too often or too slowly: their errors, the effect on other clients, and the bounds of
what the relay keeps.

`bench/siege` measures how much memory that is.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Subprotocol

from tabrelay.admission.rate_limiter import MAX_KNOWN, RateLimiter
from tabrelay.calls.calls import MAX_UNREAD_NOTICES, MAX_UNREAD_SIZE, Call, Notice, Pending
from tabrelay.faces.mcp.event_store import MAX_STREAM, EventStore, EventStream
from tabrelay.faces.web import pairing
from tabrelay.faces.web.pairing import MAX_HELD
from tabrelay.routing.catalogue_store import Catalogue, CatalogueStore, StoredServer
from tabrelay.routing.registry import Registry
from tabserver.wire.eras import Era
from tabserver.wire.events import Violation
from tabserver.wire.frames import BEARER_PREFIX, SUBPROTOCOL, Caller, Greeting, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tests.support.connections import has_request, http_connections
from tests.support.link_worker import SyntheticWorker
from tests.support.raw_http import RawConnection
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S, pause, until

# --- rate


def test_a_bucket_empties_at_once_and_fills_at_its_rate() -> None:
    rates = RateLimiter(per_s=10, burst=3)
    assert [rates.take("me", 100.0) for _ in range(3)] == [0, 0, 0]
    assert rates.take("me", 100.0) == pytest.approx(0.1)
    assert rates.take("you", 100.0) == 0
    assert rates.take("me", 100.05) == pytest.approx(0.05)
    assert rates.take("me", 100.11) == 0
    assert [rates.take("me", 1000.0) for _ in range(3)] == [0, 0, 0]
    assert rates.take("me", 1000.0) > 0


def test_without_a_rate_no_client_is_counted() -> None:
    rates = RateLimiter(0, 0)
    assert not any(rates.take("me", 1.0) for _ in range(1000))


def test_a_million_principals_take_no_more_room_than_a_thousand() -> None:
    rates = RateLimiter(1, 1)
    for number in range(MAX_KNOWN + 500):
        rates.take(str(number), 1.0)
    assert len(rates._buckets) == MAX_KNOWN


async def test_a_client_that_asks_too_often_gets_retry_after_and_no_other_client_is_affected(tmp_path: Path) -> None:
    # No tokens return to the bucket while the test runs, however long it takes.
    async with RunningRelay(tmp_path / "slow", rate_s=0.001, rate_burst=3, servers=("notes",)) as relay:
        other = relay.tokens.issue_named("other", ["call"])
        answers = [await relay.http.post("/notes", **relay.modern("tools/list")) for _ in range(4)]
        assert [answer.status_code for answer in answers] == [200, 200, 200, 429]
        error = answers[-1].json()["error"]
        assert (error["code"], error["data"]["reason"], error["data"]["delivered"], error["data"]["retryable"]) == (
            -31013,
            "rate_limited",
            "no",
            True,
        )
        mine = {"Authorization": f"Bearer {other}"}
        call = relay.modern("tools/list")
        call["headers"] |= mine
        assert (await relay.http.post("/notes", **call)).status_code == 200
        with pytest.raises(InvalidStatus) as refused:
            await SyntheticWorker(relay.url, relay.token, "notes").dial()
        assert refused.value.response.status_code == 429
    async with RunningRelay(tmp_path / "quick", rate_s=5, rate_burst=3, servers=("notes",)) as relay:
        told: list[Any] = []
        async with asyncio.timeout(60):
            while not told:  # all at once: sent one by one, they may be slower than the rate
                posts = [relay.http.post("/notes", **relay.modern("tools/list")) for _ in range(10)]
                told = [answer for answer in await asyncio.gather(*posts) if answer.status_code == 429]
            for answer in told:
                assert 0 < answer.json()["error"]["data"]["retry_after_ms"] <= 200
                assert answer.headers["retry-after"] == "1"
            while (await relay.http.get("/-/status")).status_code == 429:
                await pause()


# --- connections


async def open_connection(relay: RunningRelay, said: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    writer.write(said)
    await writer.drain()
    return reader, writer


async def test_silent_connections_block_no_other_client(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_connections=5) as relay:
        half = b"GET /-/healthz HTTP/1.1\r\nHost:"
        silent = [await open_connection(relay, half) for _ in range(5)]
        assert (await relay.http.get("/-/healthz")).status_code == 200
        # The connection that had waited longest was closed.
        async with asyncio.timeout(60):
            with pytest.raises(ConnectionError):
                assert await silent[0][0].read() == b""
                raise ConnectionResetError
        for _, writer in silent:
            writer.close()


async def test_connections_that_read_nothing_block_no_other_client(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_connections=3) as relay:
        deaf = []
        for _ in range(3):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.setblocking(False)
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", relay.port))
            ask = f"GET /-/tabserver.zip HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\n\r\n" * 40
            await asyncio.get_running_loop().sock_sendall(one, ask.encode())
            deaf.append(one)

        def are_deaf() -> int:
            return sum(each._stall is not None for each in http_connections(relay))

        await until(lambda: are_deaf() == 3)
        assert (await relay.http.get("/-/healthz")).status_code == 200
        for one in deaf:
            one.close()


async def test_when_all_connections_are_in_use_a_new_one_gets_an_error(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_connections=2) as relay:
        async with SyntheticWorker(relay.url, relay.token, "notes"), SyntheticWorker(relay.url, relay.token, "maps"):
            reader, writer = await open_connection(relay)
            async with asyncio.timeout(60):
                assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
            writer.close()
        async with asyncio.timeout(60):
            while True:
                try:
                    assert (await relay.http.get("/-/healthz")).status_code == 200
                    break
                except (AssertionError, OSError):
                    pass


OPEN_ROUTES = {
    "/-/reports": ("application/csp-report", ""),
    "/-/ask": ("application/json", "https://app.example"),
    "/-/ask/answer": ("application/json", "https://app.example"),
    "/-/pair": ("application/json", ""),
}


def half_sent(relay: RunningRelay, path: str) -> bytes:
    """A request that needs no token, whose body is never sent."""
    kind, origin = OPEN_ROUTES[path]
    origin = origin or relay.url
    lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{relay.port}", f"Origin: {origin}", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, "Content-Length: 20", "", "{"]).encode()


@pytest.mark.parametrize("path", OPEN_ROUTES)
async def test_half_sent_requests_without_a_token_block_no_other_client(tmp_path: Path, path: str) -> None:
    async with (
        RunningRelay(tmp_path, max_connections=6) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        contextlib.AsyncExitStack() as stack,
    ):
        for number in range(12):
            reader, writer = await open_connection(relay, half_sent(relay, path))
            stack.callback(writer.close)
            if number == 0:
                oldest = reader
                await until(lambda: any(has_request(each) for each in http_connections(relay)))
        await until(lambda: sum(has_request(each) and not each.is_idle for each in http_connections(relay)) == 5)
        assert (await relay.call("notes", "echo", {"n": 1})).status_code == 200
        async with asyncio.timeout(BOUND_S):
            assert (await oldest.read()).startswith(b"HTTP/1.1 503 ")
        # The client's own connection is idle now, and more unknown clients connect.
        [mine] = [each for each in http_connections(relay) if each.is_admitted]
        for _ in range(12):
            stack.callback((await open_connection(relay, half_sent(relay, path)))[1].close)
        await until(lambda: sum(has_request(each) and not each.is_idle for each in http_connections(relay)) == 4)
        assert mine in http_connections(relay) and not mine.is_finished
        assert (await relay.call("notes", "echo", {"n": 1})).status_code == 200
        assert (await relay.http.get("/-/healthz")).status_code == 200


async def test_a_running_call_keeps_its_connection_while_unknown_clients_connect(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_connections=4) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
        contextlib.AsyncExitStack() as stack,
    ):
        waiting: list[Any] = []
        worker.on_call = lambda worker, event, message: waiting.append(event)
        running = asyncio.create_task(relay.call("notes", "slow"))
        await worker.until(lambda: bool(waiting))
        for _ in range(20):
            stack.callback((await open_connection(relay, half_sent(relay, "/-/ask")))[1].close)
        await until(lambda: len(http_connections(relay)) == 3)
        worker.answer(waiting[0], {"content": []})
        await worker.flush()
        assert (await running).status_code == 200


async def test_of_the_questions_of_pages_that_want_to_be_paired_only_the_newest_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pairing, "HOLD_S", 4 * BOUND_S)  # none ends because it has waited for long
    async with RunningRelay(tmp_path) as relay:
        page = {"Origin": "https://app.example"}
        asked = (await relay.http.post("/-/ask", json={"server": "notes"}, headers=page)).json()

        def question() -> asyncio.Task[Any]:
            body = {"request": asked["request"]}
            return asyncio.create_task(relay.http.post("/-/ask/answer", json=body, headers=page))

        questions = [question() for _ in range(MAX_HELD + 20)]
        await until(lambda: sum(each.done() for each in questions) == 20)
        assert {each.result().json()["state"] for each in questions if each.done()} == {"waiting"}
        await relay.http.post("/-/pairs", json={"approve": asked["code"]})
        answers = [(await each).json() for each in questions]
        assert sum("token" in answer for answer in answers) == 1


# --- bodies


async def test_nothing_is_kept_of_an_unread_body(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay:
        connections: Any = relay._server.server_state.connections if relay._server else ()
        for path in ("/notes", "/-/pair"):
            line = await RawConnection(relay.port).open()
            lines = [f"POST {path} HTTP/1.1", f"Host: 127.0.0.1:{relay.port}", "Content-Length: 1000000", "", ""]
            line.send("\r\n".join(lines).encode() + b"x" * 60_000)
            answer = await line.answer()
            assert answer is not None and answer.status in (401, 403)
            [body] = [each.cycle.body for each in connections if has_request(each)]
            assert body == b""
            await line.close()
            await until(lambda: not connections)


@pytest.mark.parametrize("token", ["good", "bad"])
async def test_a_body_that_comes_byte_by_byte_is_not_waited_for(tmp_path: Path, token: str) -> None:
    async with RunningRelay(tmp_path, body_deadline_s=0.3, servers=("notes",)) as relay:
        head = f"POST /notes HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\nContent-Type: application/json\r\n"
        head += "Accept: application/json, text/event-stream\r\nContent-Length: 1000\r\n"
        head += f"Authorization: Bearer {relay.token if token == 'good' else 'x'}\r\n\r\n"
        reader, writer = await open_connection(relay, head.encode())
        received: list[bytes] = []

        async def listen() -> None:
            with contextlib.suppress(ConnectionError):
                while line := await reader.readline():
                    received.append(line)

        listening = asyncio.create_task(listen())
        async with asyncio.timeout(10):
            while not listening.done():
                writer.write(b" ")  # a single byte is not a body
                await asyncio.wait([listening], timeout=0.05)
        assert received[0].startswith(b"HTTP/1.1 408 " if token == "good" else b"HTTP/1.1 401 ")
        writer.close()


async def test_bodies_that_are_being_read_have_a_limit_together(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, body_budget=200_000, servers=("notes",)) as relay:
        head = f"POST /notes HTTP/1.1\r\nHost: 127.0.0.1:{relay.port}\r\nContent-Type: application/json\r\n"
        head += f"Accept: application/json, text/event-stream\r\nAuthorization: Bearer {relay.token}\r\n"
        head += "Content-Length: 1000000\r\n\r\n"
        held = [await open_connection(relay, head.encode() + b" " * 70_000) for _ in range(2)]
        reader, writer = await open_connection(relay, head.encode() + b" " * 900_000)
        async with asyncio.timeout(BOUND_S):
            answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1" in answer
        for each in (writer, *(writer for _, writer in held)):
            each.close()
        async with asyncio.timeout(BOUND_S):  # the memory is free again
            text = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"x": "x" * 150_000}})
            while (await relay.http.post("/notes", content=text, headers=JSON)).status_code == 503:
                await pause()


JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(("levels", "status"), [(64, 400), (65, 400), (2000, 400)])
async def test_a_message_nests_64_levels_deep_and_no_more(tmp_path: Path, levels: int, status: int) -> None:
    async with RunningRelay(tmp_path, servers=("notes",)) as relay:
        body = "[" * levels + "]" * levels
        answer = await relay.http.post("/notes", content=body, headers=JSON)
        assert answer.status_code == status
        is_too_deep = answer.json()["error"]["data"]["reason"] in ("too_deep", "parse_error")
        assert is_too_deep == (levels > 64)


# --- what a browser sends


def unread(pending: Pending) -> int:
    return sum(len(notice.payload) for notice in pending._notices)


def test_unread_notices_are_bounded_in_size_and_the_last_one_stays() -> None:
    caller = Caller(era=Era.MODERN, version="2026-07-28", principal="me", client=None, capabilities={})
    pending = Pending(Call("c", 1, "tools/call", "{}", caller))
    for _ in range(50):
        pending.notify(Notice("x" * 1_000_000))
    assert unread(pending) <= MAX_UNREAD_SIZE
    pending.notify(Notice("y" * (MAX_UNREAD_SIZE + 1)))
    assert [notice.payload[0] for notice in pending._notices] == ["y"]
    for _ in range(2 * MAX_UNREAD_NOTICES):
        pending.notify(Notice("x"))
    assert len(pending._notices) <= MAX_UNREAD_NOTICES


def test_a_stream_that_is_read_slowly_is_bounded_too() -> None:
    memory = EventStore()
    stream = EventStream("s", memory)
    stream.reader = object()
    for _ in range(100):
        stream.add(b"x" * 1_000_000)
    assert memory.held == sum(len(event.payload) for event in stream.after(0)) <= MAX_STREAM
    assert stream.after(0)[-1].seq == 100
    stream.forget()
    assert memory.held == 0


def accepter(budget: MemoryBudget, **limits: Any) -> Link[str]:
    terms = Terms(sid="s", epoch="e", build="b", grace_ms=1000, max_message=10_000)
    link: Link[str] = Link.accepter(terms, Limits(max_message=10_000, **limits), budget=budget)
    link.connected(0.0)
    dialer: Link[str] = Link.dialer(Greeting("notes", "w1", "b"))
    dialer.connected(0.0)
    [(hello, _)] = dialer.frames()
    link.receive(hello, None, 0.0)
    link.events()
    return link


def slices(link: Link[str], frame: int, count: int, size: int, first: int = 1) -> list[Violation]:
    """Send all slices of a frame except the last; returns the link's objection."""
    for index in range(count - 1):
        head = {"t": "part", "s": first + index, "a": 0, "f": frame, "q": index, "n": count}
        if index == 0:
            head["h"] = {"t": "msg", "c": "c", "k": "res", "i": 1}
        link.receive(json.dumps(head), "x" * size, 0.0)
    return [event for event in link.events() if isinstance(event, Violation)]


def test_messages_that_are_never_finished_have_a_limit_over_all_links() -> None:
    budget = MemoryBudget(20_000)
    links = [accepter(budget) for _ in range(64)]
    objections = [slices(link, 1, 10, 1_000) for link in links]
    assert budget.used <= budget.hard_limit == 30_000
    assert [bool(objection) for objection in objections[:3]] == [False] * 3
    assert all(objection[0].too_much for objection in objections[4:])
    for link in links:
        link.end()
    assert budget.used == 0


def test_a_message_that_is_too_large_ends_the_session() -> None:
    link = accepter(MemoryBudget(1_000_000))
    [objection] = slices(link, 1, 13, 1_000)[:1]
    assert objection == Violation("a message of more than 10,000 characters", too_much=True)


async def closed(socket: ClientConnection) -> int | None:
    try:
        while True:
            await socket.recv()
    except ConnectionClosed:
        return socket.close_code


async def test_a_browser_that_sends_too_much_is_closed_with_1009_and_the_next_one_works(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, max_message=20_000, max_part=10_000) as relay:
        bearer = BEARER_PREFIX + base64.urlsafe_b64encode(relay.token.encode()).decode().rstrip("=")
        entries = [Subprotocol(SUBPROTOCOL), Subprotocol(bearer)]
        url = relay.url.replace("http", "ws") + "/notes"
        dialer: Link[str] = Link.dialer(Greeting("notes", "w1", "b"))
        dialer.connected(0.0)
        [(hello, _)] = dialer.frames()
        async with connect(url, subprotocols=entries, proxy=None) as socket:
            with contextlib.suppress(ConnectionClosed):
                await socket.send("x" * 10_000_000)  # one frame that is larger than the limit
            assert await closed(socket) == 1009
        async with connect(url, subprotocols=entries, proxy=None) as socket:
            await socket.send(hello)
            for index in range(4):  # slices without an end
                head: dict[str, Any] = {"t": "part", "s": index + 1, "a": 0, "f": 1, "q": index, "n": 9}
                head |= {"h": {"t": "msg", "c": "c", "k": "res", "i": 1}} if index == 0 else {}
                with contextlib.suppress(ConnectionClosed):
                    await socket.send(json.dumps(head) + "\n" + "x" * 9_000)
            assert await closed(socket) == 1009
        async with SyntheticWorker(relay.url, relay.token, "notes"):
            assert (await relay.call("notes", "echo", {"n": 1})).json()["result"]["content"][0]["text"] == '{"n": 1}'


# --- names


def test_the_registry_forgets_the_longest_unseen_names_and_never_the_declared() -> None:
    now = [0.0]
    registry = Registry(CatalogueStore(None), declared=["mine"], most=4, wall=lambda: now[0])
    for number in range(10):
        now[0] += 1
        registry.declare(f"n{number}").last_seen = now[0]
    assert [entry.name for entry in registry.entries()] == ["mine", "n7", "n8", "n9"]
    for name in ("n7", "n8", "n9"):
        registry.find(name).peer = object()  # type: ignore[assignment]
    assert not registry.has_room_for("one-more")
    assert registry.has_room_for("n7")


def test_catalogues_have_a_limit_together() -> None:
    registry = Registry(CatalogueStore(None), catalogue_budget=1_000_000)
    large = Catalogue({}, tools=({"name": "t", "description": "x" * 300_000},))
    for number in range(10):
        registry.declare(f"n{number}").last_seen = float(number)
        registry.catalogues.keep(f"n{number}", large)
    known = [n for n in range(10) if registry.find(f"n{n}").catalogue is not None]
    assert known == [7, 8, 9]


async def test_a_page_gets_an_error_when_the_relay_can_hold_no_more_servers(tmp_path: Path) -> None:
    async with (
        RunningRelay(tmp_path, max_servers=1) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
    ):
        with pytest.raises(InvalidStatus) as refused:
            await SyntheticWorker(relay.url, relay.token, "maps").dial()
        assert refused.value.response.status_code == 503
        probe = await relay.http.get("/-/probe/maps")
        assert (probe.status_code, probe.json()["error"]) == (503, "busy")


async def test_names_that_come_by_the_thousand_are_not_a_write_each(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    store = CountingStore(path, most=20_000)
    for number in range(2000):
        store.put(f"s{number}", StoredServer(Catalogue({"serverInfo": {"name": "x"}}), last_seen=float(number)))
        if number % 50 == 0:
            await asyncio.sleep(0)
    assert store.writes < 200
    store.flush()
    assert len(CatalogueStore(path).load()) == 2000
    assert CatalogueStore(path).load()["s1999"].last_seen == 1999.0


async def test_what_waits_to_be_written_is_written_soon_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "servers.json"
    store = CatalogueStore(path)
    store.put("alone", StoredServer())
    await until(lambda: set(CatalogueStore(path).load()) == {"alone"})
    store.put("next", StoredServer())
    store.put("last", StoredServer(last_seen=1.0))
    store.remove("alone")
    await until(lambda: set(CatalogueStore(path).load()) == {"next", "last"})


class CountingStore(CatalogueStore):
    """Counts its writes."""

    writes = 0

    def rows(self) -> dict[str, StoredServer]:
        self.writes += 1
        return super().rows()
