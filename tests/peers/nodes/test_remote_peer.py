"""Two relays and a bus in one process: a call at one relay behaves as if its browser, at the other, were local."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tabserver import tool
from tabserver.handlers.toolbox import Toolbox
from tabserver.wire import jsonrpc
from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import Kind
from tests.support.cpython_worker import CPythonWorker
from tests.support.link_worker import DONE, OTHER_TOOL, SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.relay_pair import Pair, meeting
from tests.support.running_relay import RunningRelay, events, modern
from tests.support.waiting import until


def text_of(response: Any) -> str:
    return str(response.json()["result"]["content"][0]["text"])


async def test_a_call_reaches_a_browser_at_another_relay(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        response = await pair.a.call("notes", "echo", {"x": 1})
        assert text_of(response) == '{"x": 1}'


async def test_many_calls_at_once_get_their_own_answers(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        answers = await asyncio.gather(*(pair.a.call("notes", "echo", {"x": n}) for n in range(40)))
        assert [json.loads(text_of(answer)) for answer in answers] == [{"x": n} for n in range(40)]


async def test_a_name_that_no_relay_has_is_known_at_once(pair: Pair) -> None:
    response = await pair.a.call("unknown", "echo")
    assert response.status_code == 404
    assert response.json()["error"]["data"]["reason"] == "unknown_server"


async def test_a_name_that_another_relay_has_seen_is_offline_and_not_unknown(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        await pair.b.has_read("notes")
    listed = await pair.a.http.post("/notes", **modern("tools/list"))
    assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["echo"]


async def test_a_call_waits_for_a_browser_that_connects_to_another_relay(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        await pair.a.call("notes", "echo")
    waiting = asyncio.create_task(pair.a.call("notes", "echo", {"late": True}))
    await until(lambda: pair.a.drain.exchanges.count == 1)  # the call is at the relay, which did not refuse it
    async with pair.worker(pair.b, "notes", inst="w2"):
        assert text_of(await waiting) == '{"late": true}'


async def test_progress_arrives_before_the_result(pair: Pair) -> None:
    def work(worker: SyntheticWorker, event: Received[str], message: dict[str, Any]) -> None:
        token = message["params"]["_meta"]["progressToken"]
        for step in (1, 2):
            note = jsonrpc.notification("notifications/progress", {"progressToken": token, "progress": step})
            worker.send(event, Kind.NOTE, note)
        worker.answer(event, {"content": []})

    async with pair.worker(pair.b, "notes") as worker:
        worker.on_call = work
        response = await pair.a.call("notes", "echo", _meta={"progressToken": "p"})
        said = [json.loads(data) for data in events(response.text)]
        assert [message.get("method") for message in said] == ["notifications/progress"] * 2 + [None]
        assert said[-1]["result"] == DONE


async def test_a_cancelled_call_is_closed_at_the_browser(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes") as worker:
        worker.on_call = lambda *_: None
        call = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        call.cancel()
        await until(lambda: any(isinstance(event, Closed) for event in worker.seen))


async def test_large_results_and_arguments_travel_in_parts(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes"):
        large = "ü" * 1_200_000
        response = await pair.a.call("notes", "echo", {"x": large})
        assert json.loads(text_of(response)) == {"x": large}


async def test_a_call_whose_browser_left_with_it_has_an_unknown_outcome(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes") as worker:
        worker.on_call = lambda *_: None
        call = asyncio.create_task(pair.a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        async with pair.worker(pair.b, "notes", inst="w2"):
            error = (await call).json()["error"]
            assert error["data"]["reason"] == "browser_gone"
            assert error["data"]["delivered"] == "unknown"


async def test_a_busy_browser_refuses_with_nothing_delivered(tmp_path: Path) -> None:
    hub = MemoryBroker()
    limit: dict[str, Any] = {"in_flight_server": 1}
    async with (
        RunningRelay(tmp_path, bus=MemoryBus(hub), **limit) as a,
        RunningRelay(tmp_path, bus=MemoryBus(hub), **limit) as b,
        SyntheticWorker(b.url, b.token, "notes") as worker,
    ):
        await a.has_found("notes")
        worker.on_call = lambda *_: None
        first = asyncio.create_task(a.call("notes", "echo"))
        await until(lambda: len(worker.calls) == 1)
        error = (await a.call("notes", "echo")).json()["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("busy", "no")
        first.cancel()


class Gate:
    """A tool that runs until a test lets it end, and counts its runs."""

    def __init__(self) -> None:
        self.runs = 0
        self.opened = asyncio.Event()
        self.box = Toolbox()

        @tool(toolbox=self.box)
        async def slow() -> str:
            self.runs += 1
            await self.opened.wait()
            return "done"


@pytest.mark.parametrize("target", ["b", "a"])
async def test_a_browser_that_moves_takes_its_calls_along_and_runs_them_once(pair: Pair, target: str) -> None:
    """From the second relay to the first, which has the request, or away from it."""
    source, goal = (pair.a, pair.b) if target == "b" else (pair.b, pair.a)
    gate = Gate()
    async with CPythonWorker(source.url, source.token, "notes", gate.box) as worker:
        call = asyncio.create_task(pair.a.call("notes", "slow"))
        await until(lambda: gate.runs == 1)
        worker.dialer.set_target(goal.url)
        worker.dialer.cut()
        await until(lambda: worker.dialer.opened == 2)
        await worker.until("connected")
        gate.opened.set()
        assert text_of(await call) == "done"
        assert gate.runs == 1


async def test_of_two_holders_the_older_drops_its_socket(pair: Pair) -> None:
    async with pair.worker(pair.a, "notes") as older, pair.worker(pair.b, "notes", inst="w2") as newer:
        await older.until(lambda: older.close_code == 4409, 20)
        for relay in (pair.a, pair.b):
            await relay.call("notes", "echo")
        assert len(newer.calls) == 2
        assert older.calls == []


async def test_a_page_of_another_principal_cannot_take_a_name_at_another_relay(pair: Pair) -> None:
    token = pair.a.tokens.issue_named("other", ("serve",))
    async with pair.worker(pair.a, "notes") as holder:
        thief = SyntheticWorker(pair.b.url, token, "notes", inst="thief")
        with pytest.raises(Exception, match="403"):
            await thief.dial()
        assert holder.close_code is None


async def test_lists_that_change_are_notified_at_the_other_relay(pair: Pair) -> None:
    async with pair.worker(pair.b, "notes") as worker:
        await pair.a.has_found("notes")
        params = {"notifications": {"toolsListChanged": True}}
        worker.on_listen = lambda event: worker.send(
            event,
            Kind.NOTE,
            jsonrpc.notification(
                "notifications/subscriptions/acknowledged",
                {"notifications": {"toolsListChanged": True}, "_meta": {META_SUBSCRIPTION: event.id}},
            ),
        )
        received: list[str] = []

        async def listen() -> None:
            async with pair.a.http.stream("POST", "/notes", **modern("subscriptions/listen", params)) as response:
                async for line in response.aiter_lines():
                    received.append(line)

        listening = asyncio.create_task(listen())
        await until(lambda: any("acknowledged" in line for line in received))
        await worker.change_tools([OTHER_TOOL])
        await until(lambda: any("tools/list_changed" in line for line in received))
        listed = await pair.a.http.post("/notes", **modern("tools/list"))
        assert [tool["name"] for tool in listed.json()["result"]["tools"]] == ["other"]
        listening.cancel()


META_SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


async def test_a_lost_bus_is_reported_at_once_and_local_browsers_continue(pair: Pair) -> None:
    async with pair.worker(pair.a, "here"), pair.worker(pair.b, "there"):
        await pair.a.call("there", "echo")
        pair.hub.cut()
        assert text_of(await pair.a.call("here", "echo", {"x": 1})) == '{"x": 1}'
        error = (await pair.a.call("there", "echo")).json()["error"]
        assert (error["data"]["reason"], error["data"]["delivered"]) == ("relay_unavailable", "no")
        pair.hub.restore()
        assert text_of(await pair.a.call("there", "echo", {"x": 2})) == '{"x": 2}'


async def test_a_result_that_was_lost_with_the_bus_is_asked_for_again(pair: Pair) -> None:
    gate = Gate()
    async with CPythonWorker(pair.b.url, pair.b.token, "notes", gate.box):
        call = asyncio.create_task(pair.a.call("notes", "slow"))
        await until(lambda: gate.runs == 1)
        pair.hub.cut()
        gate.opened.set()
        # The answer reaches the relay that the browser is connected to, and goes no further.
        await until(lambda: pair.b.drain.exchanges.count == 0)
        pair.hub.restore()
        assert text_of(await call) == "done"
        assert gate.runs == 1


async def test_browsers_that_share_a_name_are_found_at_every_relay(pair: Pair) -> None:
    async with (
        pair.worker(pair.a, "shared", browser="laptop"),
        pair.worker(pair.b, "shared", inst="w2", browser="phone") as phone,
    ):
        for relay in (pair.a, pair.b):
            await relay.call("shared~phone", "echo")
        assert len(phone.calls) == 2
        await phone.show_tabs("t1", used=1)
        seen = len(phone.calls)

        async def went_to_phone() -> bool:
            await pair.a.call("shared", "echo")
            return len(phone.calls) > seen

        await until(went_to_phone)


async def test_a_relay_that_passed_on_calls_for_many_names_has_room_for_its_own(tmp_path: Path) -> None:
    async with meeting(tmp_path, max_servers=2) as pair, AsyncExitStack() as stack:
        for name in ("one", "two"):
            await stack.enter_async_context(pair.worker(pair.b, name))
            assert '"result"' in (await pair.a.call(name, "echo")).text
        await stack.enter_async_context(pair.worker(pair.a, "mine"))
        assert '"result"' in (await pair.b.call("mine", "echo")).text
