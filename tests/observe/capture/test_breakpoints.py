"""Patterns of breakpoints: what they match, and that no name or pattern makes the comparison slow."""

from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tabrelay.calls.calls import Call
from tabrelay.observe.capture import breakpoints
from tabrelay.observe.capture.breakpoints import (
    CALL,
    MAX_BREAKPOINTS,
    MAX_PATTERN,
    MAX_TEXT,
    BadBreakpoint,
    Breakpoint,
    Breakpoints,
    HeldMessage,
    _is_match,
)
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller


class FakeCall:
    server, method = "notes", "tools/call"

    def __init__(self, name: str, client: Any = None) -> None:
        self.id = "a-1"
        self.name, self.caller = name, Caller(Era.MODERN, "2026-07-28", "me", client)

    def happened(self, kind: str, text: str) -> None: ...


def breakpoint_for(**fields: str) -> Breakpoint:
    return Breakpoint.read(fields, lambda server: True)


@given(st.text("ab*", max_size=8), st.text("ab", max_size=10))
def test_a_star_is_any_text(pattern: str, text: str) -> None:
    expected = re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), text) is not None
    assert _is_match(tuple(pattern.split("*")), text) == expected


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 127 + "b", "a" * MAX_TEXT),
        ("*" + "*a" * 127, "a" * 4_000_000),
        ("*" + "a" * 100 + "b*" + "a" * 100 + "c*", "a" * 4_000_000),
        ("*ab" * 80 + "*", "a" * 4_000_000),
        ("*" * MAX_PATTERN, "a" * 4_000_000),
    ],
)
def test_no_pattern_and_no_name_take_long(pattern: str, name: str) -> None:
    found = Breakpoints(300.0, lambda: None)
    found.use(tuple(breakpoint_for(name=pattern, client=f"{pattern[:-1]}c") for _ in range(MAX_BREAKPOINTS)))
    call: Any = FakeCall(name, {"name": name})
    best = 1.0
    for _ in range(5):
        began = time.thread_time()
        found.find(call, CALL)
        best = min(best, time.thread_time() - began)
    assert best < 0.05


def test_a_client_without_a_text_as_its_name_matches_only_any() -> None:
    for client in (None, {}, {"name": ["x"] * 1000}, {"name": 5}):
        call: Any = FakeCall("echo", client)
        found = Breakpoints(300.0, lambda: None)
        found.use((breakpoint_for(client="*"),))
        assert found.find(call, CALL)
        found.use((breakpoint_for(client="*x*"),))
        assert not found.find(call, CALL)


async def test_calls_that_come_together_are_held_up_to_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(breakpoints, "MAX_HELD", 3)
    found = Breakpoints(300.0, lambda: None)
    found.use((breakpoint_for(),))
    call: Any = FakeCall("echo")
    wire = Call("c", 1, "tools/call", "{}", call.caller)
    assert all(found.find(call, CALL) for _ in range(5))
    going = [asyncio.create_task(found.let_call_go(call, wire, time.monotonic() + 60)) for _ in range(5)]
    await asyncio.sleep(0)
    assert len(found.held) == 3
    found.release_all(lambda server: True)
    assert [await each for each in going] == [wire] * 5


async def test_a_decision_about_a_call_whose_caller_has_just_left_changes_nothing() -> None:
    found = Breakpoints(300.0, lambda: None)
    call: Any = FakeCall("echo")
    going = asyncio.create_task(found.let_call_go(call, Call("c", 1, "m", "{}", call.caller), time.monotonic() + 60))
    await asyncio.sleep(0)
    (held,) = found.held.values()
    going.cancel()
    found.decide(held, None)
    with pytest.raises(asyncio.CancelledError):
        await going
    assert not found.held


def test_a_long_message_is_not_edited() -> None:
    call: Any = FakeCall("echo")
    text = '{"result":{"a":"%s"}}' % ("a" * breakpoints.MAX_EDITABLE)
    held = HeldMessage("h1", call, CALL, 0.0, lambda: text, lambda decision: None, lambda: None)
    with pytest.raises(BadBreakpoint, match="too long"):
        held.edited("result", {})
