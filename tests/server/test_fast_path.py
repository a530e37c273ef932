"""The fast path: which calls take it, that answers equal those of the regular path, and how calls leave it."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import orjson
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tabrelay.calls.principal import CALL
from tabrelay.config.specs import BrowserSpec
from tabrelay.http.headers import RequestHeaders
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.server.uvicorn_adapter import private_api
from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import META_ACP, Kind
from tests.support.asgi_client import Answer
from tests.support.link_worker import DONE, SyntheticWorker
from tests.support.raw_http import RawConnection, call_of, raw, written
from tests.support.running_relay import ACCEPT, RunningRelay, modern
from tests.support.waiting import BOUND_S

T = TypeVar("T")

EXAMPLES = min(300, int(os.environ.get("TABRELAY_EXAMPLES", 300)))  # `make quick` takes fewer
LARGE = 300 * 1024


def act(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
    """A server that does what the tool's name says."""
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    if name == "error":
        worker.send(event, Kind.RES, jsonrpc.error_message(message["id"], -32602, "No.", None))
    elif name == "missing":
        worker.send(event, Kind.RES, jsonrpc.error_message(message["id"], jsonrpc.METHOD_NOT_FOUND, "No.", None))
    elif name == "nonsense":
        worker.send(event, Kind.RES, {"jsonrpc": "2.0", "id": "another", "result": {}})
    elif name == "large":
        content = [{"type": "text", "text": "ä" * LARGE}]
        worker.send(event, Kind.RES, jsonrpc.result_message(message["id"], {**DONE, "content": content}))
    elif name == "progress":
        note = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": "t", "progress": 1}}
        worker.send(event, Kind.NOTE, note)
        worker.echo(event, message)
    elif not isinstance(params, dict):
        worker.answer(event, {"content": []})
    elif name != "silent":
        worker.echo(event, message)


REGULAR_PATH: dict[str, Any] = {"fast_lane": False}


@asynccontextmanager
async def stage(home: Path, **more: Any) -> AsyncIterator[tuple[RunningRelay, SyntheticWorker]]:
    async with (
        RunningRelay(home, servers=("notes",), away_wait_s=0.2, **more) as relay,
        SyntheticWorker(relay.url, relay.token, "notes") as worker,
    ):
        worker.on_call = act
        yield relay, worker
        relay.recorder.discard_violations()  # this server may send invalid messages


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(BOUND_S):
        while not is_so():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.02)


@contextmanager
def on_regular_path(relay: RunningRelay) -> Iterator[None]:
    """No response takes the fast path meanwhile."""
    before = relay.recorder.tap.swift
    yield
    assert relay.recorder.tap.swift == before


async def on_fast_path(relay: RunningRelay, ask: Callable[[], Awaitable[T]]) -> T:
    """A response on the fast path. On a busy machine a call may be slow and leave it; then it is sent again."""
    before = relay.recorder.tap.swift
    async with asyncio.timeout(BOUND_S):
        while True:
            answer = await ask()
            if relay.recorder.tap.swift > before:
                return answer


async def test_a_plain_call_takes_the_fast_path_in_either_era(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):
        answer = await on_fast_path(relay, lambda: relay.call("notes", "echo", {"x": 1}))
        assert (answer.status_code, answer.json()["result"]["content"][0]["text"]) == (200, '{"x": 1}')
        _, session = await relay.initialize("notes")
        body = jsonrpc.request("a", "tools/call", {"name": "echo", "arguments": {"x": 2}})
        answer = await on_fast_path(relay, lambda: relay.http.post("/notes", json=body, headers=session))
        assert (answer.status_code, answer.headers["mcp-session-id"]) == (200, session["Mcp-Session-Id"])
        assert answer.json()["id"] == "a"


async def test_a_large_response_leaves_the_fast_path_and_arrives_complete(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):
        with on_regular_path(relay):
            answer = await relay.call("notes", "large")
        assert len(answer.json()["result"]["content"][0]["text"]) == LARGE


async def test_a_call_that_takes_long_is_answered_all_the_same(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):
        waiting: list[tuple[Received[str], dict[str, Any]]] = []
        worker.on_call = lambda worker, event, message: waiting.append((event, message))
        with on_regular_path(relay):
            call = asyncio.create_task(relay.call("notes", "echo"))
            # A call that left the fast path is recorded only where it continues.
            await until(lambda: any(asked.method == "tools/call" for asked in relay.recorder.asked))
            assert relay.drain.exchanges.count == 1
            worker.echo(*waiting[0])
            await worker.flush()
            assert (await call).json()["id"] == 1


async def test_a_call_after_one_that_left_the_fast_path_may_take_longer_than_a_connection_may_be_idle(
    tmp_path: Path,
) -> None:
    """The idle timeout starts with each answer, on either path, and ends with the next request."""
    async with stage(tmp_path, connection_idle_s=0.4) as (relay, worker):
        line, other = [await RawConnection(relay.port).open() for _ in range(2)]

        async def ask(line: RawConnection) -> None:
            line.send(written(relay, call_of("echo")))
            answer = await line.answer()
            assert answer is not None and answer.status == 200

        await on_fast_path(relay, lambda: ask(line))
        waiting: list[tuple[Received[str], dict[str, Any]]] = []
        asked = len(relay.recorder.asked)

        async def answer_late(meanwhile: Awaitable[object]) -> None:
            worker.on_call = lambda worker, event, message: waiting.append((event, message))
            line.send(written(relay, call_of("echo")))
            await until(lambda: bool(waiting))
            worker.on_call = act
            await meanwhile
            worker.echo(*waiting.pop())
            await worker.flush()
            answer = await line.answer()
            assert answer is not None and answer.status == 200

        async def rest_too_long() -> None:
            await ask(other)
            assert await other.answer() is None

        with on_regular_path(relay):
            # A call that left the fast path is recorded only where it continues.
            await answer_late(until(lambda: len(relay.recorder.asked) > asked))
        assert relay.recorder.tap.swift_again  # the late request is recognised by its header
        await answer_late(rest_too_long())
        await line.close()
        await other.close()


async def test_a_connection_that_asks_again_and_again_may_rest_as_long_after_its_last_answer(tmp_path: Path) -> None:
    idle_s = 0.4
    async with stage(tmp_path, connection_idle_s=idle_s, rate_s=0) as (relay, _):
        line, loop = await RawConnection(relay.port).open(), asyncio.get_running_loop()

        async def ask() -> None:
            line.send(written(relay, call_of("echo")))
            answer = await line.answer()
            assert answer is not None and answer.status == 200

        end = loop.time() + 1.5 * idle_s
        while loop.time() < end:
            await ask()
        await on_fast_path(relay, ask)
        before = loop.time()
        assert await line.answer() is None
        assert idle_s - 0.05 < loop.time() - before < 2 * idle_s
        await line.close()


async def test_a_client_that_disconnects_on_the_fast_path_cancels_its_call(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, worker):
        line = await RawConnection(relay.port).open()
        line.send(written(relay, call_of("silent")))
        await worker.until(lambda: bool(worker.calls))
        await line.close()
        await worker.until(lambda: any(isinstance(event, Closed) for event in worker.seen))
        await until(lambda: not relay.drain.exchanges.count)


async def test_a_body_in_pieces_is_kept_until_it_is_whole(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):
        data = written(relay, call_of("echo"))

        async def ask() -> Answer | None:
            line = await RawConnection(relay.port).open()
            for start in range(0, len(data), 100):
                line.send(data[start : start + 100])
                await asyncio.sleep(0)
            answer = await line.answer()
            await line.close()
            return answer

        answer = await on_fast_path(relay, ask)
        assert answer is not None and answer.status == 200


async def test_a_body_that_never_becomes_whole_is_refused_in_time(tmp_path: Path) -> None:
    async with stage(tmp_path, body_deadline_s=0.2) as (relay, _):
        line = await RawConnection(relay.port).open()
        line.send(written(relay, call_of("echo"))[:-5])
        answer = await line.answer()
        assert answer is not None and answer.status == 408
        await line.close()


async def test_requests_that_come_all_at_once_are_answered_in_their_order(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):
        line = await RawConnection(relay.port).open()
        line.send(b"".join(written(relay, call_of("echo", id=id)) for id in range(5)))
        for id in range(5):
            answer = await line.answer()
            assert answer is not None and answer.json()["id"] == id
        await line.close()


async def test_the_connection_is_closed_when_the_client_wants_that(tmp_path: Path) -> None:
    async with stage(tmp_path) as (relay, _):

        async def ask() -> Answer | None:
            line = await RawConnection(relay.port).open()
            line.send(written(relay, call_of("echo"), ("Connection", "close")))
            answer = await line.answer()
            assert await line.answer() is None
            await line.close()
            return answer

        answer = await on_fast_path(relay, ask)
        assert answer is not None and (answer.status, answer.header("connection")) == (200, "close")


async def test_the_fast_path_has_the_same_rate_limit_as_the_regular_path(tmp_path: Path) -> None:
    async with stage(tmp_path, rate_s=0.001, rate_burst=5) as (relay, _):  # the worker took one to come in
        wrong = modern("tools/call", {"name": "echo"})
        wrong["headers"]["Mcp-Name"] = "other"
        statuses = [(await relay.http.post("/notes", **wrong)).status_code]
        statuses += [(await relay.call("notes", name)).status_code for name in ("echo", "progress", "echo", "echo")]
        assert statuses == [400, 200, 200, 200, 429]


async def test_a_header_that_was_taken_opens_no_other_server_when_its_address_becomes_that_ones(tmp_path: Path) -> None:
    def specs(**paths: str | None) -> list[BrowserSpec]:
        return [BrowserSpec(name=name, path=paths.get(name)) for name in ("notes", "secret")]

    async with (
        RunningRelay(tmp_path, servers=("notes", "secret"), specs=specs(notes="/db")) as relay,
        SyntheticWorker(relay.url, relay.token, "notes"),
        SyntheticWorker(relay.url, relay.token, "secret") as secret,
    ):
        token = relay.tokens.issue_named("guest", [CALL], ["notes"])
        request = written(relay, call_of("echo"), path="/db", token=token)
        line = await RawConnection(relay.port).open()

        async def ask() -> Answer | None:
            line.send(request)
            return await line.answer()

        for _ in range(2):  # the second by its cached header
            answer = await on_fast_path(relay, ask)
            assert answer is not None and answer.status == 200
        assert relay.recorder.tap.swift_again
        await relay.app.change(specs(secret="/db"))
        answer = await ask()
        assert answer is not None and answer.status == 403
        assert secret.calls == []
        await line.close()


async def test_a_call_for_which_there_is_no_room_is_refused(tmp_path: Path) -> None:
    async with stage(tmp_path, in_flight_server=1) as (relay, worker):
        first = asyncio.create_task(relay.call("notes", "silent"))
        await worker.until(lambda: bool(worker.calls))
        answer = await relay.call("notes", "echo")
        assert answer.json()["error"]["data"]["reason"] == "busy"
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


async def test_without_the_setting_everything_takes_the_regular_path(tmp_path: Path) -> None:
    async with stage(tmp_path, **REGULAR_PATH) as (relay, _):
        with on_regular_path(relay):
            assert (await relay.call("notes", "echo")).status_code == 200


async def test_with_another_web_server_everything_takes_the_regular_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_api, "CYCLE_PARAMETERS", ("scope",))
    async with stage(tmp_path) as (relay, _):
        with on_regular_path(relay):
            assert (await relay.call("notes", "echo")).status_code == 200


# -- the same answers on both paths ------------------------------------------------------------------------------------


ODD: dict[str, list[str]] = {
    "Host": ["HOST", "HOST ", "evil.example", ""],
    "Authorization": ["Bearer TOKEN", "bearer TOKEN", "Bearer  TOKEN", "Bearer TOKENx", "Basic TOKEN", ""],
    "Accept": [ACCEPT, "*/*", "application/json", "text/event-stream, application/json", ""],
    "Content-Type": ["application/json", "Application/JSON; charset=utf-8", "text/plain", ""],
    "Content-Encoding": ["identity", "gzip"],
    "MCP-Protocol-Version": ["2026-07-28", "2025-11-25", "2025-03-26", "1999-01-01", "2026-07-28 "],
    "Mcp-Method": ["tools/call", "tools/call\t", "tools/list", ""],
    "Mcp-Name": ["echo", "=?base64?ZWNobw==?=", "=?base64?!?=", "error", "\xe9"],
    "Mcp-Param-Region": ["eu"],
    "Mcp-Session-Id": ["SESSION", "SESSION", "s1.AAAA", ""],
    "Origin": ["null", "https://evil.example", "http://HOST"],
    "Connection": ["close", "keep-alive"],
    "Expect": ["100-continue"],
    "Tabrelay-Acp": ["other 1"],
}
PATHS = ["/notes/", "/notes?a=b", "/n%6ftes", "/unknown", "/notes~x", "/-notes", "//notes"]
BODIES = [b"", b"{", b"[]", b"null", b"[" * 200, b"\xff"]
TOOLS = ["echo", "echo", "error", "missing", "nonsense", "large", "progress"]
PLAIN = {name: values[0] for name, values in ODD.items() if name in ("Host", "Authorization", "Accept", "Content-Type")}


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, list[tuple[str, str]], bytes]:
    """A valid request with up to three changes."""
    tool = draw(st.sampled_from(TOOLS))
    method = draw(st.sampled_from(["tools/call"] * 4 + ["resources/read", "prompts/get", "tools/list", "no/such"]))
    id = draw(st.sampled_from([1, "a", 0, -1, 2**60]))
    is_modern = draw(st.booleans())
    message = call_of(tool, id=id, method=method)
    headers = dict(PLAIN)
    if is_modern:
        headers |= {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": tool}
    else:
        del message["params"]["_meta"]
        headers |= {"MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "SESSION"}
    lines = list(headers.items())
    body = orjson.dumps(message)
    path = "/notes"
    for change in draw(st.lists(st.sampled_from(["drop", "odd", "twice", "body", "message", "path"]), max_size=3)):
        if change == "drop" and lines:
            lines.pop(draw(st.integers(0, len(lines) - 1)))
        elif change == "twice" and lines:
            lines.append(draw(st.sampled_from(lines)))
        elif change == "odd":
            name = draw(st.sampled_from(sorted(ODD)))
            lines = [line for line in lines if line[0] != name or draw(st.booleans())]
            lines.append((name, draw(st.sampled_from(ODD[name]))))
        elif change == "path":
            path = draw(st.sampled_from(PATHS))
        elif change == "body":
            body = draw(st.sampled_from([*BODIES, body + b" ", b"[" + body + b"]"]))
        else:
            key = draw(st.sampled_from(["jsonrpc", "id", "method", "params"]))
            value: Any = draw(st.sampled_from([None, 1.5, True, "x", {}, {"_meta": {}}, {"name": 1}]))
            body = orjson.dumps({**message, key: value})
    return path, lines, body


class Both:
    """A relay with the fast path and one without, and a session at each."""

    def __init__(self, *relays: RunningRelay) -> None:
        self._relays = relays
        self._sessions: list[str] = []

    async def start(self) -> None:
        self._sessions = [(await relay.initialize("notes"))[1]["Mcp-Session-Id"] for relay in self._relays]

    async def compare(self, path: str, lines: list[tuple[str, str]], *bodies: bytes) -> None:
        """The answers to these requests, one after the other on one connection."""
        for _ in range(5):
            swift, plain = [await self._ask(number, path, lines, bodies) for number in range(2)]
            if swift == plain:
                return
            # On a busy machine one of them may have taken so long that its answer became a stream.
        assert swift == plain

    async def _ask(self, number: int, path: str, lines: list[tuple[str, str]], bodies: Sequence[bytes]) -> Any:
        relay, session = self._relays[number], self._sessions[number]
        own = {"HOST": f"127.0.0.1:{relay.port}", "TOKEN": relay.token, "SESSION": session}

        def filled(text: str) -> str:
            for word, value in own.items():
                text = text.replace(word, value)
            return text

        def bare(text: str) -> str:
            for word, value in own.items():
                text = text.replace(value, word)
            return text

        line = await RawConnection(relay.port).open()
        answers: list[Any] = []
        for body in bodies:
            line.send(raw(path, [(name, filled(value)) for name, value in lines], body))
            answer = await line.answer()
            if answer is None:
                answers.append(None)
                break
            headers = sorted((name, bare(value)) for name, value in answer.headers if name != "date")
            answers.append((answer.status, headers, self._body(answer, bare)))
        await line.close()
        return answers

    def _body(self, answer: Answer, bare: Any) -> str:
        """For a stream, only the first event: how many of them arrive together is random."""
        text = bare(answer.body.decode())
        first = text.partition("\n\n")[0] if answer.header("content-type") == "text/event-stream" else text
        return "id" if first.startswith("id: ") else str(first)


@pytest.mark.requirement("bad-input")
def test_whatever_is_asked_gets_the_same_answer_on_both_ways(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        swift, plain = stage(tmp_path / "a", rate_s=0), stage(tmp_path / "b", rate_s=0, **REGULAR_PATH)
        (first, _), (second, _) = runner.run(swift.__aenter__()), runner.run(plain.__aenter__())
        both = Both(first, second)
        runner.run(both.start())

        @settings(
            max_examples=EXAMPLES,
            phases=(Phase.explicit, Phase.generate),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        )
        @given(requests())
        def same(request: tuple[str, list[tuple[str, str]], bytes]) -> None:
            runner.run(both.compare(*request))

        try:
            same()
            assert first.recorder.tap.swift > 0 and second.recorder.tap.swift == 0
        finally:
            runner.run(swift.__aexit__(None, None, None))
            runner.run(plain.__aexit__(None, None, None))


META = "io.modelcontextprotocol/"
# Changes to a call that has the same header as an earlier one on the fast path.
CHANGES: dict[tuple[str, ...], list[Any]] = {
    ("id",): [2, "a", True, 1.5, None, []],
    ("jsonrpc",): ["1.0", None],
    ("method",): ["tools/list", "resources/read", 1, []],
    ("params",): [None, []],
    ("params", "name"): ["error", 1],
    ("params", "arguments"): [{"y": [1]}, 1],
    ("more",): [1],
    ("params", "_meta"): [None, {}, 1],
    ("params", "_meta", "progressToken"): ["t"],
    ("params", "_meta", META + "protocolVersion"): ["2026-07-28", "2025-11-25", 1, None],
    ("params", "_meta", META + "clientCapabilities"): [{"sampling": {}}, None, []],
    ("params", "_meta", META + "clientInfo"): [{"name": "other", "version": "2"}, None, 1],
    ("params", "_meta", META_ACP): [{"server": "x", "session": "forged"}],
}


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_with_the_header_of_the_call_before_a_body_is_understood_as_on_the_regular_path(
    tmp_path: Path, era: str
) -> None:
    message = call_of("echo")
    headers = {**PLAIN, "MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "echo"}
    if era == "legacy":
        message["params"]["_meta"] = {"of": "a session"}
        headers = {**PLAIN, "MCP-Protocol-Version": "2025-11-25", "Mcp-Session-Id": "SESSION"}
    async with (
        stage(tmp_path / "a", rate_s=0) as (swift, swift_worker),
        stage(tmp_path / "b", rate_s=0, **REGULAR_PATH) as (plain, plain_worker),
    ):
        for worker in (swift_worker, plain_worker):  # lists are checked on their way
            await worker.offer([*worker.tools, {"name": "poi\u202eson", "inputSchema": {"type": "object"}}])
        both = Both(swift, plain)
        await both.start()
        for path, value in ((path, value) for path, values in CHANGES.items() for value in values):
            changed = json.loads(json.dumps(message))
            where = changed
            for key in path[:-1]:
                where = where[key]
            where[path[-1]] = value
            bodies = [orjson.dumps(each) for each in (message, message, changed, message)]
            await both.compare("/notes", list(headers.items()), *bodies)
        assert received_by(swift_worker) == received_by(plain_worker)


def received_by(worker: SyntheticWorker) -> set[tuple[str, str]]:
    """The calls that a server has received, with their callers."""
    asked = [event for event in worker.seen if isinstance(event, Received) and '"tools/call"' in event.payload]
    callers = [{} if event.caller is None else {**event.caller.to_dict(), "principal": ""} for event in asked]
    return {(event.payload, json.dumps(caller)) for event, caller in zip(asked, callers, strict=True)}


# -- parts -------------------------------------------------------------------------------------------------------------


def test_headers_are_read_by_name_and_repeated_ones_are_known() -> None:
    heading = RequestHeaders([(b"a", b" 1\t"), (b"b", b"2"), (b"a", b" 1\t"), (b"accept", b"x"), (b"accept", b"y")])
    assert (heading.first.get(b"a"), heading.all.get(b"a"), b"a" in heading.repeated) == ("1", ["1", "1"], True)
    assert (heading.first.get(b"b"), heading.all.get(b"b"), b"b" in heading.repeated) == ("2", ["2"], False)
    assert (heading.first.get(b"c"), heading.all.get(b"c"), b"c" in heading.first) == (None, None, False)
    assert heading.accept == "x,y"


async def test_waits_of_one_length_end_in_their_order_and_not_when_taken_out() -> None:
    ended: list[str] = []
    ticker: DeadlineQueue[str] = DeadlineQueue(0.05, ended.append)
    for name in ("first", "second", "third"):
        ticker.add(name)
    del ticker["second"]
    await until(lambda: len(ended) == 2)
    ticker.add("fourth")
    await until(lambda: len(ended) == 3)
    assert ended == ["first", "third", "fourth"]


async def test_a_wait_that_ends_badly_does_not_keep_the_others_from_ending() -> None:
    ended: list[str] = []

    def end(name: str) -> None:
        ended.append(name)
        if name == "first":
            raise RuntimeError(name)

    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    ticker: DeadlineQueue[str] = DeadlineQueue(0.02, end)
    ticker.add("first")
    ticker.add("second")
    await until(lambda: ended == ["first", "second"])
