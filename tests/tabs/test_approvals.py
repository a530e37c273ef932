"""Calls that a person must allow first: who is asked, what each answer does, and what the agent is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.tabs.approvals import MOST_OPEN, MOST_SHOWN
from tabserver.tabs.hub import Hub
from tests.support.port import FakePort
from tests.support.request import RecordingRequest

WIPE = {"name": "wipe", "title": "Wipe it", "annotations": {"destructiveHint": True}}


class House:
    """A hub whose time passes when a test says so."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.toolbox = Toolbox()
        self.hub = Hub(
            self.toolbox,
            now_ms=lambda: self.time_ms,
            defer=lambda work: work(),
            later=lambda delay_ms, ring: self.timers.append((self.time_ms + delay_ms, ring)),
        )
        self.results: list[Any] = []
        self.request = RecordingRequest()

    def tab(self, id: str = "a", *tools: dict[str, Any], visible: bool = True, approve: Any = None) -> FakePort:
        port = FakePort()
        info = {"id": id, "title": f"Tab {id}", "url": "", "visible": visible}
        self.hub.attach(port, info | ({"approve": approve} if approve is not None else {}))
        self.hub.receive(port, {"t": "offer", "tools": list(tools or (WIPE,))})
        return port

    def call(self, name: str = "wipe", /, **arguments: Any) -> Callable[[str], None]:
        return self.hub.call(name, arguments, self.request, self.results.append)

    def decide(self, port: FakePort, decision: str, which: int = -1) -> None:
        self.hub.receive(port, {"t": "approval", "call": port.of("approve")[which]["call"], "decision": decision})

    def wait(self, seconds: float) -> None:
        self.time_ms += seconds * 1000
        due = [timer for timer in self.timers if timer[0] <= self.time_ms]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, ring in sorted(due, key=lambda timer: timer[0]):
            ring()

    @property
    def reason(self) -> str:
        """What programs are told of the last result."""
        [data] = [value for key, value in self.results[-1]["_meta"].items() if key.endswith("error")]
        assert self.results[-1]["isError"] and data["delivered"] == "no"
        assert "It was not run." in self.results[-1]["content"][0]["text"]
        return str(data["reason"])


@pytest.fixture
def house() -> House:
    return House()


def test_a_destructive_tool_runs_only_after_the_user_allowed_it(house: House) -> None:
    port = house.tab()
    house.call(what="everything")
    [asked] = port.of("approve")
    assert port.of("call") == [] and house.results == []
    assert (asked["name"], asked["title"], asked["destructive"]) == ("wipe", "Wipe it", True)
    assert asked["arguments"] == '{\n  "what": "everything"\n}' and asked["more"] == 0
    house.decide(port, "once")
    assert port.last("call")["arguments"] == {"what": "everything"}
    house.call()
    assert len(port.of("approve")) == 2 and len(port.of("call")) == 1


@pytest.mark.parametrize("session", ["one", None])
def test_a_lasting_approval_holds_for_the_session_or_token_and_not_for_a_name(
    house: House, session: str | None
) -> None:
    port = house.tab()
    allowed = house.request.caller = replace(house.request.caller, session=session, client={"name": "Claude"})
    house.call()
    assert port.last("approve")["caller"]["session"] is (session is not None)
    house.decide(port, "session")
    house.call()
    assert len(port.of("approve")) == 1 and len(port.of("call")) == 2
    # The name is the client's own choice: it neither takes the approval away nor gives it.
    house.request.caller = replace(allowed, client={"name": "another"})
    house.call()
    assert len(port.of("approve")) == 1 and len(port.of("call")) == 3
    for other in (replace(allowed, session="two"), replace(allowed, principal="token:another")):
        house.request.caller = other
        house.call()
    assert len(port.of("approve")) == 3 and len(port.of("call")) == 3


def test_a_tool_that_is_another_one_now_is_asked_about_again(house: House) -> None:
    port = house.tab()
    house.call()
    house.decide(port, "session")
    house.hub.receive(port, {"t": "offer", "tools": [WIPE | {"description": "Wipes more."}]})
    house.call()
    assert len(port.of("approve")) == 2


def test_refused_it_does_not_run_and_the_agent_is_told(house: House) -> None:
    port = house.tab()
    house.call()
    house.decide(port, "refuse")
    assert house.reason == "refused" and port.of("call") == []
    house.call()
    house.decide(port, "whatever")
    assert house.reason == "refused" and port.of("call") == []


def test_a_question_without_an_answer_ends_and_goes_away(house: House) -> None:
    port = house.tab()
    house.call()
    house.wait(119)
    assert house.results == []
    house.wait(2)
    assert house.reason == "approval_timeout"
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    house.decide(port, "once")  # too late
    assert port.of("call") == [] and len(house.results) == 1


def test_in_a_hidden_tab_the_agent_gets_an_error_soon(house: House) -> None:
    port = house.tab(visible=False)
    house.call()
    house.wait(11)
    assert house.reason == "approval_unseen"
    house.call()
    house.hub.receive(port, {"t": "tab", "title": "", "url": "", "visible": True})
    house.wait(11)
    assert len(house.results) == 1  # it is seen now: the question stands
    house.decide(port, "once")
    assert len(port.of("call")) == 1


def test_a_tab_that_is_closed_takes_its_questions_along(house: House) -> None:
    port = house.tab()
    house.call()
    house.hub.detach(port)
    assert house.reason == "approval_unseen"


def test_cancelled_the_question_goes_away_and_nothing_runs(house: House) -> None:
    port = house.tab()
    cancel = house.call()
    cancel("the client left")
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    house.decide(port, "once")
    house.wait(200)
    assert port.of("call") == [] and house.results == []
    cancel = house.call()
    house.decide(port, "once")
    cancel("the client left")
    assert port.last("cancel")["call"] == port.last("call")["call"]


def test_only_the_tab_that_was_asked_answers(house: House) -> None:
    port = house.tab()
    other = house.tab("b", {"name": "other"})
    house.call()
    call = port.last("approve")["call"]
    house.hub.receive(other, {"t": "approval", "call": call, "decision": "once"})
    house.hub.receive(FakePort(), {"t": "approval", "call": call, "decision": "once"})
    house.hub.receive(port, {"t": "approval", "call": "999", "decision": "once"})
    assert port.of("call") == []


def test_a_question_is_answered_once(house: House) -> None:
    port = house.tab()
    house.call()
    house.decide(port, "once")
    for decision in ("once", "session", "refuse"):
        house.decide(port, decision)
    assert len(port.of("call")) == 1 and house.results == []
    house.call()
    assert len(port.of("approve")) == 2  # the late word did not allow it for the session
    house.decide(port, "refuse")
    house.decide(port, "once")
    assert house.reason == "refused" and len(port.of("call")) == 1 and len(house.results) == 1


def test_a_page_that_went_and_its_successor_answer_no_question(house: House) -> None:
    port = house.tab()
    house.call()
    call = port.last("approve")["call"]
    house.hub.detach(port)
    again = house.tab()
    for one in (port, again):
        house.hub.receive(one, {"t": "approval", "call": call, "decision": "session"})
    assert house.reason == "approval_unseen" and len(house.results) == 1
    house.call()
    assert port.of("call") == again.of("call") == [] and len(again.of("approve")) == 1


def test_a_word_for_one_call_is_none_for_another_that_waits_already(house: House) -> None:
    port = house.tab()
    house.call(what="one")
    house.call(what="all")
    house.decide(port, "session", which=0)
    assert [message["arguments"] for message in port.of("call")] == [{"what": "one"}]
    house.decide(port, "refuse", which=1)
    assert house.reason == "refused" and len(port.of("call")) == 1
    house.call(what="three")  # allowed for the session by the first
    assert len(port.of("call")) == 2


@pytest.mark.parametrize("decision", ["once", "session"])
def test_a_tool_that_is_another_one_by_the_time_it_is_allowed_does_not_run(house: House, decision: str) -> None:
    port = house.tab()
    house.call()
    house.hub.receive(port, {"t": "offer", "tools": [WIPE | {"title": "Wipe all of it"}]})
    house.decide(port, decision)
    assert port.of("call") == [] and house.results[-1]["isError"]
    house.call()
    assert len(port.of("approve")) == 2 and port.of("call") == []
    house.decide(port, "once")
    assert len(port.of("call")) == 1


def test_a_tool_that_is_withdrawn_before_it_is_allowed_does_not_run(house: House) -> None:
    port = house.tab()
    house.call()
    house.hub.receive(port, {"t": "withdraw", "tools": ["wipe"]})
    house.decide(port, "once")
    assert port.of("call") == [] and house.results[-1]["isError"]


@pytest.mark.parametrize(
    ("approve", "operator", "asks"),
    [
        (None, "page", {"wipe"}),
        ("destructive", "page", {"wipe"}),
        ("all", "page", {"wipe", "look", "plain"}),
        ("none", "page", set()),
        (["plain"], "page", {"plain"}),
        (7, "page", {"wipe"}),
        ("none", "destructive", {"wipe"}),
        ("none", "all", {"wipe", "look", "plain"}),
        (["plain"], "destructive", {"plain", "wipe"}),
        ("all", "none", set()),
    ],
)
def test_the_page_says_which_tools_ask_and_the_operator_may_want_more_or_none(
    house: House, approve: Any, operator: str, asks: set[str]
) -> None:
    tools: list[dict[str, Any]] = [
        WIPE,
        {"name": "look", "annotations": {"readOnlyHint": True, "destructiveHint": True}},
        {"name": "plain"},
    ]
    house.hub.use_approval(operator)
    port = house.tab("a", *tools, approve=approve)
    for each in tools:
        house.call(str(each["name"]))
    assert {message["name"] for message in port.of("approve")} == asks
    assert {message["name"] for message in port.of("call")} == {"wipe", "look", "plain"} - asks


def test_a_tool_of_the_worker_asks_in_the_tab_in_front(house: House) -> None:
    ran: list[str] = []

    @tool(destructive=True, toolbox=house.toolbox)
    def burn(what: str) -> str:
        ran.append(what)
        return "burnt"

    house.call("burn", what="it")
    assert house.reason == "approval_unseen"  # no page at all
    house.tab("back", {"name": "x"}, visible=False)
    front = house.tab("front", {"name": "y"})
    house.call("burn", what="it")
    assert ran == []
    house.decide(front, "once")
    assert ran == ["it"] and house.results[-1]["content"][0]["text"] == "burnt"
    house.call("burn", wrong="it")
    house.decide(front, "once")
    assert ran == ["it"] and house.results[-1]["isError"]


def test_a_call_through_the_static_tools_is_asked_about_as_any_other(house: House) -> None:
    house.hub.use_static_tools(True)
    port = house.tab()
    house.call("tool_call", name="wipe", arguments={"a": 1})
    assert len(port.of("approve")) == 1 and port.of("call") == []


def test_a_call_that_goes_on_after_a_question_to_its_client_is_not_asked_about_again(house: House) -> None:
    port = house.tab()
    house.request.input_responses = {"sure": {"action": "accept"}}
    house.call()  # answers alone prove nothing: anybody can send some
    assert len(port.of("approve")) == 1
    house.request.request_state = {"tab": "a", "state": 1}
    house.call()  # sealed by a worker before this one, which may have run it already
    assert len(port.of("approve")) == 2 and port.of("call") == []
    house.request.goes_on = True  # sealed by this worker
    house.call()
    assert len(port.of("approve")) == 2 and len(port.of("call")) == 1


def test_what_is_shown_and_how_many_wait_is_bounded(house: House) -> None:
    port = house.tab()
    house.call(text="x" * 10_000)
    asked = port.last("approve")
    assert len(asked["arguments"]) == MOST_SHOWN and asked["more"] > 5_000
    for _ in range(MOST_OPEN):
        house.call()
    assert len(port.of("approve")) == MOST_OPEN
    assert house.reason == "approval_busy"


def test_a_page_that_is_being_loaded_again_is_asked_when_it_is_back(house: House) -> None:
    port = house.tab()
    house.hub.detach(port, returns=True)
    house.call()
    assert house.results == []
    again = house.tab()
    house.wait(0.3)
    assert len(again.of("approve")) == 1
    house.decide(again, "once")
    assert len(again.of("call")) == 1


# -- calls that wait for a page to come back ---------------------------------------------------------------------------


INFO: dict[str, Any] = {"name": "info"}
HARMFUL = INFO | {"annotations": {"destructiveHint": True}}


def reload(house: House, port: FakePort) -> None:
    house.hub.detach(port, returns=True, is_expected=True)


@pytest.mark.parametrize(
    ("now", "approve", "operator"),
    [(HARMFUL, None, "page"), (INFO, "all", "page"), (INFO, ["info"], "page"), (INFO, None, "all")],
)
def test_a_call_that_waited_for_its_page_asks_if_it_would_have_to_by_now(
    house: House, now: dict[str, Any], approve: Any, operator: str
) -> None:
    reload(house, house.tab("a", INFO))
    house.call("info", what="it")
    house.hub.use_approval(operator)
    again = house.tab("a", now, approve=approve)
    assert again.of("call") == [] and house.results == []
    [asked] = again.of("approve")
    assert (asked["name"], asked["arguments"]) == ("info", '{\n  "what": "it"\n}')
    house.decide(again, "once")
    [call] = again.of("call")
    house.hub.receive_result(again, call["call"], '{"content":[]}', False)
    assert call["arguments"] == {"what": "it"} and len(house.results) == 1 and "isError" not in house.results[0]


def test_a_call_that_waited_is_refused_as_any_other(house: House) -> None:
    reload(house, house.tab("a", INFO))
    house.call("info")
    again = house.tab("a", HARMFUL)
    house.decide(again, "refuse")
    assert house.reason == "refused" and again.of("call") == []
    house.decide(again, "once")
    assert again.of("call") == [] and len(house.results) == 1


def test_a_call_that_waited_asks_before_it_runs_in_another_tab(house: House) -> None:
    port = house.tab("a", INFO)
    house.time_ms = 1.0  # the name is that of the first
    other = house.tab("b", HARMFUL)
    reload(house, port)
    house.call("info")
    assert other.of("approve") == [] and house.results == []
    house.wait(3.1)  # it stays away, and its name is the other's now
    assert other.of("call") == [] and len(other.of("approve")) == 1
    house.decide(other, "once")
    assert len(other.of("call")) == 1


def test_the_user_is_asked_about_what_a_page_offers_and_not_about_what_it_offered_before_it_was_left(
    house: House,
) -> None:
    reload(house, house.tab())
    again = FakePort()
    house.hub.attach(again, {"id": "a", "title": "Tab a", "url": "", "visible": True})
    house.call()
    house.wait(0.3)
    assert again.of("approve") == []
    house.hub.receive(again, {"t": "offer", "tools": [WIPE | {"title": "Wipe all of it"}]})
    assert [asked["title"] for asked in again.of("approve")] == ["Wipe all of it"] and again.of("call") == []
    house.decide(again, "once")
    assert len(again.of("call")) == 1


def test_a_call_that_waited_can_be_cancelled_whatever_became_of_it(house: House) -> None:
    port = house.tab("a", INFO)
    reload(house, port)
    cancel = house.call("info")
    port = house.tab("a", HARMFUL)
    cancel("the client left")  # somebody is asked
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    house.decide(port, "once")
    assert port.of("call") == [] and port.of("cancel") == []
    reload(house, port)
    cancel = house.call("info")
    port = house.tab("a", HARMFUL)
    house.decide(port, "once")
    cancel("the client left")  # it runs
    assert port.last("cancel")["call"] == port.last("call")["call"]
    reload(house, port)
    house.call("info")("the client left")  # it waits
    port = house.tab("a", HARMFUL)
    assert port.of("approve") == port.of("call") == [] and house.results == []


def test_what_is_allowed_for_the_session_waits_for_its_page_and_is_asked_about_if_it_is_another(house: House) -> None:
    port = house.tab()
    house.call()
    house.decide(port, "session")
    reload(house, port)
    house.call()
    port = house.tab()
    assert port.of("approve") == [] and len(port.of("call")) == 1
    reload(house, port)
    house.results.clear()
    house.call()
    port = house.tab("a", WIPE | {"title": "Wipe all of it"})
    assert len(port.of("approve")) == 1 and port.of("call") == house.results == []


@pytest.mark.parametrize(
    ("before", "now", "runs", "asks"),
    [
        (HARMFUL, HARMFUL, True, False),
        (HARMFUL, HARMFUL | {"title": "More"}, False, False),
        (INFO, HARMFUL, False, True),  # nobody was asked in the round before
        (HARMFUL, INFO, True, False),
    ],
)
def test_a_call_that_goes_on_and_waited_for_its_page_does_so_with_the_tool_that_was_allowed(
    house: House, before: dict[str, Any], now: dict[str, Any], runs: bool, asks: bool
) -> None:
    reload(house, house.tab("a", before))
    house.request.goes_on = True
    house.call("info")
    again = house.tab("a", now)
    assert (len(again.of("call")), len(again.of("approve"))) == (runs, asks)
    if not (runs or asks):
        assert house.reason == "tab_gone"


def test_what_a_page_wants_to_be_asked_about_holds_before_it_is_announced(house: House) -> None:
    port = house.tab("a", INFO)

    def call_at_once() -> None:
        house.call("info")

    house.hub.on_tabs = call_at_once
    house.hub.attach(port, {"id": "a", "title": "Another title", "url": "", "visible": True, "approve": "all"})
    assert len(port.of("approve")) == 1 and port.of("call") == []


@pytest.mark.parametrize(("is_expected", "seconds", "reason"), [(False, 1.1, "tab_left"), (True, 3.1, "tab_gone")])
def test_calls_for_a_page_that_does_not_come_back_wait_no_longer_because_it_would_have_asked(
    house: House, is_expected: bool, seconds: float, reason: str
) -> None:
    other = house.tab("b", {"name": "burn", "annotations": {"destructiveHint": True}})
    house.hub.detach(house.tab("a", INFO, WIPE), returns=True, is_expected=is_expected)
    house.call("info")
    for _ in range(MOST_OPEN):
        house.call("wipe")
    house.wait(seconds - 0.2)
    assert house.results == []
    house.wait(0.2)
    told = [next(value for key, value in result["_meta"].items() if key.endswith("error")) for result in house.results]
    assert told == [{"reason": reason, "delivered": "no", "retryable": reason == "tab_left"}] * (MOST_OPEN + 1)
    house.wait(3)
    house.call("burn")  # none of them takes the room of a question that somebody sees
    assert len(other.of("approve")) == 1 and len(house.results) == MOST_OPEN + 1
