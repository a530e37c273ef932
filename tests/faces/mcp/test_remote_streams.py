"""A client resumes its stream at another relay than the one that holds it (`Last-Event-ID`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tabrelay.bus.members import Membership
from tabrelay.faces.mcp.event_store import node_of
from tabrelay.faces.mcp.session_store import digest
from tabserver import Context, tool
from tabserver.handlers.toolbox import Toolbox
from tests.support.cpython_worker import CPythonWorker
from tests.support.memory_bus import MemoryBus
from tests.support.relay_pair import Pair, Stream, open_session, request
from tests.support.running_relay import RunningRelay
from tests.support.waiting import until

# The result contains the value twice: as text and as structured content.
LARGE = 8 * 1024 * 1024 - 4096


@pytest.fixture(autouse=True)
async def answers_to_requests_at_the_other_relay(pair: Pair) -> AsyncIterator[None]:
    """A relay's recorder records answers to requests that another relay received. All other messages must be
    correct."""
    yield
    wrong = [text for relay in (pair.a, pair.b) for text in relay.recorder.discard_violations()]
    assert [text for text in wrong if "an answer to a request that was not made" not in text] == []


class Steps:
    """A tool that reports each step that the test allows, and then answers."""

    def __init__(self) -> None:
        self.runs = 0
        self.to_go: asyncio.Queue[int] = asyncio.Queue()
        self.box = Toolbox()

        @tool(toolbox=self.box)
        async def work(ctx: Context, steps: int = 3, size: int = 4) -> str:
            self.runs += 1
            for step in range(1, steps + 1):
                await self.to_go.get()
                ctx.progress(step)
            return "x" * size

        @tool(toolbox=self.box)
        async def leave(ctx: Context) -> str:
            self.runs += 1
            ctx.progress(1)
            ctx.close_stream(retry_ms=10)
            await self.to_go.get()
            return "done"

    def go(self, steps: int) -> None:
        for step in range(steps):
            self.to_go.put_nowait(step)


def call(tool: str = "work", **arguments: Any) -> dict[str, Any]:
    return request("tools/call", {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}})


def progress(stream: Stream) -> list[int]:
    return [message["params"]["progress"] for message in stream.said if "method" in message]


def text_of(message: dict[str, Any]) -> str:
    return str(message["result"]["content"][0]["text"])


def resume(relay: RunningRelay, session: dict[str, str], last: str) -> Stream:
    return Stream(relay, "GET", "notes", headers={**session, "Last-Event-ID": last})


async def read_at_the_other(pair: Pair) -> tuple[dict[str, str], Stream, str]:
    """A call at the second relay, with its stream read at the first one: session, stream, id of the first event."""
    session = await open_session(pair.b, "notes")
    stream = Stream(pair.b, "POST", "notes", json=call(), headers=session)
    await until(lambda: bool(stream.ids))
    await stream.leave()
    again = resume(pair.a, session, stream.ids[0])
    # Comments say that there is no event yet. When the relays have served other requests in between, they have done all
    # that they can, and the first relay waits for the next event.
    await until(lambda: again.comments >= 2)
    for relay in (pair.a, pair.b, pair.a):
        await relay.http.get("/-/healthz")
    return session, again, stream.ids[0]


@pytest.mark.parametrize("browser_at", ["a", "b"])
async def test_a_stream_goes_on_at_another_relay_where_it_broke_off(pair: Pair, browser_at: str) -> None:
    browser, steps = getattr(pair, browser_at), Steps()
    async with CPythonWorker(browser.url, browser.token, "notes", steps.box):
        session = await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call(), headers=session)
        steps.go(1)
        await until(lambda: progress(stream) == [1])
        await stream.leave()
        steps.go(1)  # sent while there is no reader
        again = resume(pair.a, session, stream.ids[-1])
        await until(lambda: progress(again) == [2])
        steps.go(1)
        assert text_of(await again.end()) == "xxxx"
        assert progress(again) == [2, 3]
        assert steps.runs == 1
        # Once more from the beginning; also at the relay that holds it.
        for relay in (pair.a, pair.b):
            whole = resume(relay, session, stream.ids[0])
            assert text_of(await whole.end()) == "xxxx"
            assert progress(whole) == [1, 2, 3]


async def test_a_large_result_is_read_at_another_relay(pair: Pair) -> None:
    steps = Steps()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        session = await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call(steps=1, size=LARGE), headers=session)
        await until(lambda: bool(stream.ids))
        await stream.leave()
        again = resume(pair.a, session, stream.ids[-1])
        steps.go(1)
        assert len(text_of(await again.end())) == LARGE


async def test_a_server_that_sends_its_client_away_finds_it_at_another_relay(pair: Pair) -> None:
    steps = Steps()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        session = await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call("leave"), headers=session)
        await stream.end()
        again = resume(pair.a, session, stream.ids[-1])
        await until(lambda: again.status == 200)
        steps.go(1)
        assert text_of(await again.end()) == "done"
        assert steps.runs == 1


async def test_unread_events_of_a_get_stream_are_read_at_another_relay(pair: Pair) -> None:
    box = Toolbox()
    tool(toolbox=box, name="first")(lambda: "1")
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", box):
        session = await open_session(pair.b, "notes")
        standing = Stream(pair.b, "GET", "notes", headers=session)
        await until(lambda: standing.status == 200)
        await pair.b.has_read("notes")
        tool(toolbox=box, name="second")(lambda: "2")
        await until(lambda: standing.methods() == ["notifications/tools/list_changed"])
        await standing.leave()
        tool(toolbox=box, name="third")(lambda: "3")
        await pair.b.has_read("notes", lambda row: len(row["tools"]) == 3)
        again = resume(pair.a, session, standing.ids[-1])
        await until(lambda: again.methods() == ["notifications/tools/list_changed"])
        tool(toolbox=box, name="fourth")(lambda: "4")
        await until(lambda: again.methods() == ["notifications/tools/list_changed"] * 2)
        await again.leave()


async def test_the_last_client_that_resumes_a_stream_reads_it(pair: Pair) -> None:
    steps = Steps()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        session = await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call(), headers=session)
        await until(lambda: bool(stream.ids))
        first = resume(pair.a, session, stream.ids[0])
        await stream.end()  # it stopped reading, and received nothing more
        await until(lambda: first.status == 200)
        second = resume(pair.b, session, stream.ids[0])
        await first.end()
        steps.go(3)
        assert text_of(await second.end()) == "xxxx"
        assert first.said == []


async def test_a_stream_of_another_principal_is_not_readable_at_another_relay_either(pair: Pair) -> None:
    steps = Steps()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        mine, theirs = await open_session(pair.b, "notes"), await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call(), headers=mine)
        await until(lambda: bool(stream.ids))
        refused = resume(pair.a, theirs, stream.ids[0])
        await refused.end()
        assert (refused.status, refused.error["data"]["reason"]) == (400, "unknown_event")
        token = pair.a.tokens.issue_named("other", ("call",))
        stranger = resume(pair.a, mine | {"Authorization": f"Bearer {token}"}, stream.ids[0])
        await stranger.end()
        assert (stranger.status, stranger.error["data"]["reason"]) == (404, "session_not_found")
        steps.go(3)
        assert text_of(await stream.end()) == "xxxx"  # its reader received nothing of it


async def test_a_relay_serves_a_stream_only_to_its_owner(pair: Pair) -> None:
    """The asking relay has checked the owner already; the relay that holds the stream checks again."""
    steps, answers = Steps(), asyncio.Queue[dict[str, Any]]()
    other = Membership(MemoryBus(pair.hub), pair.b.tokens.session_key())
    other.handle("lent", lambda node, header, payload: answers.put_nowait(header))
    await other.start()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        session = await open_session(pair.b, "notes")
        stream = Stream(pair.b, "POST", "notes", json=call(), headers=session)
        await until(lambda: bool(stream.ids))
        node = node_of(stream.ids[0])
        assert node is not None
        owner = pair.b.tokens.identify(pair.b.token, None)
        assert owner is not None
        mine = {"k": digest(session["Mcp-Session-Id"]), "s": "notes", "p": owner.id, "e": stream.ids[0]}
        for number, wrong in enumerate(({"p": "other"}, {"s": "other"}, {"k": "0" * 32}, {"e": "x_1"}, {})):
            other.send(node, {"op": "read", "x": number, "first": True, **mine, **wrong})
            answer = await answers.get()
            assert answer["state"] == ("unknown" if wrong else "open")
        steps.go(3)
        await stream.end()
    await other.stop()


@pytest.mark.parametrize("id", ["000000000000.abc-1_1", "get-x.y_1", "._1", "*.>-1_1", "é.1-1_0"])
async def test_invented_event_ids_name_no_stream(pair: Pair, id: str) -> None:
    async with pair.worker(pair.b, "notes"):
        session = await open_session(pair.a, "notes")
        headers: Any = {**session, "Last-Event-ID": id.encode()}
        stream = Stream(pair.a, "GET", "notes", headers=headers)
        if id.startswith("get-"):  # maybe of an earlier relay process: there is a GET stream now
            await until(lambda: stream.status == 200)
            await stream.leave()
        else:
            await stream.end()
            assert (stream.status, stream.error["data"]["reason"]) == (400, "unknown_event")


async def test_a_relay_that_stops_finishes_the_streams_it_serves_to_others(pair: Pair) -> None:
    """The call was at that relay. It sends what it can finish; afterwards no relay holds the stream."""
    steps = Steps()
    async with CPythonWorker(pair.a.url, pair.a.token, "notes", steps.box):
        session, again, begin = await read_at_the_other(pair)
        stopping = asyncio.create_task(pair.b.drain.run())
        await until(lambda: pair.b.drain.is_on)
        steps.go(3)  # the drain waits for streams that are read
        assert text_of(await again.end()) == "xxxx"
        await stopping
        await pair.b.stop()
        await pair.a.knows(nodes=1)
        gone = resume(pair.a, session, begin)
        await gone.end()
        assert (gone.status, gone.error["data"]["reason"]) == (400, "unknown_event")
        assert "gone" in gone.error["message"]


@pytest.mark.parametrize("is_brief", [False, True])
async def test_a_stream_that_is_read_at_another_relay_outlives_a_cut_of_the_bus(pair: Pair, is_brief: bool) -> None:
    steps = Steps()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", steps.box):
        session, again, begin = await read_at_the_other(pair)
        pair.hub.cut()
        if is_brief:  # events are requested again while the bus is down again
            pair.hub.restore()
            pair.hub.cut()
        steps.go(3)
        refused = resume(pair.a, session, begin)
        await refused.end()
        assert (refused.status, refused.error["data"]["reason"]) == (503, "relay_unavailable")
        pair.hub.restore()
        assert text_of(await again.end()) == "xxxx"
        assert progress(again) == [1, 2, 3]
