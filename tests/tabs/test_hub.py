"""The hub: tabs come and go, one catalogue for all of them, and calls that reach the right tab."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.context import Cancel, Context, Result
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.target import Target
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.handlers.tools import UnknownTool
from tabserver.tabs.hub import Hub
from tests.support.port import FakePort
from tests.support.request import RecordingRequest


class House:
    """A hub with a clock that stands still until moved, and deferred work that runs when told to."""

    def __init__(self) -> None:
        self.time_ms = 1_000.0
        self.due: list[Callable[[], None]] = []
        self.changes = 0
        self.toolbox = Toolbox()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.hub = Hub(
            self.toolbox,
            now_ms=lambda: self.time_ms,
            defer=self.due.append,
            later=lambda delay_ms, ring: self.timers.append((self.time_ms + delay_ms, ring)),
            on_change=self._changed,
        )
        self.results: list[Any] = []
        self.context = RecordingRequest()

    def _changed(self, lists: list[str]) -> None:
        self.changes += 1

    def settle(self) -> None:
        while self.due:
            self.due.pop(0)()

    def wait(self, seconds: float, *, busy: bool = False) -> None:
        """Let time pass. `busy`: the worker itself was blocked, so timers ring only at the end of it."""
        end_ms = self.time_ms + seconds * 1000
        while due := [timer for timer in self.timers if timer[0] <= end_ms]:
            timer = min(due, key=lambda timer: timer[0])
            self.timers.remove(timer)
            self.time_ms = end_ms if busy else max(self.time_ms, timer[0])
            timer[1]()
        self.time_ms = end_ms

    def tab(self, id: str, *names: str, visible: bool = True, **more: Any) -> FakePort:
        port = FakePort()
        self.hub.attach(port, {"id": id, "title": f"Tab {id}", "url": f"http://localhost/{id}", "visible": visible})
        if names:
            self.hub.receive(port, {"t": "offer", "tools": [{"name": name} | more for name in names]})
        return port

    def show(self, port: FakePort, visible: bool, focused: bool = False) -> None:
        self.hub.receive(port, {"t": "tab", "title": "", "url": "", "visible": visible, "focused": focused})

    def call(self, name: str, **arguments: Any) -> Cancel:
        return self.hub.call(name, arguments, self.context, self.results.append)

    def call_in(self, tab: str, name: str, **arguments: Any) -> Cancel:
        """The same by a caller who names a tab."""
        self.context.target = Target(tab)
        try:
            return self.call(name, **arguments)
        finally:
            self.context.target = None

    def names(self) -> list[str]:
        return [tool["name"] for tool in self.hub.tools()]


@pytest.fixture
def house() -> House:
    return House()


SURE = {"type": "object", "properties": {"ok": {"type": "boolean"}}}


def text_of(result: Result) -> str:
    return str(result["content"][0]["text"])


def reply(house: House, port: FakePort, result: object) -> None:
    house.hub.receive_result(port, port.last("call")["call"], json.dumps(result), False)


# -- the catalogue -----------------------------------------------------------------------------------------------------


def test_worker_tools_come_first_and_tab_tools_follow_by_name(house: House) -> None:
    house.tab("a", "zoom", "ask")

    @tool(toolbox=house.toolbox)
    def zebra() -> str:
        return ""

    assert house.names() == ["zebra", "ask", "zoom"]


def test_a_name_offered_by_two_tabs_is_listed_once(house: House) -> None:
    house.tab("a", "info")
    house.tab("b", "info")
    assert house.names() == ["info"]


def test_withdrawn_tools_vanish(house: House) -> None:
    port = house.tab("a", "info", "draw")
    house.hub.receive(port, {"t": "withdraw", "tools": ["info", "never-offered"]})
    assert house.names() == ["draw"]


def test_the_tools_of_a_tab_that_left_vanish_and_the_others_stay(house: House) -> None:
    port = house.tab("a", "info", "draw")
    house.tab("b", "info")
    house.hub.detach(port)
    assert house.names() == ["info"]


def test_an_offer_replaces_the_one_of_the_same_name(house: House) -> None:
    port = house.tab("a", "info", description="old")
    house.hub.receive(port, {"t": "offer", "tools": [{"name": "info", "description": "new"}]})
    assert [tool["description"] for tool in house.hub.tools()] == ["new"]


def test_a_tool_without_input_schema_takes_any_object(house: House) -> None:
    house.tab("a", "info")
    assert house.hub.tools() == [{"name": "info", "inputSchema": {"type": "object"}}]


@pytest.mark.parametrize(
    "offered",
    [{"name": "no spaces"}, {"name": ""}, {}, "info", {"name": "x", "inputSchema": {"type": "array"}}],
)
def test_a_bad_offer_is_refused_with_a_reason_and_the_good_one_beside_it_stays(house: House, offered: Any) -> None:
    port = house.tab("a")
    house.hub.receive(port, {"t": "offer", "tools": [offered, {"name": "fine"}]})
    assert house.names() == ["fine"]
    assert port.last("refused")["message"]


def test_changes_that_come_together_are_told_once(house: House) -> None:
    port = house.tab("a", "one", "two")
    house.hub.receive(port, {"t": "offer", "tools": [{"name": "three"}]})
    assert len(house.due) == 1
    before = len(port.of("catalogue"))
    house.settle()
    assert house.changes == 1
    assert len(port.of("catalogue")) == before + 1


def test_a_change_that_changes_no_tool_is_not_told_to_callers(house: House) -> None:
    port = house.tab("a", "info")
    house.settle()
    house.hub.receive(port, {"t": "tab", "title": "Renamed", "url": "", "visible": True})
    house.settle()
    assert house.changes == 1
    assert port.last("catalogue")["tools"][0]["tab"]["title"] == "Renamed"


def test_a_new_tab_receives_at_once_what_is_offered_and_by_whom(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    house.tab("a", "info")
    newcomer = house.tab("b")
    assert newcomer.last("catalogue")["tools"] == [
        {"name": "add", "description": "Add two numbers.", "owner": "worker"},
        {"name": "info", "owner": "a", "tab": {"id": "a", "title": "Tab a", "url": "http://localhost/a"}},
    ]


def test_a_worker_tool_that_is_declared_later_is_told_too(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def late() -> str:
        return ""

    house.settle()
    assert house.changes == 1


def test_a_page_that_attaches_again_keeps_its_tools(house: House) -> None:
    port = house.tab("a", "info")
    house.hub.attach(port, {"id": "a", "title": "Tab a", "url": "", "visible": True})
    assert house.names() == ["info"]
    assert len(house.hub.tabs) == 1


def test_a_page_that_connects_a_second_time_takes_the_place_of_its_first_port(house: House) -> None:
    first, second = house.tab("a", "info"), house.tab("a", "info")
    assert [tab.port for tab in house.hub.tabs] == [second]
    house.call("info")
    assert second.of("call") and not first.of("call")


def test_messages_of_a_page_that_left_are_dropped(house: House) -> None:
    port = house.tab("a")
    house.hub.detach(port)
    house.hub.receive(port, {"t": "offer", "tools": [{"name": "ghost"}]})
    house.hub.detach(port)
    assert house.names() == []


# -- who gets the call -------------------------------------------------------------------------------------------------


def test_a_call_goes_to_the_visible_tab(house: House) -> None:
    seen = house.tab("a", "info")
    hidden = house.tab("b", "info", visible=False)
    house.call("info")
    assert seen.of("call") and not hidden.of("call")


def test_among_hidden_tabs_the_one_seen_last_gets_the_call(house: House) -> None:
    first, second = house.tab("a", "info"), house.tab("b", "info")
    house.tab("c", "info", visible=False)
    house.show(second, False)
    house.show(first, False)
    house.call("info")
    assert first.of("call") and not second.of("call")


def test_among_visible_tabs_the_one_focused_last_gets_the_call(house: House) -> None:
    first, second = house.tab("a", "info"), house.tab("b", "info")
    house.show(first, True, focused=True)
    house.show(second, True)  # only its title changed
    house.call("info")
    assert first.of("call") and not second.of("call")


def test_the_worker_keeps_a_name_that_a_tab_offers_too(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def info() -> str:
        return "from the worker"

    port = house.tab("a", "info")
    house.call("info")
    assert not port.of("call")
    assert text_of(house.results[0]) == "from the worker"
    _, suffixed = house.names()
    house.call(suffixed)
    assert port.last("call")["name"] == "info"


def test_the_tab_learns_what_is_called_and_by_whom(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info", depth=2)
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


def test_every_call_tells_its_tab_its_own_caller(house: House) -> None:
    """What was said of the last caller is kept; another one, or the same in another session, is another one."""
    port, same = house.tab("a", "info"), house.context.caller
    told = []
    for caller, key in ((same, "1"), (same, "2"), (replace(same, principal="token:x"), "2"), (same, "1")):
        house.context.caller, house.context.caller_key = caller, key
        house.call("info")
        said = port.last("call")["caller"]
        told.append((said["principal"], said["key"]))
    assert told == [("token:ab12", "1"), ("token:ab12", "2"), ("token:x", "2"), ("token:ab12", "1")]


def test_an_unknown_tool_is_refused(house: House) -> None:
    with pytest.raises(UnknownTool):
        house.call("nothing")


# -- callers who name a tab --------------------------------------------------------------------------------------------


def test_a_caller_gets_the_tab_it_names(house: House) -> None:
    hidden, seen = house.tab("a", "info", visible=False), house.tab("b", "info")
    house.call_in("a", "info", depth=1)
    house.call("info", depth=2, _tab="a")
    assert [call["arguments"] for call in hidden.of("call")] == [{"depth": 1}, {"depth": 2}]
    assert not seen.of("call")


@pytest.mark.parametrize("nothing", [None, ""])
def test_an_argument_that_names_no_tab_names_none(house: House, nothing: Any) -> None:
    port = house.tab("a", "info")
    house.call("info", _tab=nothing)
    assert port.last("call")["arguments"] == {}


def test_a_tool_that_has_such_an_argument_itself_gets_it(house: House) -> None:
    port = house.tab("a", "info", inputSchema={"type": "object", "properties": {"_tab": {"type": "string"}}})
    house.call("info", _tab="second from the left")
    assert port.last("call")["arguments"] == {"_tab": "second from the left"}


def test_in_a_named_tab_a_tool_is_called_as_its_page_calls_it_or_as_it_is_listed(house: House) -> None:
    house.tab("a", "info", description="one")
    port = house.tab("b", "info", description="other")
    _, suffixed = house.names()
    house.call_in("b", "info")
    house.call_in("b", suffixed)
    house.call(suffixed)
    assert [message["name"] for message in port.of("call")] == ["info"] * 3


@pytest.mark.parametrize("unknown", ["nobody", 7, {"id": "a"}])
def test_a_tab_that_is_not_there_is_an_error_that_says_which_are(house: House, unknown: Any) -> None:
    port = house.tab("a", "info")
    house.call("info", _tab=unknown)
    assert not port.of("call")
    [result] = house.results
    assert result["isError"] and '"Tab a" (a)' in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {"reason": "tab_gone", "delivered": "no", "retryable": False}


def test_a_tab_that_is_gone_is_remembered_by_its_title(house: House) -> None:
    port = house.tab("a", "info")
    house.tab("b", "info")
    house.hub.detach(port)
    house.call_in("a", "info")
    assert '"Tab a" (a) is gone' in text_of(house.results[0])


def test_a_named_tab_without_the_tool_is_an_error_that_says_who_has_it(house: House) -> None:
    house.tab("a", "draw")
    port = house.tab("b", "info")
    house.call_in("a", "info")
    assert not port.of("call")
    assert '"Tab a" does not offer the tool "info"' in text_of(house.results[0])
    assert '"Tab b" (b)' in text_of(house.results[0])
    with pytest.raises(UnknownTool):
        house.call_in("a", "nothing")


def test_the_workers_own_tools_are_had_whatever_tab_is_named(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def add(a: int, b: int) -> int:
        return a + b

    house.tab("a")
    for named in ("a", "gone"):
        house.call_in(named, "add", a=1, b=2)
    assert [text_of(result) for result in house.results] == ["3", "3"]


# -- pins --------------------------------------------------------------------------------------------------------------


def pinned(house: House, tab: str | None, *, pins: bool | None, call: str = "info") -> None:
    """A call that says in its `_meta` which tab, and whether that is pinned."""
    house.context.target = Target(tab, pins=pins)
    house.call(call)
    house.context.target = None


def test_a_pinned_tab_gets_the_calls_that_follow_until_it_is_pinned_no_more(house: House) -> None:
    hidden, seen = house.tab("a", "info", visible=False), house.tab("b", "info")
    pinned(house, "a", pins=True)
    house.call("info")
    house.call_in("b", "info")
    assert (len(hidden.of("call")), len(seen.of("call"))) == (2, 1)
    reply(house, seen, {"content": []})
    pinned(house, None, pins=False)
    assert (len(hidden.of("call")), len(seen.of("call"))) == (2, 2)
    assert house.context.caller.tab is None


def test_a_caller_can_stay_with_the_tab_that_gets_its_call(house: House) -> None:
    seen, hidden = house.tab("a", "info"), house.tab("b", "info", visible=False)
    pinned(house, None, pins=True)
    house.show(seen, False)
    house.show(hidden, True)
    house.call("info")
    assert (len(seen.of("call")), len(hidden.of("call"))) == (2, 0)


def test_a_tab_that_is_not_there_is_not_pinned(house: House) -> None:
    port = house.tab("a", "info")
    pinned(house, "nobody", pins=True)
    assert house.results[0]["isError"] and house.context.caller.tab is None
    house.call("info")
    assert port.of("call")


def test_when_the_pinned_tab_is_gone_no_other_tab_answers(house: House) -> None:
    port, other = house.tab("a", "info", visible=False), house.tab("b", "info")
    pinned(house, "a", pins=True)
    house.hub.detach(port)
    house.results.clear()
    house.call("info")
    [result] = house.results
    assert result["isError"] and '"Tab a" (a) that is pinned is gone' in text_of(result)
    assert not other.of("call")


def test_a_pin_survives_a_reload(house: House) -> None:
    port, other = house.tab("a", "info", visible=False), house.tab("b", "info")
    pinned(house, "a", pins=True)
    house.hub.detach(port, returns=True)
    house.call("info")
    again = house.tab("a", "info", visible=False)
    assert again.of("call") and not other.of("call")


def test_a_pinned_tab_without_the_tool_does_not_lend_its_name_to_another(house: House) -> None:
    house.tab("a", "info")
    other = house.tab("b", "draw")
    pinned(house, "a", pins=True)
    house.call("draw")
    assert 'that is pinned does not offer the tool "draw"' in text_of(house.results[0])
    assert not other.of("call")


def test_the_answers_to_a_tabs_questions_come_back_to_that_tab(house: House) -> None:
    """Also when another one was brought to the front to answer them."""
    port, other = house.tab("a", "info"), house.tab("b", "info", visible=False)
    house.call("info")
    asked = {"ok": {"method": "elicitation/create", "params": {"message": "Sure?", "requestedSchema": SURE}}}
    call = port.last("call")["call"]
    house.hub.receive(port, {"t": "required", "call": call, "requests": asked, "state": {"step": 2}})
    [required] = house.results
    house.show(port, False)
    house.show(other, True)
    house.context.request_state = required.state
    house.call("info")
    assert port.last("call")["state"] == {"step": 2}
    assert len(port.of("call")) == 2 and not other.of("call")


# -- a tab that is loaded again ----------------------------------------------------------------------------------------


def test_a_reload_changes_no_list_and_no_name(house: House) -> None:
    first = house.tab("a", "info", "draw", description="first")
    house.tab("b", "info", description="second")
    names = house.names()
    house.settle()
    changes = house.changes
    house.hub.detach(first, returns=True)
    house.settle()
    assert house.names() == names
    house.tab("a", "info", "draw", description="first")
    house.settle()
    house.wait(10)
    house.settle()
    assert (house.names(), house.changes) == (names, changes)
    assert len(house.hub.tabs) == 2


def test_a_call_for_a_tab_that_is_loaded_again_waits_for_it(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True, is_expected=True)
    house.call("info", depth=1)
    house.wait(1)
    port = house.tab("a")
    assert not port.of("call") and not house.results
    house.hub.receive(port, {"t": "offer", "tools": [{"name": "info"}]})
    assert port.last("call")["arguments"] == {"depth": 1}
    reply(house, port, {"content": []})
    assert len(house.results) == 1


def test_calls_that_were_under_way_fail_at_once_when_the_tab_is_reloaded(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.hub.detach(port, returns=True)
    assert house.results[0]["_meta"]["tabrelay/error"]["delivered"] == "unknown"
    again = house.tab("a", "info")
    assert not again.of("call")


@pytest.mark.parametrize(("others", "seconds"), [([], 10), (["b"], 3)])
def test_a_tab_that_does_not_come_back_fails_what_waited_for_it(
    house: House, others: list[str], seconds: float
) -> None:
    """The only tab is waited for longer: there is nobody else anyway."""
    for other in others:
        house.tab(other)
    house.hub.detach(house.tab("a", "info"), returns=True, is_expected=True)
    house.call("info")
    house.wait(seconds - 0.1)
    assert not house.results
    house.wait(0.2)
    [result] = house.results
    assert result["isError"] and "was not called" in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {"reason": "tab_gone", "delivered": "no", "retryable": False}
    assert house.names() == []


def test_a_page_that_comes_back_without_its_tool_fails_what_waited_for_it(house: House) -> None:
    house.hub.detach(house.tab("a", "info", "draw"), returns=True)
    house.call("info")
    house.tab("a", "draw")
    house.wait(11)
    assert house.results[0]["isError"]
    assert house.names() == ["draw"]


def test_what_waits_for_a_tab_moves_to_another_that_comes_with_the_same_tool(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True, is_expected=True)
    house.call("info", depth=1)
    house.call_in("a", "info", depth=2)
    other = house.tab("b", "info")
    assert [call["arguments"]["depth"] for call in other.of("call")] == [1]
    house.wait(11)
    assert "was closed" in text_of(house.results[0]) or "is gone" in text_of(house.results[0])
    assert len(other.of("call")) == 1


def test_a_call_that_waits_for_a_tab_can_be_cancelled(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True)
    cancel = house.call("info")
    cancel("changed my mind")
    port = house.tab("a", "info")
    assert not port.of("call") and not house.results


def test_a_call_for_a_tab_that_may_have_been_closed_waits_a_moment_only(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True)
    house.call("info")
    house.wait(0.9)
    assert not house.results
    house.wait(0.2)
    [result] = house.results
    assert result["isError"] and 'The tab "Tab a" was closed or is being loaded again' in text_of(result)
    assert result["_meta"]["tabrelay/error"] == {"reason": "tab_left", "delivered": "no", "retryable": True}
    # It was only reloaded, and slowly: what is called then is called, and nothing is called twice.
    again = house.tab("a", "info")
    assert not again.of("call")
    house.call("info")
    assert len(again.of("call")) == 1


def test_a_page_that_is_back_but_offers_nothing_yet_is_waited_for(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True)
    house.call("info")
    house.tab("a")
    house.wait(2)
    assert not house.results
    house.tab("a", "info")


def test_a_tab_that_is_reloaded_twice_is_waited_for_from_the_second_time(house: House) -> None:
    house.hub.detach(house.tab("a", "info"), returns=True)
    house.wait(8)
    house.hub.detach(house.tab("a", "info"), returns=True)
    house.wait(8)
    assert house.names() == ["info"]
    house.wait(3)
    assert house.names() == []


def test_a_reloaded_tab_is_as_recent_as_it_was(house: House) -> None:
    first, second = house.tab("a", "info"), house.tab("b", "info")
    house.show(second, False)
    house.show(first, False)
    house.hub.detach(first, returns=True)
    again = house.tab("a", "info", visible=False)
    house.call("info")
    assert again.of("call")


# -- answers -----------------------------------------------------------------------------------------------------------


def test_a_result_reaches_the_caller_as_it_is_and_says_which_tab_it_is_from(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    result = {"content": [{"type": "text", "text": "hi"}], "structuredContent": {"a": None}, "_meta": {"x": 1}}
    reply(house, port, result)
    assert house.results == [result | {"_meta": {"x": 1, "tabrelay/tab": {"id": "a", "title": "Tab a"}}}]


def test_only_the_first_answer_counts(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    reply(house, port, {"content": []})
    reply(house, port, {"content": [{"type": "text", "text": "again"}]})
    assert [result["content"] for result in house.results] == [[]]


def test_a_tab_can_not_answer_for_another(house: House) -> None:
    port, thief = house.tab("a", "info"), house.tab("b")
    house.call("info")
    house.hub.receive_result(thief, port.last("call")["call"], '{"content":[]}', True)
    assert house.results == []


@pytest.mark.parametrize("result", [None, "text", [], {}, {"content": "text"}])
def test_a_result_that_is_none_becomes_a_clear_error(house: House, result: object) -> None:
    port = house.tab("a", "info")
    house.call("info")
    reply(house, port, result)
    assert house.results[0]["isError"]
    assert "info" in text_of(house.results[0])


def test_an_error_of_the_tab_is_a_failed_result_with_its_message(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.hub.receive(port, {"t": "error", "call": port.last("call")["call"], "message": "no such note"})
    assert house.results[0]["isError"]
    assert text_of(house.results[0]) == "no such note"


def test_progress_and_logs_reach_the_caller(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    call = port.last("call")["call"]
    house.hub.receive(port, {"t": "progress", "call": call, "progress": 1, "total": 3})
    house.hub.receive(port, {"t": "log", "call": call, "level": "info", "data": {"x": 1}})
    house.hub.receive(port, {"t": "log", "call": call, "level": "loud", "data": "hey"})
    assert house.context.said == [
        ("progress", 1, 3, None),
        ("log", "info", {"x": 1}),
        ("log", "warning", "unknown log level 'loud': hey"),
    ]


def test_the_end_of_a_tab_fails_its_calls_at_once_and_names_it(house: House) -> None:
    port, other = house.tab("a", "info"), house.tab("b", "draw")
    house.call("info")
    house.call("draw")
    house.hub.detach(port)
    assert len(house.results) == 1
    assert house.results[0]["isError"]
    assert '"Tab a"' in text_of(house.results[0])
    reply(house, other, {"content": []})
    assert len(house.results) == 2


def test_cancelling_tells_the_tab_and_drops_what_it_answers(house: House) -> None:
    port = house.tab("a", "info")
    cancel = house.call("info")
    cancel("changed my mind")
    cancel("twice")
    assert [message["reason"] for message in port.of("cancel")] == ["changed my mind"]
    reply(house, port, {"content": []})
    assert house.results == []


def test_a_call_survives_the_withdrawal_of_its_tool(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.hub.receive(port, {"t": "withdraw", "tools": ["info"]})
    reply(house, port, {"content": []})
    assert [result["content"] for result in house.results] == [[]]


# -- tabs that are silent ----------------------------------------------------------------------------------------------


def test_a_tab_is_asked_only_while_it_runs_a_call_and_says_nothing(house: House) -> None:
    port = house.tab("a", "info")
    house.wait(60)
    assert not port.of("ping")
    house.call("info")
    for step in range(10):
        house.wait(4)
        house.hub.receive(port, {"t": "progress", "call": port.last("call")["call"], "progress": step})
    assert not port.of("ping")
    house.wait(6)
    assert len(port.of("ping")) == 1
    house.hub.receive(port, {"t": "pong"})
    reply(house, port, {"content": []})
    house.wait(60)
    assert len(port.of("ping")) == 1
    assert [result["content"] for result in house.results] == [[]]


def test_a_tab_that_answered_is_asked_again_as_soon_as_one_that_never_was(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    for asked in (1, 2, 3):
        house.wait(6)
        assert len(port.of("ping")) == asked
        house.hub.receive(port, {"t": "pong"})


def test_a_silent_tab_fails_its_own_calls_and_is_named(house: House) -> None:
    silent, other = house.tab("a", "info", "more"), house.tab("b", "draw")
    house.call("info")
    house.call("more")
    house.wait(1)
    house.call("draw")
    house.wait(33)
    assert house.results == []
    house.hub.receive(other, {"t": "pong"})
    house.wait(2)
    assert [result["isError"] for result in house.results] == [True, True]
    assert all('"Tab a" does not answer' in text_of(result) for result in house.results)
    assert "unknown" in text_of(house.results[0])
    # Should it wake up after all, it stops what it does: nobody waits for it.
    assert [message["call"] for message in silent.of("cancel")] == [message["call"] for message in silent.of("call")]
    reply(house, other, {"content": []})
    assert len(house.results) == 3


def test_a_tab_that_answers_is_given_all_the_time_it_needs(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    for _ in range(100):
        house.wait(10)
        house.hub.receive(port, {"t": "pong"})
    assert house.results == []
    reply(house, port, {"content": []})
    assert [result["content"] for result in house.results] == [[]]


def test_a_call_for_a_silent_tab_is_refused_at_once_until_it_speaks_again(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.wait(40)
    house.call("info")
    assert len(port.of("call")) == 1
    assert "was not called" in text_of(house.results[1])
    house.hub.receive(port, {"t": "pong"})
    house.call("info")
    assert len(port.of("call")) == 2


def test_another_tab_with_the_same_tool_is_preferred_to_a_silent_one(house: House) -> None:
    other, port = house.tab("b", "info", visible=False), house.tab("a", "info")
    house.call("info")
    house.wait(40)
    house.call("info")
    assert len(port.of("call")) == 1
    assert len(other.of("call")) == 1
    house.settle()
    assert other.last("catalogue")["tools"][0]["owner"] == "b"


def test_a_tab_that_says_it_freezes_fails_its_calls_soon_unless_it_resumes(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    info = {"t": "tab", "title": "Tab a", "url": "", "visible": False}
    house.hub.receive(port, {**info, "frozen": True})
    house.wait(4)
    house.hub.receive(port, info)
    house.wait(4)
    assert house.results == []
    house.hub.receive(port, {**info, "frozen": True})
    house.wait(6)
    assert not port.of("ping")
    assert '"Tab a" is frozen' in text_of(house.results[0])
    house.call("info")
    assert "is frozen" in text_of(house.results[1])
    assert len(port.of("call")) == 1
    house.hub.receive(port, info)
    house.call("info")
    assert len(port.of("call")) == 2


def test_a_worker_that_was_blocked_itself_does_not_blame_the_tab(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.wait(6)
    house.wait(60, busy=True)
    assert house.results == []
    assert len(port.of("ping")) == 2
    house.wait(31)
    assert len(house.results) == 1


def test_a_tab_that_left_is_not_asked(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    house.hub.detach(port)
    house.wait(60)
    assert not port.of("ping")
    assert len(house.results) == 1


# -- what the tabs see of it -------------------------------------------------------------------------------------------


def test_every_tab_sees_a_call_begin_and_end(house: House) -> None:
    port, watcher = house.tab("a", "info"), house.tab("b")
    house.call("info")
    house.time_ms += 12.34
    reply(house, port, {"content": []})
    started, done = watcher.of("activity")
    assert (started["phase"], started["name"], started["owner"], started["client"]) == ("started", "info", "a", "probe")
    assert (done["phase"], done["call"], done["ms"]) == ("done", started["call"], 12.3)


def test_a_page_that_watches_no_calls_receives_none_until_it_does(house: House) -> None:
    port, quiet = house.tab("a", "info"), FakePort()
    house.hub.attach(quiet, {"id": "b", "watches": False})
    house.call("info")
    assert (len(port.of("activity")), quiet.of("activity")) == (1, [])
    house.hub.receive(quiet, {"t": "watch"})
    reply(house, port, {"content": []})
    assert [message["phase"] for message in quiet.of("activity")] == ["done"]


def test_a_worker_call_that_fails_is_seen_as_failed(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def boom() -> str:
        raise RuntimeError("no luck")

    port = house.tab("a")
    house.call("boom")
    assert [message["phase"] for message in port.of("activity")] == ["started", "failed"]
    assert "no luck" in port.last("activity")["error"]


def test_bad_arguments_of_a_worker_tool_are_raised_and_seen(house: House) -> None:
    @tool(toolbox=house.toolbox)
    def add(a: int, b: int) -> int:
        return a + b

    port = house.tab("a")
    with pytest.raises(InvalidArguments):
        house.call("add", a=1)
    assert port.last("activity")["phase"] == "failed"


async def test_a_cancelled_worker_call_says_nothing_more(house: House) -> None:
    @tool(toolbox=house.toolbox)
    async def wait(context: Context) -> str:
        context.progress(1, 2)
        raise AssertionError("not reached: the call is cancelled before it runs")

    port = house.tab("a")
    cancel = house.call("wait")
    cancel("gone")
    assert [message["phase"] for message in port.of("activity")] == ["started", "cancelled"]
    assert house.results == []


def test_progress_is_shown_at_most_ten_times_a_second(house: House) -> None:
    port = house.tab("a", "info")
    house.call("info")
    call = port.last("call")["call"]
    for step in range(1, 101):
        house.time_ms += 10
        house.hub.receive(port, {"t": "progress", "call": call, "progress": step, "total": 100})
    assert len(house.context.said) == 100
    assert len([message for message in port.of("activity") if message["phase"] == "progress"]) == 10
