"""Busy tabs: a call that several tabs could take goes to one that reads its messages, and to no other."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest

from tabserver.handlers.target import Target
from tabserver.tabs.tab import FRESH_MS, MAX_UNREAD, WINDOW, TabReadState
from tests.support.fake_port import FakePort
from tests.support.fake_request import RecordingCall
from tests.support.hub_harness import HubRig, reply, text_of

BUSY_S = 0.5
SILENCE_S = 30.0


def pong(rig: HubRig, port: FakePort) -> None:
    rig.hub.receive(port, {"t": "pong"})


def calls(*ports: FakePort) -> list[int]:
    return [len(port.of("call")) for port in ports]


def two_tabs(rig: HubRig) -> tuple[FakePort, FakePort]:
    """The first is in front."""
    return rig.tab("a", "info", "more"), rig.tab("b", "info", visible=False)


def blocked(rig: HubRig) -> tuple[FakePort, FakePort]:
    """The tab in front runs a call and reads nothing meanwhile."""
    front, other = two_tabs(rig)
    rig.call("info")
    assert calls(front, other) == [1, 0]
    return front, other


def test_a_call_goes_to_another_tab_if_the_one_in_front_does_not_read(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    assert calls(front, other) == [1, 0] and len(front.of("ping")) == 1
    rig.wait(BUSY_S)
    pong(rig, other)
    assert calls(front, other) == [1, 1]
    reply(rig, other, {"content": []})
    assert rig.results[0]["_meta"]["tabrelay/tab"]["id"] == "b"


def test_a_call_that_another_tab_got_is_never_sent_to_the_first(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    rig.wait(BUSY_S)
    pong(rig, other)
    reply(rig, front, {"content": []})
    pong(rig, front)
    assert calls(front, other) == [1, 1]


def test_a_tab_that_runs_a_call_and_reads_gets_the_next_one_too(rig: HubRig) -> None:
    front, other = blocked(rig)
    for expected in (2, 3):
        rig.wait(0.2)
        rig.call("info")
        assert calls(front) == [expected - 1]
        pong(rig, front)
        assert calls(front, other) == [expected, 0]


def test_a_tab_gets_one_call_more_each_time_that_it_reads_on(rig: HubRig) -> None:
    front, other = two_tabs(rig)
    rig.wait(1)
    for _ in range(WINDOW * 3):
        rig.call("info")
    pong(rig, front)
    unread = []
    for _ in range(WINDOW * 3):
        unread.append(len(front.of("call")) - len(rig.results))
        rig.hub.receive_result(front, front.of("call")[len(rig.results)]["call"], '{"content":[]}', False)
    assert unread[:4] == [1, 2, 3, 4] and max(unread) == WINDOW
    assert calls(front, other) == [WINDOW * 3, 0] == [len(rig.results), 0]


def test_after_a_pause_a_tab_gets_one_call_first(rig: HubRig) -> None:
    front, other = two_tabs(rig)
    for _ in range(8):
        rig.call("info")
    for call in range(8):
        rig.hub.receive_result(front, front.of("call")[call]["call"], '{"content":[]}', False)
    rig.wait(0.2)
    for _ in range(4):
        rig.call("info")
    pong(rig, front)
    assert calls(front, other) == [9, 0]


def test_progress_of_a_call_shows_that_its_tab_reads(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    rig.hub.receive(front, {"t": "progress", "call": front.last("call")["call"], "progress": 1})
    assert calls(front, other) == [2, 0]


def test_a_new_call_does_not_overtake_one_that_waits(rig: HubRig) -> None:
    front, _ = two_tabs(rig)
    rig.wait(1)
    rig.call("info", order=1)
    rig.hub.known_tabs["a"].read_state.received(rig.time_ms)  # by JavaScript, which ignores waiting calls
    rig.call("info", order=2)
    assert calls(front) == [0]
    pong(rig, front)
    reply(rig, front, {"content": []})
    assert [message["arguments"]["order"] for message in front.of("call")] == [1, 2]


def test_of_calls_that_come_together_after_a_pause_one_is_sent_first(rig: HubRig) -> None:
    """The first of them may block the tab: the calls behind it must not be stuck."""
    front, other = two_tabs(rig)
    rig.wait(1)
    for _ in range(3):
        rig.call("info")
    assert calls(front, other) == [0, 0]
    pong(rig, front)
    assert calls(front, other) == [1, 0]
    rig.wait(BUSY_S)
    pong(rig, other)
    assert calls(front, other) == [1, 1]
    reply(rig, other, {"content": []})
    assert calls(front, other) == [1, 2]
    assert len(rig.results) == 1


def test_a_tab_gets_no_more_pings_than_calls_however_many_wait(rig: HubRig) -> None:
    """The page reads them in order: each unnecessary ping delays the calls behind it."""
    front, other = two_tabs(rig)
    for _ in range(16):
        rig.call("info")
    read = 0
    for answered in range(200):
        while read < len(front.sent):
            message = front.sent[read]
            read += 1
            if message["t"] == "ping":
                pong(rig, front)
            elif message["t"] == "call":
                rig.hub.receive_result(front, message["call"], '{"content":[]}', False)
                break
        if answered < 184:
            rig.call("info")
    assert len(rig.results) == 200 and calls(front, other) == [200, 0]
    assert len(front.of("ping")) <= 16


def test_a_tab_that_sent_nothing_for_a_while_is_asked_first(rig: HubRig) -> None:
    front, other = two_tabs(rig)
    rig.wait(1)
    rig.call("info")
    assert calls(front) == [0] and front.of("ping")
    pong(rig, front)
    assert calls(front, other) == [1, 0]


def test_callers_that_wait_for_each_answer_need_no_ping(rig: HubRig) -> None:
    front, _ = two_tabs(rig)
    for _ in range(5):
        rig.call("info")
        reply(rig, front, {"content": []})
        rig.wait(0.01)
    assert calls(front) == [5] and not front.of("ping")


def test_a_tab_that_alone_has_a_tool_is_not_asked(rig: HubRig) -> None:
    front, _ = two_tabs(rig)
    rig.wait(60)
    for _ in range(3):
        rig.call("more")
    assert calls(front) == [3] and not front.of("ping")


def test_a_call_that_names_its_tab_goes_there_whether_it_reads_or_not(rig: HubRig) -> None:
    front, _ = blocked(rig)
    rig.call("info")
    rig.wait(BUSY_S)
    rig.call_in("a", "info")
    assert calls(front) == [2]


def test_a_tab_that_reads_again_is_in_front_again(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    rig.wait(BUSY_S)
    pong(rig, other)
    reply(rig, front, {"content": []})
    pong(rig, front)
    rig.call("info")
    assert calls(front, other) == [2, 1]


def test_an_answer_to_an_older_ping_shows_nothing(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    for _ in range(2):
        rig.call_in("a", "info")  # is behind the ping, and may block the tab again
    pong(rig, front)
    assert calls(front, other) == [3, 0] and len(front.of("ping")) == 2
    rig.wait(BUSY_S)
    pong(rig, other)
    assert calls(front, other) == [3, 1]


def test_if_no_tab_reads_a_call_waits_for_the_first_that_does(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    rig.wait(5)
    assert calls(front, other) == [1, 0] and rig.results == []
    pong(rig, other)
    assert calls(front, other) == [1, 1]


def test_if_no_tab_reads_for_long_a_call_fails_that_was_not_sent(rig: HubRig) -> None:
    front, other = two_tabs(rig)
    rig.wait(1)
    rig.call("info")
    rig.wait(SILENCE_S)
    [failed] = rig.results
    assert "does not answer" in text_of(failed) and "was not called" in text_of(failed)
    assert failed["_meta"]["tabrelay/error"] == {
        "reason": "tab_silent",
        "delivered": "no",
        "retryable": True,
        "help": "TR122",
    }
    pong(rig, front)
    pong(rig, other)
    assert calls(front, other) == [0, 0]


def test_a_worker_that_was_blocked_itself_does_not_take_its_tabs_for_busy(rig: HubRig) -> None:
    front, other = blocked(rig)
    rig.call("info")
    rig.wait(2, busy=True)  # the answer waits unread
    assert calls(front, other) == [1, 0]
    pong(rig, front)
    assert calls(front, other) == [2, 0]


@pytest.mark.parametrize("jump_s", [-3600.0, 3600.0])
def test_a_clock_that_jumps_shows_nothing(rig: HubRig, jump_s: float) -> None:
    front, other = two_tabs(rig)
    rig.time_ms += jump_s * 1000
    rig.call("info")
    assert calls(front, other) == [0, 0]
    pong(rig, front)
    assert calls(front, other) == [1, 0]


def test_a_call_that_is_cancelled_while_it_waits_is_sent_to_no_tab(rig: HubRig) -> None:
    front, other = blocked(rig)
    cancel = rig.call("info")
    cancel("enough")
    rig.wait(BUSY_S)
    pong(rig, other)
    pong(rig, front)
    assert calls(front, other) == [1, 0] and not front.of("cancel")


LEAVES: list[Callable[[HubRig, FakePort], None]] = [
    lambda rig, port: rig.hub.detach(port),
    lambda rig, port: rig.hub.detach(port, returns=True),
    lambda rig, port: rig.hub.receive(port, {"t": "withdraw", "tools": ["info"]}),
    lambda rig, port: rig.show(port, False),
]


@pytest.mark.parametrize("leave", LEAVES)
def test_a_call_does_not_wait_for_a_tab_that_is_in_front_no_longer(
    rig: HubRig, leave: Callable[[HubRig, FakePort], None]
) -> None:
    front, other = two_tabs(rig)
    rig.wait(1)
    rig.call("info")
    rig.show(other, True, focused=True)
    leave(rig, front)
    pong(rig, other)
    assert calls(front, other) == [0, 1]


def test_a_caller_is_pinned_to_the_tab_that_got_its_call(rig: HubRig) -> None:
    _, other = blocked(rig)
    rig.context.target = Target(None, pins=True)
    rig.call("info")
    rig.context.target = None
    assert rig.context.caller.tab is None
    rig.wait(BUSY_S)
    pong(rig, other)
    assert rig.context.caller.tab == "b"


def test_the_user_is_asked_in_a_tab_that_reads(rig: HubRig) -> None:
    risky: dict[str, Any] = {"annotations": {"destructiveHint": True}}
    front = rig.tab("a", "delete", "info", **risky)
    other = rig.tab("b", "delete", visible=False, **risky)
    rig.call_in("a", "info")
    rig.wait(1)
    rig.call("delete")
    rig.wait(BUSY_S)
    pong(rig, other)
    assert not front.of("approve")[1:] and len(other.of("approve")) == 1
    rig.hub.receive(other, {"t": "approval", "call": other.last("approve")["call"], "decision": "once"})
    assert [message["name"] for message in other.of("call")] == ["delete"]


def test_resources_and_prompts_are_read_in_a_tab_that_reads(rig: HubRig) -> None:
    ports = [rig.tab(id, visible=id == "a") for id in "ab"]
    for port in ports:
        offered = {"resources": [{"uri": "note://one", "name": "one"}], "prompts": [{"name": "improve"}]}
        rig.hub.receive(port, {"t": "offer", **offered})
    rig.wait(1)
    rig.hub.read("note://one", RecordingCall(rig.context, rig.results.append))
    rig.wait(BUSY_S)
    pong(rig, ports[1])
    rig.hub.get_prompt("improve", {}, RecordingCall(rig.context, rig.results.append))
    pong(rig, ports[1])
    assert [message["kind"] for message in ports[1].of("call")] == ["resources", "prompts"]
    assert json.dumps(ports[0].of("call")) == "[]"


class Page:
    """Reads its messages in order when the test permits it. It answers a call at once, or keeps it open like a tool
    that awaits something. It checks each call when that is posted."""

    def __init__(self, rig: HubRig, port: FakePort) -> None:
        self.rig, self.port = rig, port
        self.queue: list[dict[str, Any]] = []
        self.kept: list[str] = []
        self.said_ms = rig.time_ms
        self.most = self.pings = 0
        remember = port.send

        def send(message: Any) -> None:
            remember(message)
            if message["t"] in ("call", "ping"):
                self.queue.append(dict(message))
            unread = [each["t"] for each in self.queue]
            if message["t"] == "call":
                self.most = max(self.most, unread.count("call"))
                assert rig.time_ms - self.said_ms <= FRESH_MS, "it had been silent for long"
            assert unread.count("call") <= WINDOW and unread.count("ping") <= 1

        port.send = send  # type: ignore[method-assign]

    def read(self, keeps: bool = False) -> None:
        if not self.queue:
            return
        message = self.queue.pop(0)
        if message["t"] == "call" and keeps:
            self.kept.append(message["call"])
        elif message["t"] == "call":
            self.answer(message["call"])
        else:
            self.said_ms = self.rig.time_ms
            pong(self.rig, self.port)

    def answer(self, call: str) -> None:
        self.said_ms = self.rig.time_ms
        self.rig.hub.receive_result(self.port, call, '{"content":[]}', False)


@pytest.mark.parametrize("seed", range(10))
def test_in_any_order_of_calls_and_answers_few_calls_are_unread_and_each_runs_once(seed: int) -> None:
    """No call is posted to a tab that was silent for longer than the limit, nor to one that has a window of them."""
    rig, chance = HubRig(), random.Random(seed)
    pages = [Page(rig, port) for port in two_tabs(rig)]
    asked = 0
    for _ in range(150):
        page = chance.choice(pages)
        match chance.choice(("call", "call", "burst", "read", "read", "drain", "keep", "end", "wait", "pause")):
            case "call":
                rig.call("info")
                asked += 1
            case "burst" if asked < 300:
                many = chance.randint(1, 100)
                asked += many
                for _ in range(many):
                    rig.call("info")
            case "read":
                page.read()
            case "drain":
                for _ in range(chance.randint(1, 150)):
                    page.read()
            case "keep":
                page.read(keeps=True)
            case "end" if page.kept:
                page.answer(page.kept.pop(chance.randrange(len(page.kept))))
            case "wait":
                rig.wait(chance.choice((0.001, 0.02, 0.09)))
            case "pause" if chance.random() < 0.2:
                rig.wait(chance.choice((0.2, 0.6)))
    while any(page.queue or page.kept for page in pages):
        for page in pages:
            page.read()
            if page.kept:
                page.answer(page.kept.pop())
    ran = [message["call"] for page in pages for message in page.port.of("call")]
    assert len(ran) == len(set(ran)) == asked == len(rig.results)
    assert max(page.most for page in pages) > 4


def test_of_messages_that_a_tab_never_answers_the_oldest_are_forgotten() -> None:
    signs = TabReadState()
    signs.pinged()
    for number in range(MAX_UNREAD + 10):
        signs.posted(f"call {number}")
    assert len(signs.unread) == MAX_UNREAD
    assert signs.pings == 0
    assert next(iter(signs.unread)) == "call 10"
