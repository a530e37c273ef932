"""Data that is small to send and large to hold: each attack ends with an error, and other clients continue."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import socket as sockets
import struct
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode
from websockets.typing import Subprotocol

from tabrelay.calls.calls import MAX_UNREAD_SIZE, MAX_UNREAD_TOTAL, MIN_UNREAD_EACH, Call, Notice, Pending
from tabrelay.config.settings import Settings
from tabrelay.faces.mcp.event_store import EventStore, EventStream
from tabrelay.faces.mcp.jsonrpc import MAX_CLIENT_INFO
from tabrelay.payloads.json_limits import PIECE, Weight, is_heavy
from tabrelay.server.uvicorn_adapter.guarded_http import GuardedHttp
from tabrelay.server.uvicorn_adapter.http_protocol import HttpProtocol
from tabserver.wire import jsonrpc
from tabserver.wire.eras import Era
from tabserver.wire.events import Closed, Received, Violation
from tabserver.wire.frames import CLOSE_SLOW, CLOSE_TOO_BIG, SUBPROTOCOL, Caller, Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tests.support.connections import buffered_bytes
from tests.support.link_worker import SyntheticWorker, bearer
from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

CALLER = Caller(era=Era.MODERN, version="2026-07-28", principal="me", client=None, capabilities={})
MAX_VALUES = Settings().max_values
WIDE = "\U0001f980"


def dial(relay: RunningRelay, name: str) -> connect:
    entries = [Subprotocol(SUBPROTOCOL), Subprotocol(bearer(relay.token))]
    return connect(f"{relay.url.replace('http', 'ws')}/{name}", subprotocols=entries, proxy=None, max_size=None)


async def greeted(socket: ClientConnection, name: str) -> None:
    link: Link[str] = Link.dialer(Greeting(name, "w1", "b"))
    link.connected(0.0)
    [(hello, _)] = link.frames()
    await socket.send(hello)
    await socket.recv()


async def closed(socket: ClientConnection) -> int | None:
    with contextlib.suppress(ConnectionClosed):
        async with asyncio.timeout(BOUND_S):
            while True:
                await socket.recv()
    return socket.close_code


def held() -> int:
    return buffered_bytes()


async def until(is_so: Any) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():  # noqa: ASYNC110 (no event for it)
            await asyncio.sleep(0.02)


def incomplete(first: int, size: int) -> bytes:
    """A frame without its last byte."""
    return bytes([first, 0xFF]) + struct.pack("!Q", size) + bytes(4) + b"x" * (size - 1)


@pytest.mark.parametrize(
    "unfinished",
    [incomplete(0x81, 200_000), incomplete(0x82, 200_000), incomplete(0x01, 200_000) + b"x" + incomplete(0x00, 9)],
    ids=["text", "binary", "fragments"],
)
async def test_frames_that_never_end_have_a_limit_together_and_the_oldest_go_first(
    tmp_path: Path, unfinished: bytes
) -> None:
    size = 200_000
    async with RunningRelay(tmp_path, body_budget=700_000) as relay, contextlib.AsyncExitStack() as stack:
        crowd = []
        for number in range(5):
            socket = await stack.enter_async_context(dial(relay, f"slow-{number}"))
            await greeted(socket, f"slow-{number}")
            socket.transport.write(unfinished)
            # One after the other, so that their order is known.
            await until(lambda number=number: held() >= min(number + 1, 3) * (size - 1))
            crowd.append(socket)
        assert held() <= 700_000
        assert await closed(crowd[0]) == CLOSE_SLOW
        assert await closed(crowd[1]) == CLOSE_SLOW
        # A message whose last byte was sent arrives, and so do large messages of other connections.
        async with SyntheticWorker(relay.url, relay.token, "notes"):
            answer = await relay.call("notes", "echo", {"n": "x" * 400_000})
            assert len(answer.json()["result"]["content"][0]["text"]) > 400_000
        for socket in crowd[2:]:
            socket.transport.abort()
        await until(lambda: held() == 0)


async def test_small_frames_that_never_end_have_a_limit_together_however_many_there_are(tmp_path: Path) -> None:
    budget, size = 100_000, 15_000
    async with RunningRelay(tmp_path, body_budget=budget) as relay, contextlib.AsyncExitStack() as stack:
        crowd = []
        for number in range(10):
            socket = await stack.enter_async_context(dial(relay, f"slow-{number}"))
            await greeted(socket, f"slow-{number}")
            socket.transport.write(incomplete(0x81, size))
            crowd.append(socket)
            if len(crowd) * size <= budget:
                await until(lambda: held() >= len(crowd) * (size - 1))
            else:
                # No earlier connection holds more than a little, so none is closed for this one.
                assert await closed(socket) == CLOSE_SLOW
            assert held() <= budget
        assert [socket.close_code for socket in crowd] == [None] * 6 + [CLOSE_SLOW] * 4
        # One that holds much is closed before those that hold a little.
        large = await stack.enter_async_context(dial(relay, "large"))
        await greeted(large, "large")
        large.transport.write(incomplete(0x81, 400_000))
        assert await closed(large) == CLOSE_SLOW
        assert [socket.close_code for socket in crowd[:6]] == [None] * 6


@pytest.mark.parametrize("fragment", [b"\x00\x80" + bytes(4), b"\x00\x81" + bytes(4) + b"x"])
async def test_a_message_in_tiny_fragments_ends_the_connection(tmp_path: Path, fragment: bytes) -> None:
    async with RunningRelay(tmp_path) as relay:
        async with dial(relay, "notes") as socket:
            await greeted(socket, "notes")
            socket.transport.write(b"\x01\x81" + bytes(4) + b"x" + fragment * 40_000)
            assert await closed(socket) == CLOSE_TOO_BIG
        # A message in a few fragments is accepted.
        async with dial(relay, "notes") as socket:
            hello = json.dumps({"t": "hello", "v": [1, 1], "build": "x", "server": "notes", "inst": "w2", "rx": 0})
            await socket.send(iter([hello[:10], hello[10:20], "", hello[20:]]))
            assert json.loads(await socket.recv())["t"] == "welcome"


def accepter(budget: MemoryBudget) -> Link[str]:
    link: Link[str] = Link.accepter(Terms(sid="s", epoch="e", build="b"), Limits(), budget=budget)
    link.connected(0.0)
    link.receive('{"t":"hello","v":[1,1],"build":"b","server":"notes","inst":"w1","rx":0}', None, 0.0)
    link.events()
    return link


async def test_text_that_is_none_ends_the_connection_and_no_other(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "honest"):
        async with dial(relay, "garbled") as socket:
            await greeted(socket, "garbled")
            # The next one is already queued after it.
            socket.transport.write(b"\x81\x82" + bytes(4) + b"\xff\xfe" + b"\x81\x82" + bytes(4) + b"{}")
            assert await closed(socket) == CloseCode.INVALID_DATA
        assert "result" in (await relay.call("honest", "echo", {"n": 1})).json()


def test_a_character_that_widens_all_others_counts_against_the_budget() -> None:
    budget = MemoryBudget(40_000, slack=0)
    link = accepter(budget)
    for index in range(4):
        head: dict[str, Any] = {"t": "part", "s": index + 1, "a": 0, "f": 1, "q": index, "n": 9}
        head |= {"h": {"t": "msg", "c": "c", "k": "res", "i": 1}} if index == 0 else {}
        link.receive(json.dumps(head), "x" * 2999 + WIDE, 0.0)
    objections = [event for event in link.events() if isinstance(event, Violation)]
    assert objections and objections[0].too_much
    link.end()
    assert budget.used == 0


@pytest.mark.parametrize("size", [3_000, 1_200_000])
def test_messages_that_wait_for_a_browser_count_against_the_budget_until_they_are_sent(size: int) -> None:
    budget = MemoryBudget(5_000_000, slack=0)
    link = accepter(budget)
    link.send("c", Kind.REQ, "x" * size + WIDE, 0.0, id=1, caller=CALLER)
    assert budget.used >= 4 * size
    worker: Link[str] = Link.dialer(Greeting("notes", "w1", "b"))
    worker.connected(0.0)
    worker.frames()
    got: list[Any] = []
    for _ in range(20):
        for header, payload in link.frames():
            worker.receive(header, payload, 0.0)
        got += [event for event in worker.events() if isinstance(event, Received)]
        worker.handle_timer(5.0)
        for header, payload in worker.frames():
            link.receive(header, payload, 0.0)
    assert len(got) == 1
    assert budget.used == 0


@pytest.mark.parametrize(
    ("text", "is_much"),
    [
        ("[" + "{}," * (MAX_VALUES // 2 + 1) + "0]", True),
        ("[" + "[]," * (MAX_VALUES // 3 + 1) + "0]", True),
        ("[" + "1," * (MAX_VALUES + 1) + "0]", True),
        ("{" + '"a":1,' * (MAX_VALUES // 3) + '"b":0}', True),
        ("[" + "1," * (MAX_VALUES * 9 // 10) + "0]", False),
        ('["' + "a,b\\n{[" * MAX_VALUES + '"]', False),  # a table in a text is one value
        ('["\\\\","' + "a,b{" * MAX_VALUES + '\\""]', False),
        ('["' + "x" * (MAX_VALUES * 60) + '"]', False),
        ('["' + "x" * (MAX_VALUES * 70) + '"]', True),
        # Not JSON at all, and slow to parse
        ('["' + ",{" * MAX_VALUES, False),
        ("," * (MAX_VALUES // 2) + '"' + '\\"' * MAX_VALUES, False),
        ('["' + '\\"' * (MAX_VALUES * 9) + '"]', True),
        ('"' * MAX_VALUES + ",{" * MAX_VALUES + "\\", True),
    ],
)
def test_values_are_counted_and_characters_are_not(text: str, is_much: bool) -> None:
    assert is_heavy(text, MAX_VALUES) is is_heavy(text.encode(), MAX_VALUES) is is_much


TEXTS = ['{"a,":[1,"[{:,"],"b\\"{":{"c\\\\":"\\\\\\","}}', '["é","🦀,",",",{"":[]}]', '[[],{},"",",",":"]']


@pytest.mark.parametrize("text", TEXTS)
def test_the_weight_of_a_text_is_the_same_wherever_it_is_cut(text: str) -> None:
    data = text.encode()
    whole = Weight()
    whole.add(data)
    value = json.loads(text)
    assert whole.total == expected(value) + len(data) // 64 + text.count("\\") // 8
    for first in range(len(data) + 1):
        for second in range(first, len(data) + 1):
            cut = Weight()
            for piece in (data[:first], data[first:second], data[second:]):
                cut.add(piece)
            assert cut.total == whole.total


def expected(value: Any) -> int:
    """The weight of a value, computed on the value: commas, keys and lists count twice, and objects."""
    if isinstance(value, dict):
        return 1 + 2 * len(value) + max(0, len(value) - 1) + sum(map(expected, value.values()))
    if isinstance(value, list):
        return 2 + max(0, len(value) - 1) + sum(map(expected, value))
    return 0


def test_a_long_text_is_weighed_in_pieces() -> None:
    text = '["' + ",[" * PIECE + '",' + "1," * 1000 + "1]"
    assert is_heavy(text, len(text) // 64 + 1000)
    assert not is_heavy(text, len(text) // 64 + 1010)


async def test_messages_of_too_many_values_are_refused_from_both_sides(tmp_path: Path) -> None:
    many = "[" + "{}," * (MAX_VALUES // 2 + 1) + "0]"

    def answer(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        text = f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"content":[],"more":{many}}}}}'
        worker.send_text(event, Kind.RES, text)

    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        request = relay.modern("tools/call", {"name": "echo", "arguments": {}})
        body = json.dumps(request["json"]).replace('"arguments": {}', f'"arguments": {{"a": {many}}}')
        headers = {**request["headers"], "Content-Type": "application/json"}
        refused = await relay.http.post("/notes", content=body, headers=headers)
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (413, "too_large")
        before, worker.on_call = worker.on_call, answer
        said = (await relay.call("notes", "echo", {"n": 1})).json()
        assert said["error"]["data"]["reason"] == "result_too_large"
        worker.on_call = before
        assert "result" in (await relay.call("notes", "echo", {"n": 1})).json()


def test_unread_notices_have_a_limit_over_all_callers() -> None:
    crowd = [Pending(Call("c", number, "tools/call", "{}", CALLER)) for number in range(200)]
    for pending in crowd:
        for _ in range(4):
            pending.notify(Notice("x" * 1_000_000))
    total = sum(pending._unread for pending in crowd)
    assert MAX_UNREAD_TOTAL - MAX_UNREAD_SIZE <= total <= MAX_UNREAD_TOTAL
    # A client that reads receives all of it, whatever the other clients do.
    honest = Pending(Call("c", 1, "tools/call", "{}", CALLER))
    honest.notify(Notice("y" * MIN_UNREAD_EACH))
    assert honest._unread == MIN_UNREAD_EACH
    for pending in crowd:
        pending.release()
    late = Pending(Call("c", 2, "tools/call", "{}", CALLER))
    late.notify(Notice("z" * 1_000_000))
    assert late._unread == 1_000_000


async def test_a_notice_that_is_being_written_counts_until_it_is_and_wide_characters_count_as_they_are_held() -> None:
    slow = [Pending(Call("c", number, "tools/call", "{}", CALLER)) for number in range(80)]
    for pending in slow:
        pending.notify(Notice("x" * 4_000_000))
        if pending._notices:
            await pending.next()  # and then the client stops reading
    assert sum(pending._unread for pending in slow) <= MAX_UNREAD_TOTAL
    late = Pending(Call("c", 1, "tools/call", "{}", CALLER))
    late.notify(Notice("x" * 4_000_000))
    assert late._unread == 0
    for pending in slow:
        await pending.next(0)
    late.notify(Notice("x" * 900_000 + WIDE))
    assert late._unread > 3_600_000


def test_streams_that_are_held_open_and_not_read_have_a_limit_together() -> None:
    memory = EventStore(most_bytes=1_000_000)
    crowd = [EventStream(f"s{number}", memory) for number in range(20)]
    for stream in crowd:
        stream.reader = object()
        for _ in range(3):
            stream.add(b"x" * 100_000)
    assert memory.held == sum(stream.size for stream in crowd) <= 1_000_000
    assert crowd[-1].size == 300_000


async def test_an_answer_that_no_client_fetches_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (HttpProtocol, GuardedHttp):
        monkeypatch.setattr(kind, "stall_s", 0.3)
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:

        def talk(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
            talking.append(event)

        talking: list[Received[str]] = []
        worker.on_call = talk
        deaf = sockets.socket()
        deaf.setsockopt(sockets.SOL_SOCKET, sockets.SO_RCVBUF, 4096)
        deaf.setblocking(False)
        with deaf:
            await asyncio.get_running_loop().sock_connect(deaf, ("127.0.0.1", relay.port))
            request = relay.modern("tools/call", {"name": "echo", "arguments": {}})
            body = json.dumps(request["json"]).encode()
            fields = {"Host": f"127.0.0.1:{relay.port}", "Authorization": f"Bearer {relay.token}"}
            fields |= {"Content-Type": "application/json", "Content-Length": str(len(body)), **request["headers"]}
            fields |= {"Accept": "application/json, text/event-stream"}
            head = "POST /notes HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields.items())
            await asyncio.get_running_loop().sock_sendall(deaf, head.encode() + b"\r\n" + body)
            await worker.until(lambda: bool(talking))
            note = jsonrpc.notification("notifications/message", {"level": "info", "data": "x" * 60_000})
            async with asyncio.timeout(BOUND_S):
                # It sends until the relay has noticed, and answered that no client listens any more.
                while not any(isinstance(event, Closed) for event in worker.seen):
                    worker.send(talking[0], Kind.NOTE, note)
                    await worker.flush()
                    await asyncio.sleep(0.02)


async def test_calls_without_an_answer_have_a_limit_together_also_while_they_wait_for_a_browser(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path, call_budget=50_000, away_wait_s=30, servers=("notes", "other")) as relay:

        async def reason(request: dict[str, Any]) -> str:
            answer = await relay.http.post("/other", **request)
            return str(answer.json()["error"]["data"]["reason"])

        waiting = [asyncio.create_task(relay.call("notes", "echo", {"n": "x" * 20_000})) for _ in range(2)]
        budget = relay.app.fast_path.decide.__self__._switch.budget
        await until(lambda: budget.used > 40_000)
        assert await reason(relay.modern("tools/call", {"name": "echo", "arguments": {"n": "x" * 20_000}})) == "busy"
        wanted = {"notifications": {"resourceSubscriptions": [f"note:{number}" for number in range(1000)]}}
        assert await reason(relay.modern("subscriptions/listen", wanted)) == "busy"
        async with SyntheticWorker(relay.url, relay.token, "notes"):
            assert ["result" in (await task).json() for task in waiting] == [True, True]
            assert "result" in (await relay.call("notes", "echo", {"n": "x" * 20_000})).json()
        assert budget.used == 0


class Silent(SyntheticWorker):
    """Answers only the relay's own requests, and keeps nothing."""

    def _received(self, event: Received[str]) -> None:
        if "needle" in event.payload:
            self.received = True
        else:
            super()._received(event)

    received = False


@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("method", ["tools/call", "resources/read", "completion/complete", "subscriptions/listen"])
@pytest.mark.parametrize("size", [0, 100_000], ids=["small", "large"])
async def test_a_call_that_waits_for_its_answer_is_text_and_no_values(
    tmp_path: Path, era: str, method: str, size: int
) -> None:
    def kept() -> int:
        return sum(type(each) is dict and "needle" in each for each in gc.get_objects())

    async with RunningRelay(tmp_path) as relay, Silent(relay.url, relay.token, "notes") as worker:
        _, session = await relay.initialize("notes")
        padding = f', "padding": "{"x" * size}"'
        given = f'{{"needle": [1], "arguments": {{"needle": [1]}}, "name": "echo", "uri": "echo"{padding}'
        if era == "modern":
            request = relay.modern(method, {"name": "echo", "uri": "echo"})
            about = json.dumps(request["json"]["params"]["_meta"])
            given, headers = f'{given}, "_meta": {about}', request["headers"]
        else:
            headers = session
        body = f'{{"jsonrpc": "2.0", "id": 1, "method": "{method}", "params": {given}}}}}'
        headers = {**headers, "Content-Type": "application/json"}
        call = asyncio.create_task(relay.http.post("/notes", content=body, headers=headers))
        await worker.until(lambda: worker.received)
        assert kept() == 0
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


async def test_a_batch_that_waits_for_its_answers_is_text_and_no_values(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, Silent(relay.url, relay.token, "notes") as worker:
        _, session = await relay.initialize("notes", "2025-03-26")
        params = {"name": "echo", "arguments": {"needle": [[]]}}
        content = json.dumps([jsonrpc.request(number, "tools/call", params) for number in (1, 2)]).encode()
        del params
        headers = {**session, "Content-Type": "application/json"}
        call = asyncio.create_task(relay.http.post("/notes", content=content, headers=headers))
        await worker.until(lambda: worker.received)
        assert sum(type(each) is dict and "needle" in each for each in gc.get_objects()) == 0
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.parametrize("said", ["clientInfo", "capabilities"])
async def test_the_description_of_a_client_is_short(tmp_path: Path, said: str) -> None:
    much = {"name": "test", "version": "1", "more": "x" * MAX_CLIENT_INFO}
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes"):
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        greeting = jsonrpc.request(1, "initialize", {**about, said: much})
        refused = await relay.http.post("/notes", json=greeting)
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (413, "too_large")
        key = "clientInfo" if said == "clientInfo" else "clientCapabilities"
        meta = {f"io.modelcontextprotocol/{key}": much}
        request = relay.modern("tools/call", {"name": "echo", "arguments": {}, "_meta": meta})
        refused = await relay.http.post("/notes", **request)
        assert (refused.status_code, refused.json()["error"]["data"]["reason"]) == (413, "too_large")
        assert "result" in (await relay.call("notes", "echo", {"n": 1})).json()
