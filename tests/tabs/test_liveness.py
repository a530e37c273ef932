"""Liveness of tabs: pings while a call runs, and errors for the calls of a silent or frozen tab."""

from __future__ import annotations

from tests.support.hub_harness import HubRig, reply, text_of


def test_a_tab_is_pinged_only_while_it_runs_a_call_and_sends_nothing(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.wait(60)
    assert not port.of("ping")
    rig.call("info")
    for step in range(10):
        rig.wait(4)
        rig.hub.receive(port, {"t": "progress", "call": port.last("call")["call"], "progress": step})
    assert not port.of("ping")
    rig.wait(6)
    assert len(port.of("ping")) == 1
    rig.hub.receive(port, {"t": "pong"})
    reply(rig, port, {"content": []})
    rig.wait(60)
    assert len(port.of("ping")) == 1
    assert [result["content"] for result in rig.results] == [[]]


def test_a_tab_that_answered_is_pinged_again_as_soon_as_one_that_never_was(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    for asked in (1, 2, 3):
        rig.wait(6)
        assert len(port.of("ping")) == asked
        rig.hub.receive(port, {"t": "pong"})


def test_a_silent_tab_fails_its_own_calls_and_is_named(rig: HubRig) -> None:
    silent, other = rig.tab("a", "info", "more"), rig.tab("b", "draw")
    rig.call("info")
    rig.call("more")
    rig.wait(1)
    rig.call("draw")
    rig.wait(33)
    assert rig.results == []
    rig.hub.receive(other, {"t": "pong"})
    rig.wait(2)
    assert [result["isError"] for result in rig.results] == [True, True]
    assert all('"Tab a" does not answer' in text_of(result) for result in rig.results)
    assert "unknown" in text_of(rig.results[0])
    # If the tab wakes up later, it cancels the call, because no caller waits for it.
    assert [message["call"] for message in silent.of("cancel")] == [message["call"] for message in silent.of("call")]
    reply(rig, other, {"content": []})
    assert len(rig.results) == 3


def test_a_tab_that_answers_is_given_all_the_time_it_needs(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    for _ in range(100):
        rig.wait(10)
        rig.hub.receive(port, {"t": "pong"})
    assert rig.results == []
    reply(rig, port, {"content": []})
    assert [result["content"] for result in rig.results] == [[]]


def test_a_call_for_a_silent_tab_is_refused_at_once_until_the_tab_sends_a_message(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.wait(40)
    rig.call("info")
    assert len(port.of("call")) == 1
    assert "was not called" in text_of(rig.results[1])
    rig.hub.receive(port, {"t": "pong"})
    rig.call("info")
    assert len(port.of("call")) == 2


def test_another_tab_with_the_same_tool_is_preferred_to_a_silent_one(rig: HubRig) -> None:
    other, port = rig.tab("b", "info", visible=False), rig.tab("a", "info")
    rig.call("info")
    rig.wait(40)
    rig.call("info")
    assert len(port.of("call")) == 1
    assert len(other.of("call")) == 1
    rig.settle()
    assert other.last("catalogue")["tools"][0]["owner"] == "b"


def test_a_tab_that_reports_a_freeze_fails_its_calls_soon_unless_it_resumes(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    info = {"t": "tab", "title": "Tab a", "url": "", "visible": False}
    rig.hub.receive(port, {**info, "frozen": True})
    rig.wait(4)
    rig.hub.receive(port, info)
    rig.wait(4)
    assert rig.results == []
    rig.hub.receive(port, {**info, "frozen": True})
    rig.wait(6)
    assert not port.of("ping")
    assert '"Tab a" is frozen' in text_of(rig.results[0])
    rig.call("info")
    assert "is frozen" in text_of(rig.results[1])
    assert len(port.of("call")) == 1
    rig.hub.receive(port, info)
    rig.call("info")
    assert len(port.of("call")) == 2


def test_a_worker_that_was_blocked_itself_does_not_blame_the_tab(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.wait(6)
    rig.wait(60, busy=True)
    assert rig.results == []
    assert len(port.of("ping")) == 2
    rig.wait(31)
    assert len(rig.results) == 1


def test_a_tab_that_left_is_not_asked(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.hub.detach(port)
    rig.wait(60)
    assert not port.of("ping")
    assert len(rig.results) == 1
