"""Calls in tabs: results, errors, cancellation, and calls that wait for a page that is reloading."""

from __future__ import annotations

import pytest

from tests.support.hub_harness import HubRig, reply, text_of

# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_result_reaches_the_caller_unchanged_and_names_its_tab(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    result = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": None}, "_meta": {"x": 1}}
    reply(rig, port, result)
    assert rig.results == [result | {"_meta": {"x": 1, "tabrelay/tab": {"id": "a", "title": "Tab a"}}}]


def test_only_the_first_answer_counts(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    reply(rig, port, {"content": []})
    reply(rig, port, {"content": [{"type": "text", "text": "again"}]})
    assert [result["content"] for result in rig.results] == [[]]


def test_a_tab_can_not_answer_for_another(rig: HubRig) -> None:
    port, thief = rig.tab("a", "info"), rig.tab("b")
    rig.call("info")
    rig.hub.receive_result(thief, port.last("call")["call"], '{"content":[]}', True)
    assert rig.results == []


@pytest.mark.parametrize("result", [None, "text", [], {}, {"content": "text"}])
def test_a_result_that_is_none_becomes_a_clear_error(rig: HubRig, result: object) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    reply(rig, port, result)
    assert rig.results[0]["isError"]
    assert "info" in text_of(rig.results[0])


def test_an_error_of_the_tab_is_a_failed_result_with_its_message(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.hub.receive(port, {"t": "error", "call": port.last("call")["call"], "message": "no such note"})
    assert rig.results[0]["isError"]
    assert text_of(rig.results[0]) == "no such note"


def test_progress_and_logs_reach_the_caller(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    call = port.last("call")["call"]
    rig.hub.receive(port, {"t": "progress", "call": call, "progress": 1, "total": 3})
    rig.hub.receive(port, {"t": "log", "call": call, "level": "info", "data": {"x": 1}})
    rig.hub.receive(port, {"t": "log", "call": call, "level": "loud", "data": "hey"})
    assert rig.context.said == [
        ("progress", 1, 3, None),
        ("log", "info", {"x": 1}),
        ("log", "warning", "unknown log level 'loud': hey"),
    ]


def test_the_end_of_a_tab_fails_its_calls_at_once_and_names_it(rig: HubRig) -> None:
    port, other = rig.tab("a", "info"), rig.tab("b", "draw")
    rig.call("info")
    rig.call("draw")
    rig.hub.detach(port)
    assert len(rig.results) == 1
    assert rig.results[0]["isError"]
    assert '"Tab a"' in text_of(rig.results[0])
    reply(rig, other, {"content": []})
    assert len(rig.results) == 2


def test_cancelling_notifies_the_tab_and_drops_its_answer(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    cancel = rig.call("info")
    cancel("changed my mind")
    cancel("twice")
    assert [message["reason"] for message in port.of("cancel")] == ["changed my mind"]
    reply(rig, port, {"content": []})
    assert rig.results == []


def test_a_call_survives_the_withdrawal_of_its_tool(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.hub.receive(port, {"t": "withdraw", "tools": ["info"]})
    reply(rig, port, {"content": []})
    assert [result["content"] for result in rig.results] == [[]]


# -- a page that reloads -----------------------------------------------------------------------------------------------


def test_a_reload_changes_no_list_and_no_name(rig: HubRig) -> None:
    first = rig.tab("a", "info", "draw", description="first")
    rig.tab("b", "info", description="second")
    names = rig.names()
    rig.settle()
    changes = rig.changes
    rig.hub.detach(first, returns=True)
    rig.settle()
    assert rig.names() == names
    rig.tab("a", "info", "draw", description="first")
    rig.settle()
    rig.wait(10)
    rig.settle()
    assert (rig.names(), rig.changes) == (names, changes)
    assert len(rig.hub.tabs) == 2


def test_a_call_for_a_tab_that_is_loaded_again_waits_for_it(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True, is_expected=True)
    rig.call("info", depth=1)
    rig.wait(1)
    port = rig.tab("a")
    assert not port.of("call") and not rig.results
    rig.hub.receive(port, {"t": "offer", "tools": [{"name": "info"}]})
    assert port.last("call")["arguments"] == {"depth": 1}
    reply(rig, port, {"content": []})
    assert len(rig.results) == 1


def test_calls_that_were_under_way_fail_at_once_when_the_tab_is_reloaded(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info")
    rig.hub.detach(port, returns=True)
    assert rig.results[0]["_meta"]["tabrelay/error"]["delivered"] == "unknown"
    again = rig.tab("a", "info")
    assert not again.of("call")


@pytest.mark.parametrize(("others", "seconds"), [([], 10), (["b"], 3)])
def test_a_tab_that_does_not_come_back_fails_what_waited_for_it(rig: HubRig, others: list[str], seconds: float) -> None:
    """Calls wait longer for the only tab: no other one could take them."""
    for other in others:
        rig.tab(other)
    rig.hub.detach(rig.tab("a", "info"), returns=True, is_expected=True)
    rig.call("info")
    rig.wait(seconds - 0.1)
    assert not rig.results
    rig.wait(0.2)
    [result] = rig.results
    assert result["isError"] and "was not called" in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {
        "reason": "tab_gone",
        "delivered": "no",
        "retryable": False,
        "help": "TR124",
    }
    assert rig.names() == []


def test_a_page_that_comes_back_without_its_tool_fails_what_waited_for_it(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info", "draw"), returns=True)
    rig.call("info")
    rig.tab("a", "draw")
    rig.wait(11)
    assert rig.results[0]["isError"]
    assert rig.names() == ["draw"]


def test_what_waits_for_a_tab_moves_to_another_that_comes_with_the_same_tool(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True, is_expected=True)
    rig.call("info", depth=1)
    rig.call_in("a", "info", depth=2)
    other = rig.tab("b", "info")
    assert [call["arguments"]["depth"] for call in other.of("call")] == [1]
    rig.wait(11)
    assert "was closed" in text_of(rig.results[0]) or "is gone" in text_of(rig.results[0])
    assert len(other.of("call")) == 1


def test_a_call_that_waits_for_a_tab_can_be_cancelled(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True)
    cancel = rig.call("info")
    cancel("changed my mind")
    port = rig.tab("a", "info")
    assert not port.of("call") and not rig.results


def test_a_call_for_a_tab_that_may_have_been_closed_waits_a_moment_only(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True)
    rig.call("info")
    rig.wait(0.9)
    assert not rig.results
    rig.wait(0.2)
    [result] = rig.results
    assert result["isError"] and 'The tab "Tab a" was closed or is reloading' in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {
        "reason": "tab_left",
        "delivered": "no",
        "retryable": True,
        "help": "TR123",
    }
    # The page was only slow to reload: later calls reach it, and no call runs twice.
    again = rig.tab("a", "info")
    assert not again.of("call")
    rig.call("info")
    assert len(again.of("call")) == 1


def test_a_call_waits_for_a_reloaded_page_that_offers_nothing_yet(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True)
    rig.call("info")
    rig.tab("a")
    rig.wait(2)
    assert not rig.results
    rig.tab("a", "info")


def test_the_wait_for_a_tab_that_is_reloaded_twice_begins_with_the_second_time(rig: HubRig) -> None:
    rig.hub.detach(rig.tab("a", "info"), returns=True)
    rig.wait(8)
    rig.hub.detach(rig.tab("a", "info"), returns=True)
    rig.wait(8)
    assert rig.names() == ["info"]
    rig.wait(3)
    assert rig.names() == []


def test_a_reloaded_tab_is_as_recent_as_it_was(rig: HubRig) -> None:
    first, second = rig.tab("a", "info"), rig.tab("b", "info")
    rig.show(second, False)
    rig.show(first, False)
    rig.hub.detach(first, returns=True)
    again = rig.tab("a", "info", visible=False)
    rig.call("info")
    assert again.of("call")
