"""Routing of calls to tabs: by visibility, by the name of a tab, and by a pinned tab."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.target import Target
from tabserver.handlers.toolbox import tool
from tabserver.handlers.tools import UnknownTool
from tabserver.wire.eras import Era
from tests.support.hub_harness import SURE, HubRig, reply, text_of

# -- without a named tab -----------------------------------------------------------------------------------------------


def test_a_call_goes_to_the_visible_tab(rig: HubRig) -> None:
    seen = rig.tab("a", "info")
    hidden = rig.tab("b", "info", visible=False)
    rig.call("info")
    assert seen.of("call") and not hidden.of("call")


def test_among_hidden_tabs_the_one_seen_last_gets_the_call(rig: HubRig) -> None:
    first, second = rig.tab("a", "info"), rig.tab("b", "info")
    rig.tab("c", "info", visible=False)
    rig.show(second, False)
    rig.show(first, False)
    rig.call("info")
    assert first.of("call") and not second.of("call")


def test_among_visible_tabs_the_one_focused_last_gets_the_call(rig: HubRig) -> None:
    first, second = rig.tab("a", "info"), rig.tab("b", "info")
    rig.show(first, True, focused=True)
    rig.show(second, True)  # only its title changed
    rig.call("info")
    assert first.of("call") and not second.of("call")


def test_the_worker_keeps_a_name_that_a_tab_offers_too(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def info() -> str:
        return "from the worker"

    port = rig.tab("a", "info")
    rig.call("info")
    assert not port.of("call")
    assert text_of(rig.results[0]) == "from the worker"
    _, suffixed = rig.names()
    rig.call(suffixed)
    assert port.last("call")["name"] == "info"


def test_the_tab_learns_what_is_called_and_by_whom(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.call("info", depth=2)
    message = port.last("call")
    assert message["name"] == "info"
    assert message["arguments"] == {"depth": 2}
    assert message["caller"] == {
        "client": {"name": "probe", "version": "1"},
        "principal": "token:ab12",
        "era": "modern",
        "version": "2026-07-28",
        "capabilities": {},
        "key": "test",
    }
    assert json.dumps(message)


def test_every_call_names_its_own_caller_to_its_tab(rig: HubRig) -> None:
    """The text of the last caller is cached; another caller, or the same in another session, gets a new text."""
    port, same = rig.tab("a", "info"), replace(rig.context.caller, era=Era.LEGACY)
    callers = []
    for caller, key in ((same, "1"), (same, "2"), (replace(same, principal="token:x"), "2"), (same, "1")):
        rig.context.caller, rig.context.caller_key = caller, key
        rig.call("info")
        caller = port.last("call")["caller"]
        callers.append((caller["principal"], caller["key"]))
    assert callers == [("token:ab12", "1"), ("token:ab12", "2"), ("token:x", "2"), ("token:ab12", "1")]


def test_an_unknown_tool_is_refused(rig: HubRig) -> None:
    with pytest.raises(UnknownTool):
        rig.call("nothing")


# -- with a named tab --------------------------------------------------------------------------------------------------


def test_a_caller_gets_the_tab_it_names(rig: HubRig) -> None:
    hidden, seen = rig.tab("a", "info", visible=False), rig.tab("b", "info")
    rig.call_in("a", "info", depth=1)
    rig.call("info", depth=2, _tab="a")
    assert [call["arguments"] for call in hidden.of("call")] == [{"depth": 1}, {"depth": 2}]
    assert not seen.of("call")


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_argument_that_names_no_tab_names_none(rig: HubRig, nothing: Any) -> None:
    port = rig.tab("a", "info")
    rig.call("info", _tab=nothing)
    assert port.last("call")["arguments"] == {}


def test_a_tool_that_has_such_an_argument_itself_gets_it(rig: HubRig) -> None:
    port = rig.tab("a", "info", inputSchema={"type": "object", "properties": {"_tab": {"type": "string"}}})
    rig.call("info", _tab="second from the left")
    assert port.last("call")["arguments"] == {"_tab": "second from the left"}


def test_in_a_named_tab_a_tool_is_called_as_its_page_calls_it_or_as_it_is_listed(rig: HubRig) -> None:
    rig.tab("a", "info", description="one")
    port = rig.tab("b", "info", description="other")
    _, suffixed = rig.names()
    rig.call_in("b", "info")
    rig.call_in("b", suffixed)
    rig.call(suffixed)
    assert [message["name"] for message in port.of("call")] == ["info"] * 3


@pytest.mark.parametrize("unknown", ["missing", 7, {"id": "a"}])
def test_a_tab_that_is_not_there_is_an_error_that_lists_the_open_ones(rig: HubRig, unknown: Any) -> None:
    port = rig.tab("a", "info")
    rig.call("info", _tab=unknown)
    assert not port.of("call")
    [result] = rig.results
    assert result["isError"] and '"Tab a" (a)' in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {
        "reason": "tab_gone",
        "delivered": "no",
        "retryable": False,
        "help": "TR124",
    }


def test_a_tab_that_is_gone_is_named_by_its_title(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    rig.tab("b", "info")
    rig.hub.detach(port)
    rig.call_in("a", "info")
    assert '"Tab a" (a) is gone' in text_of(rig.results[0])


def test_a_named_tab_without_the_tool_is_an_error_that_lists_the_tabs_with_it(rig: HubRig) -> None:
    rig.tab("a", "draw")
    port = rig.tab("b", "info")
    rig.call_in("a", "info")
    assert not port.of("call")
    assert '"Tab a" does not offer the tool "info"' in text_of(rig.results[0])
    assert '"Tab b" (b)' in text_of(rig.results[0])
    with pytest.raises(UnknownTool):
        rig.call_in("a", "nothing")


def test_worker_tools_are_available_whichever_tab_is_named(rig: HubRig) -> None:
    @tool(toolbox=rig.toolbox)
    def add(a: int, b: int) -> int:
        return a + b

    rig.tab("a")
    for named in ("a", "gone"):
        rig.call_in(named, "add", a=1, b=2)
    assert [text_of(result) for result in rig.results] == ["3", "3"]


# -- pins --------------------------------------------------------------------------------------------------------------


def pinned(rig: HubRig, tab: str | None, *, pins: bool | None, call: str = "info") -> None:
    """A call whose `_meta` names a tab, and whether to pin it."""
    rig.context.target = Target(tab, pins=pins)
    rig.call(call)
    rig.context.target = None


def test_a_pinned_tab_gets_the_calls_that_follow_until_it_is_pinned_no_more(rig: HubRig) -> None:
    hidden, seen = rig.tab("a", "info", visible=False), rig.tab("b", "info")
    pinned(rig, "a", pins=True)
    rig.call("info")
    rig.call_in("b", "info")
    assert (len(hidden.of("call")), len(seen.of("call"))) == (2, 1)
    reply(rig, seen, {"content": []})
    pinned(rig, None, pins=False)
    assert (len(hidden.of("call")), len(seen.of("call"))) == (2, 2)
    assert rig.context.caller.tab is None


def test_a_caller_can_stay_with_the_tab_that_gets_its_call(rig: HubRig) -> None:
    seen, hidden = rig.tab("a", "info"), rig.tab("b", "info", visible=False)
    pinned(rig, None, pins=True)
    rig.show(seen, False)
    rig.show(hidden, True)
    rig.call("info")
    assert (len(seen.of("call")), len(hidden.of("call"))) == (2, 0)


def test_a_tab_that_is_not_there_is_not_pinned(rig: HubRig) -> None:
    port = rig.tab("a", "info")
    pinned(rig, "missing", pins=True)
    assert rig.results[0]["isError"] and rig.context.caller.tab is None
    rig.call("info")
    assert port.of("call")


def test_when_the_pinned_tab_is_gone_no_other_tab_answers(rig: HubRig) -> None:
    port, other = rig.tab("a", "info", visible=False), rig.tab("b", "info")
    pinned(rig, "a", pins=True)
    rig.hub.detach(port)
    rig.results.clear()
    rig.call("info")
    [result] = rig.results
    assert result["isError"] and 'The pinned tab "Tab a" (a) is gone' in text_of(result)
    assert not other.of("call")


def test_a_pin_survives_a_reload(rig: HubRig) -> None:
    port, other = rig.tab("a", "info", visible=False), rig.tab("b", "info")
    pinned(rig, "a", pins=True)
    rig.hub.detach(port, returns=True)
    rig.call("info")
    again = rig.tab("a", "info", visible=False)
    assert again.of("call") and not other.of("call")


def test_a_call_for_a_pinned_tab_without_the_tool_goes_to_no_other_tab(rig: HubRig) -> None:
    rig.tab("a", "info")
    other = rig.tab("b", "draw")
    pinned(rig, "a", pins=True)
    rig.call("draw")
    assert 'The pinned tab "Tab a" does not offer the tool "draw"' in text_of(rig.results[0])
    assert not other.of("call")


def test_the_answers_to_a_tabs_questions_come_back_to_that_tab(rig: HubRig) -> None:
    """Also when another tab was brought to the front to answer them."""
    port, other = rig.tab("a", "info"), rig.tab("b", "info", visible=False)
    rig.call("info")
    asked = {"ok": {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": SURE}}}
    call = port.last("call")["call"]
    rig.hub.receive(port, {"t": "required", "call": call, "requests": asked, "state": {"step": 2}})
    [required] = rig.results
    rig.show(port, False)
    rig.show(other, True)
    rig.context.request_state = required.state
    rig.call("info")
    assert port.last("call")["state"] == {"step": 2}
    assert len(port.of("call")) == 2 and not other.of("call")
