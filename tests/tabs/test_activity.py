"""Activity messages: pages that watch calls see each of them begin, continue and end."""

from __future__ import annotations

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.toolbox import tool
from tests.support.fake_port import FakePort
from tests.support.hub_harness import HubRig, reply


def test_every_tab_sees_a_call_begin_and_end(rig: HubRig) -> None:
    port, watcher = rig.tab("a", "info"), rig.tab("b")
    rig.call("info")
    rig.time_ms += 12.34
    reply(rig, port, {"content": []})
    started, done = watcher.of("activity")
    assert (started["phase"], started["name"], started["owner"], started["client"]) == ("started", "info", "a", "probe")
    assert (done["phase"], done["call"], done["ms"]) == ("done", started["call"], 12.3)


def test_a_page_that_watches_sees_arguments_and_results_up_to_a_limit(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def repeat(text: str, times: int) -> str:
        return text * times

    port = rig.tab("a", "info")
    rig.call("repeat", text="ab", times=2)
    started, done = port.of("activity")
    assert (started["arguments"], done["result"]) == ('{"text": "ab", "times": 2}', "abab")
    rig.call("repeat", text="x" * 1000, times=1)
    assert [len(message.get("arguments") or message["result"]) for message in port.of("activity")[2:]] == [500, 500]
    rig.call("info")
    reply(
        rig,
        port,
        {"content": [{"type": "text", "text": "seen"}, {"type": "image", "data": "", "mimeType": "image/png"}]},
    )
    assert port.last("activity")["result"] == "seen\n[image]"


def test_a_page_that_watches_no_calls_receives_none_until_it_does(rig: HubRig) -> None:
    port, quiet = rig.tab("a", "info"), FakePort()
    rig.hub.attach(quiet, {"id": "b", "watches": False})
    rig.call("info")
    assert (len(port.of("activity")), quiet.of("activity")) == (1, [])
    rig.hub.receive(quiet, {"t": "watch"})
    reply(rig, port, {"content": []})
    assert [message["phase"] for message in quiet.of("activity")] == ["done"]


def test_a_worker_call_that_fails_is_seen_as_failed(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def boom() -> str:
        raise RuntimeError("no luck")

    port = rig.tab("a")
    rig.call("boom")
    assert [message["phase"] for message in port.of("activity")] == ["started", "failed"]
    assert "no luck" in port.last("activity")["error"]


def test_bad_arguments_of_a_worker_tool_are_raised_and_seen(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def add(a: int, b: int) -> int:
        return a + b

    port = rig.tab("a")
    with pytest.raises(InvalidArguments):
        rig.call("add", a=1)
    assert port.last("activity")["phase"] == "failed"


async def test_a_cancelled_worker_call_sends_nothing_more(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    async def wait(context: Context) -> str:
        context.progress(1, 2)
        raise AssertionError("not reached: the call is cancelled before it runs")

    port = rig.tab("a")
    cancel = rig.call("wait")
    cancel("gone")
    assert [message["phase"] for message in port.of("activity")] == ["started", "cancelled"]
    assert rig.results == []


def test_progress_is_shown_at_most_ten_times_a_second(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    call = port.last("call")["call"]
    for step in range(1, 101):
        rig.time_ms += 10
        rig.hub.receive(port, {"t": "progress", "call": call, "progress": step, "total": 100})
    assert len(rig.context.said) == 100
    assert len([message for message in port.of("activity") if message["phase"] == "progress"]) == 10
