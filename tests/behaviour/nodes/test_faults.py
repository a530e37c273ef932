"""Real faults: relays are processes and the bus is a nats-server; they are killed, suspended and started again."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tabserver import Context, tool
from tabserver.handlers.toolbox import Toolbox
from tabserver.wire.events import Closed, Received
from tests.support.cpython_worker import CPythonWorker
from tests.support.demo import Demo
from tests.support.link_worker import ECHO_TOOL, OTHER_TOOL, SyntheticWorker
from tests.support.nats_server import NatsServer
from tests.support.relay_pair import Stream, answer_of, open_session, request
from tests.support.running_relay import ACCEPT, events, modern
from tests.support.waiting import until

# Patient nodes give a browser time to connect to another node, even on a slow machine; hasty ones give up soon.
PATIENT_S, HASTY_S = 6.0, 0.5
# Much less than the time that a call waits for an absent browser.
AT_ONCE_S = 3.0
SETTINGS = {"away_wait_s": 15, "call_deadline_s": 60, "call_log": "none", "drain_spread_s": 0.5}


class Node:
    """One relay in a separate process."""

    def __init__(self, home: Path, bus: str, beat_s: float) -> None:
        self.process = Demo(home, "--bus", bus, verb="serve", bus_beat_s=beat_s, **SETTINGS)
        self.http = httpx2.AsyncClient(trust_env=False, timeout=60)

    async def start(self) -> None:
        """Also used for a restart: at the same address, with the same token."""
        await self.process.start()
        self.http.base_url = httpx2.URL(self.url)
        self.http.headers.update({"Authorization": f"Bearer {self.process.token}", "Accept": ACCEPT})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.port}"

    @property
    def token(self) -> str:
        return self.process.token

    async def call(self, tool: str, arguments: dict[str, Any] | None = None, server: str = "notes") -> dict[str, Any]:
        params = {"name": tool, "arguments": arguments or {}}
        return answer_of(await self.http.post(f"/{server}", **modern("tools/call", params)))

    async def knows(self, nodes: int) -> None:
        async def is_known() -> bool:
            return len((await self.http.get("/-/status")).json()["nodes"]) == nodes

        await until(is_known, 60)  # patient nodes take 18 to 24 s to declare a killed one lost

    async def end(self) -> None:
        await self.http.aclose()
        self.process.signal(signal.SIGCONT)
        await self.process.stop()


@asynccontextmanager
async def nodes(home: Path, bus: str, count: int, beat_s: float) -> AsyncIterator[list[Node]]:
    async with AsyncExitStack() as stack:
        first = Node(home, bus, beat_s)  # it creates the keys that all nodes share
        await first.start()
        stack.push_async_callback(first.end)
        made = [first, *(Node(home, bus, beat_s) for _ in range(count - 1))]
        await asyncio.gather(*(node.start() for node in made[1:]))
        for node in made[1:]:
            stack.push_async_callback(node.end)
        for node in made:
            await node.knows(count)
        yield made


@pytest.fixture(scope="module")
async def bus(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path_factory.mktemp("nats")) as server:
        yield server


@pytest.fixture(scope="module")
async def trio(tmp_path_factory: pytest.TempPathFactory, bus: NatsServer) -> AsyncIterator[list[Node]]:
    """A test that kills a relay starts it again. Each test uses another server name."""
    async with nodes(tmp_path_factory.mktemp("trio"), bus.url, 3, PATIENT_S) as made:
        yield made


@pytest.fixture(scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory, bus: NatsServer) -> AsyncIterator[list[Node]]:
    async with nodes(tmp_path_factory.mktemp("pair"), bus.url, 2, HASTY_S) as made:
        yield made


class Slow:
    """A tool that runs until the test lets it end; counts its runs by argument."""

    def __init__(self) -> None:
        self.runs: Counter[int] = Counter()
        self.opened = asyncio.Event()
        self.box = Toolbox()

        @tool(toolbox=self.box)
        async def slow(number: int = 0) -> str:
            self.runs[number] += 1
            await self.opened.wait()
            return f"done {number}"

        @tool(toolbox=self.box)
        async def quick(number: int = 0) -> str:
            self.runs[number] += 1
            return f"done {number}"


def text_of(answer: dict[str, Any]) -> str:
    assert "result" in answer, answer
    return str(answer["result"]["content"][0]["text"])


async def test_an_owner_that_is_killed_loses_its_socket_and_no_call(trio: list[Node]) -> None:
    a, b, c = trio
    slow = Slow()
    async with CPythonWorker(b.url, b.token, "killed", slow.box) as worker:
        worker.dialer.set_target(c.url)  # for the next connection
        calls = [asyncio.create_task(a.call("slow", {"number": number}, "killed")) for number in range(5)]
        await until(lambda: len(slow.runs) == 5)
        await b.process.kill()
        await until(lambda: worker.dialer.opened == 2)
        slow.opened.set()
        assert [text_of(await call) for call in calls] == [f"done {number}" for number in range(5)]
        assert set(slow.runs.values()) == {1}
    await b.start()  # meanwhile the other nodes declare its predecessor lost


async def test_calls_of_a_killed_owner_whose_browser_does_not_come_back_end_as_unknown(pair: list[Node]) -> None:
    a, b = pair
    worker = SyntheticWorker(b.url, b.token, "gone")
    await worker.dial()
    await worker.until(lambda: worker.link.is_up)
    worker.on_call = lambda *_: None
    call = asyncio.create_task(a.call("echo", server="gone"))
    await until(lambda: len(worker.calls) == 1)
    await b.process.kill()
    error = (await call)["error"]["data"]
    assert (error["reason"], error["delivered"]) == ("browser_gone", "unknown")
    servers = (await a.http.get("/-/status")).json()["servers"]
    assert [row["state"] for row in servers if row["name"] == "gone"] == ["offline"]  # no stale entry remains
    await worker.dropped()
    await b.start()
    await a.knows(2)


async def test_an_owner_that_is_stopped_is_lost_until_it_goes_on(pair: list[Node]) -> None:
    a, b = pair
    async with SyntheticWorker(b.url, b.token, "stopped") as worker:
        asked: list[Received[str]] = []
        worker.on_call = lambda _worker, event, _message: asked.append(event)
        call = asyncio.create_task(a.call("echo", server="stopped"))
        await until(lambda: len(asked) == 1)
        b.process.signal(signal.SIGSTOP)
        error = (await call)["error"]["data"]
        assert (error["reason"], error["delivered"]) == ("browser_gone", "unknown")
        b.process.signal(signal.SIGCONT)
        await a.knows(2)
        worker.on_call = SyntheticWorker.echo
        assert text_of(await a.call("echo", {"x": 1}, "stopped")) == '{"x": 1}'


async def test_a_suspended_ingress_answers_its_callers_when_it_resumes(pair: list[Node]) -> None:
    a, b = pair
    async with SyntheticWorker(b.url, b.token, "still") as worker:
        asked: list[Received[str]] = []
        worker.on_call = lambda _worker, event, _message: asked.append(event)
        call = asyncio.create_task(a.call("echo", server="still"))
        await until(lambda: len(asked) == 1)
        a.process.signal(signal.SIGSTOP)
        channel = asked[0].channel
        await until(lambda: any(isinstance(one, Closed) and one.channel == channel for one in worker.seen))
        a.process.signal(signal.SIGCONT)
        error = (await call)["error"]["data"]
        assert (error["reason"], error["delivered"]) == ("browser_gone", "unknown")
        worker.on_call = SyntheticWorker.echo
        await b.knows(2)
        assert text_of(await a.call("echo", {"x": 1}, "still")) == '{"x": 1}'


@pytest.mark.parametrize("stopped", ["ingress", "owner"])
async def test_a_session_receives_from_its_server_again_after_a_relay_paused(pair: list[Node], stopped: str) -> None:
    a, b = pair
    still, other = (a, b) if stopped == "ingress" else (b, a)
    server = f"deaf-{stopped}"
    async with SyntheticWorker(b.url, b.token, server) as worker:
        session = await open_session(a, server)
        stream = Stream(a, "GET", server, headers=session)
        await until(receives(stream, worker))
        still.process.signal(signal.SIGSTOP)
        await other.knows(1)
        still.process.signal(signal.SIGCONT)
        await other.knows(2)
        await still.knows(2)
        await until(receives(stream, worker))
        await stream.leave()


def receives(stream: Stream, worker: SyntheticWorker) -> Callable[[], Awaitable[bool]]:
    """Whether the stream receives a change of the tools. They change until it does, because its relay may be reading
    the last list."""
    before, turns = len(stream.said), itertools.cycle([[OTHER_TOOL], [ECHO_TOOL]])

    async def is_told() -> bool:
        await worker.change_tools(next(turns))
        return len(stream.said) > before

    return is_told


async def test_when_the_ingress_is_killed_the_browser_gets_a_cancellation(pair: list[Node]) -> None:
    a, b = pair
    async with SyntheticWorker(b.url, b.token, "ingress") as worker:
        asked: list[Received[str]] = []
        worker.on_call = lambda _worker, event, _message: asked.append(event)
        call = asyncio.create_task(a.call("echo", server="ingress"))
        await until(lambda: len(asked) == 1)
        await a.process.kill()
        with pytest.raises(httpx2.HTTPError):
            await call
        channel = asked[0].channel
        await until(lambda: any(isinstance(one, Closed) and one.channel == channel for one in worker.seen))
        worker.on_call = SyntheticWorker.echo
        assert text_of(await b.call("echo", {"x": 1}, "ingress")) == '{"x": 1}'
    await a.start()
    await a.knows(2)


async def test_a_browser_goes_round_all_nodes_during_a_call_and_runs_it_once(trio: list[Node]) -> None:
    a, b, c = trio
    slow = Slow()
    async with CPythonWorker(b.url, b.token, "round", slow.box) as worker:
        calls = [asyncio.create_task(node.call("slow", {"number": n}, "round")) for n, node in enumerate(trio)]
        await until(lambda: len(slow.runs) == 3)
        for times, node in enumerate((c, a, b), 2):
            worker.dialer.set_target(node.url)
            worker.dialer.cut()
            await until(lambda times=times: worker.dialer.opened == times)
            await worker.until("connected")
        slow.opened.set()
        assert [text_of(await call) for call in calls] == ["done 0", "done 1", "done 2"]
        assert set(slow.runs.values()) == {1}


async def test_of_two_holders_of_one_name_the_older_drops_its_socket(trio: list[Node]) -> None:
    a, b, _ = trio
    async with (
        SyntheticWorker(a.url, a.token, "twice") as older,
        SyntheticWorker(b.url, b.token, "twice", inst="w2") as newer,
    ):
        await until(lambda: older.close_code == 4409)
        for node in trio:
            await node.call("echo", server="twice")
        assert (len(older.calls), len(newer.calls)) == (0, 3)


async def test_a_bus_comes_late_is_lost_and_comes_back_and_loses_no_call(tmp_path: Path) -> None:
    """Without a bus, the error comes at once, and local browsers work."""
    bus = NatsServer(tmp_path / "nats")
    await bus.start()
    await bus.kill()
    a, b = (Node(tmp_path / "home", bus.url, PATIENT_S) for _ in range(2))
    await a.start()
    await b.start()
    slow = Slow()
    try:
        async with (
            SyntheticWorker(a.url, a.token, "here"),
            CPythonWorker(b.url, b.token, "there", slow.box),
        ):
            assert text_of(await a.call("echo", {"x": 1}, "here")) == '{"x": 1}'
            async with asyncio.timeout(AT_ONCE_S):
                error = (await a.call("quick", server="there"))["error"]["data"]
            assert (error["reason"], error["delivered"], error["retryable"]) == ("relay_unavailable", "no", True)
            await bus.start()
            await a.knows(2)
            calls = [asyncio.create_task(a.call("slow", {"number": n}, "there")) for n in range(5)]
            await until(lambda: len(slow.runs) == 5)
            await bus.kill()

            async def is_said() -> bool:
                answer = await a.call("quick", {"number": 99}, "there")
                return "error" in answer and answer["error"]["data"]["reason"] == "relay_unavailable"

            await until(is_said)
            async with asyncio.timeout(AT_ONCE_S):
                assert await is_said()
            assert text_of(await a.call("echo", {"x": 3}, "here")) == '{"x": 3}'
            slow.opened.set()  # the answers can't be sent
            assert text_of(await b.call("quick", {"number": 7}, "there")) == "done 7"
            await bus.start()
            assert [text_of(await call) for call in calls] == [f"done {number}" for number in range(5)]
            assert {slow.runs[number] for number in range(5)} == {1}
    finally:
        await a.end()
        await b.end()
        await bus.kill()


class Asking(Slow):
    """A tool that asks its client when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_asked = False

        @tool(toolbox=self.box)
        async def greet(ctx: Context) -> str:
            self.runs[0] += 1
            await self.opened.wait()
            self.has_asked = True
            said = (await ctx.elicit("Name?", FORM)).content
            return f"Hello {said and said['name']}"


FORM: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}


@pytest.mark.parametrize("lost", ["question", "answer", "both"])
async def test_a_question_outlives_a_restart_of_the_bus(tmp_path: Path, lost: str) -> None:
    """A question or answer that is sent while there is no nats-server arrives when there is one again, exactly once."""
    asking = Asking()
    async with (
        NatsServer(tmp_path / "nats") as bus,
        nodes(tmp_path / "home", bus.url, 2, PATIENT_S) as (a, b),
        CPythonWorker(b.url, b.token, "asking", asking.box),
    ):
        session = await open_session(a, "asking", {"elicitation": {}})
        body = request("tools/call", {"name": "greet", "arguments": {}})
        stream = Stream(a, "POST", "asking", json=body, headers=session)
        await until(lambda: asking.runs[0] == 1)
        if lost != "answer":
            await bus.kill()
        asking.opened.set()
        await until(lambda: asking.has_asked)
        if lost != "answer":
            # The browser's relay has received the question, because it has received a later message of the browser.
            assert text_of(await b.call("quick", {"number": 1}, "asking")) == "done 1"
            await bus.start()
        question = await stream.question()
        if lost != "question":
            await bus.kill()
        said = {"jsonrpc": "2.0", "id": question["id"], "result": {"action": "accept", "content": {"name": "Ada"}}}
        assert (await a.http.post("/asking", json=said, headers=session)).status_code == 202
        if lost != "question":
            await bus.start()
        assert text_of(await stream.end()) == "Hello Ada"
        assert stream.methods() == ["elicitation/create"]
        assert asking.runs[0] == 1


async def test_a_stream_whose_relay_is_killed_while_another_reads_it_ends_with_the_truth(pair: list[Node]) -> None:
    a, b = pair
    slow = Slow()
    async with CPythonWorker(a.url, a.token, "lent", slow.box):
        session = await open_session(b, "lent")
        body = request("tools/call", {"name": "slow", "arguments": {}})
        stream = Stream(b, "POST", "lent", json=body, headers=session)
        await until(lambda: bool(stream.ids))
        await stream.leave()
        again = Stream(a, "GET", "lent", headers={**session, "Last-Event-ID": stream.ids[-1]})
        await until(lambda: again.status == 200)
        await b.process.kill()
        error = (await again.end())["error"]
        assert again.said[-1]["id"] == body["id"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("browser_gone", "unknown")
        gone = Stream(a, "GET", "lent", headers={**session, "Last-Event-ID": stream.ids[-1]})
        await gone.end()
        assert (gone.status, gone.error["data"]["reason"]) == (400, "unknown_event")
        assert "is gone" in gone.error["message"]
    await b.start()
    await a.knows(2)


class Load:
    """Callers that retry at the next node when nothing was delivered, and only then. Each request of a session goes to
    another node too."""

    def __init__(self, made: list[Node], session: dict[str, str] | None = None) -> None:
        self._session = session
        self._nodes = itertools.cycle(made)
        self._numbers = itertools.count(1)
        self.is_over = False
        self.done: list[int] = []
        self.lost: list[object] = []

    async def run(self) -> None:
        while not self.is_over:
            number = next(self._numbers)
            await self._until_done(number)

    async def _call(self, node: Node, number: int) -> dict[str, Any]:
        if self._session is None:
            return await node.call("quick", {"number": number}, "rolling")
        body = request("tools/call", {"name": "quick", "arguments": {"number": -number}}, id=number)
        response = await node.http.post("/rolling", json=body, headers=self._session)
        if "event-stream" not in response.headers["content-type"]:
            answer: dict[str, Any] = response.json()
            return answer
        said = [json.loads(data) for data in events(response.text)]  # the node took a while
        return said[-1] if said else {"error": {"data": {"delivered": "a stream without an answer"}}}

    async def _until_done(self, number: int) -> None:
        async with asyncio.timeout(60):
            while True:
                node = next(self._nodes)
                try:
                    answer = await self._call(node, number)
                except (httpx2.ConnectError, httpx2.ConnectTimeout):  # the node is away now
                    await asyncio.sleep(0.05)
                    continue
                except httpx2.HTTPError as error:
                    self.lost.append(error)
                    return
                if "result" in answer:
                    self.done.append(number)
                    return
                if answer["error"]["data"]["delivered"] != "no":
                    self.lost.append(answer)
                    return
                await asyncio.sleep(0.05)


async def test_a_rolling_restart_of_three_nodes_under_load_loses_nothing(trio: list[Node]) -> None:
    slow = Slow()
    worker = CPythonWorker(trio[0].url, trio[0].token, "rolling", slow.box)
    worker.dialer.rotate_targets(*(node.url for node in trio))
    async with worker:
        modern_load, legacy_load = loads = Load(trio), Load(trio, await open_session(trio[0], "rolling"))
        callers = [asyncio.create_task(load.run()) for load in loads for _ in range(2)]
        for node in trio:
            await until(have_done(loads, 10), 60)
            await node.process.stop()
            await node.start()
            for other in trio:
                await other.knows(3)
        await until(have_done(loads, 10), 60)
        for load in loads:
            load.is_over = True
        await asyncio.gather(*callers)
    assert [load.lost for load in loads] == [[], []]
    assert worker.dialer.opened > 1  # the session's own node was among them
    asked = [*modern_load.done, *(-number for number in legacy_load.done)]
    assert {number: slow.runs[number] for number in asked} == dict.fromkeys(asked, 1)


def have_done(loads: tuple[Load, ...], more: int) -> Callable[[], bool]:
    """Whether each has made this many more calls than now."""
    before = [len(load.done) for load in loads]
    return lambda: all(len(load.done) >= count + more for load, count in zip(loads, before, strict=True))
