"""State of a caller: available at its next request, separate from other callers' state, and bounded."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.mcp.caller_state import LIFE_S, MOST_CALLERS, CallerStates, caller_key
from tests.support.server_harness import MODERN, READY, CoreHarness


@pytest.fixture
def bench() -> CoreHarness:
    box = Toolbox()

    @tool(toolbox=box)
    def count(ctx: Context) -> int:
        ctx.state["calls"] = ctx.state.get("calls", 0) + 1
        return int(ctx.state["calls"])

    return CoreHarness(box)


def counted(answer: dict[str, dict[str, list[dict[str, str]]]]) -> int:
    return int(answer["result"]["content"][0]["text"])


def call(bench: CoreHarness, id: int, channel: str) -> int:
    return counted(bench.request("tools/call", {"name": "count"}, id=id, channel=channel))


def test_a_session_has_a_state_of_its_own(bench: CoreHarness) -> None:
    for channel in ("a", "b"):
        bench.open(replace(READY, session=f"session {channel}"), channel)
    assert [call(bench, 1, "a"), call(bench, 2, "a"), call(bench, 1, "b")] == [1, 2, 1]


def test_a_session_that_comes_back_on_another_channel_finds_its_state(bench: CoreHarness) -> None:
    bench.open(replace(READY, session="one"), "a")
    assert call(bench, 1, "a") == 1
    bench.close("a", "the relay started a new session")
    bench.open(replace(READY, session="one"), "z")
    assert call(bench, 1, "z") == 2


def test_a_session_without_an_id_is_its_channel(bench: CoreHarness) -> None:
    bench.open(READY, "a")
    bench.open(READY, "b")
    assert [call(bench, 1, "a"), call(bench, 2, "a"), call(bench, 1, "b")] == [1, 2, 1]


def test_a_modern_client_finds_its_state_by_token_and_name(bench: CoreHarness) -> None:
    others = [replace(MODERN, principal="token:other"), replace(MODERN, client={"name": "another"})]
    told = [
        counted(bench.modern("tools/call", {"name": "count"}, channel=f"m{number}", caller=caller))
        for number, caller in enumerate([MODERN, *others, MODERN])
    ]
    assert told == [1, 1, 1, 2]


def test_no_two_callers_share_a_key() -> None:
    spoof = replace(MODERN, principal='p"', client={"name": "x"})
    names = [replace(MODERN, client={"name": name}) for name in ("null", "5", 5, ["5"])]
    callers = [MODERN, replace(MODERN, client=None), spoof, replace(READY, session="s"), *names]
    keys = [caller_key(caller) for caller in callers]
    assert len(set(keys)) == len(keys)


def test_the_caller_that_was_idle_for_longest_is_removed_first() -> None:
    states = CallerStates(lambda: 0.0)
    for number in range(MOST_CALLERS):
        states.of(f"caller {number}")["number"] = number
    states.of("caller 0")
    states.of("one more")
    assert len(states) == MOST_CALLERS
    assert states.of("caller 0") == {"number": 0}
    assert states.of("caller 1") == {}


def test_a_state_that_is_unused_for_long_is_removed() -> None:
    now = 0.0
    states = CallerStates(lambda: now)
    states.of("old")["kept"] = True
    now = LIFE_S
    states.of("new")["kept"] = True
    now = LIFE_S + 1
    states.of("another")
    assert len(states) == 2 and states.of("old") == {} and states.of("new") == {"kept": True}
