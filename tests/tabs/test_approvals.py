"""User approval of calls: which page asks, the effect of each decision, and the errors that the agent receives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.tabs.approvals import MOST_GRANTED, MOST_OPEN, MOST_SHOWN
from tabserver.tabs.hub import Hub
from tabserver.wire.help_codes import BY_REASON
from tests.support.fake_port import FakePort
from tests.support.fake_request import RecordingCall, RecordingRequest

WIPE = {"name": "wipe", "title": "Wipe it", "annotations": {"destructiveHint": True}}


class Rig:
    """A hub with a clock that the test advances."""

    def __init__(self) -> None:
        self.time_ms = 0.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.toolbox = Toolbox()
        self.hub = Hub(
            self.toolbox,
            now_ms=lambda: self.time_ms,
            defer=lambda work: work(),
            later=lambda delay_ms, ring: self.timers.append((self.time_ms + delay_ms, ring)),
            on_tabs=lambda: self.on_tabs(),
        )
        self.results: list[Any] = []
        self.request = RecordingRequest()

    def on_tabs(self) -> None:
        """A test may replace it."""

    def tab(self, id: str = "a", *tools: dict[str, Any], visible: bool = True, approve: Any = None) -> FakePort:
        port = FakePort()
        info = {"id": id, "title": f"Tab {id}", "url": "", "visible": visible}
        self.hub.attach(port, info | ({"approve": approve} if approve is not None else {}))
        self.hub.receive(port, {"t": "offer", "tools": list(tools or (WIPE,))})
        return port

    def call(self, name: str = "wipe", /, **arguments: Any) -> Callable[[str], None]:
        return self.hub.call(name, arguments, RecordingCall(self.request, self.results.append))

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
        """The error data of the last result."""
        [data] = [value for key, value in self.results[-1]["_meta"].items() if key.endswith("error")]
        assert self.results[-1]["isError"] and data["delivered"] == "no"
        assert "It was not run." in self.results[-1]["content"][0]["text"]
        return str(data["reason"])


@pytest.fixture
def rig() -> Rig:
    return Rig()


def test_a_destructive_tool_runs_only_after_the_user_allowed_it(rig: Rig) -> None:
    port = rig.tab()
    rig.call(what="everything")
    [asked] = port.of("approve")
    assert port.of("call") == [] and rig.results == []
    assert (asked["name"], asked["title"], asked["destructive"]) == ("wipe", "Wipe it", True)
    assert asked["arguments"] == '{\n  "what": "everything"\n}' and asked["more"] == 0
    rig.decide(port, "once")
    assert port.last("call")["arguments"] == {"what": "everything"}
    rig.call()
    assert len(port.of("approve")) == 2 and len(port.of("call")) == 1


@pytest.mark.parametrize("session", ["one", None])
def test_a_lasting_approval_holds_for_the_session_or_token_and_not_for_a_name(rig: Rig, session: str | None) -> None:
    port = rig.tab()
    allowed = rig.request.caller = replace(rig.request.caller, session=session, client={"name": "Claude"})
    rig.call()
    assert port.last("approve")["caller"]["session"] is (session is not None)
    rig.decide(port, "session")
    rig.call()
    assert len(port.of("approve")) == 1 and len(port.of("call")) == 2
    # The client chooses its name: the name neither removes the approval nor grants it.
    rig.request.caller = replace(allowed, client={"name": "another"})
    rig.call()
    assert len(port.of("approve")) == 1 and len(port.of("call")) == 3
    for other in (replace(allowed, session="two"), replace(allowed, principal="token:another")):
        rig.request.caller = other
        rig.call()
    assert len(port.of("approve")) == 3 and len(port.of("call")) == 3


def test_a_tool_that_is_another_one_now_is_asked_about_again(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.decide(port, "session")
    rig.hub.receive(port, {"t": "offer", "tools": [WIPE | {"description": "Wipes more."}]})
    rig.call()
    assert len(port.of("approve")) == 2


def test_a_refused_call_does_not_run_and_the_agent_gets_an_error(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.decide(port, "refuse")
    assert rig.reason == "refused" and port.of("call") == []
    rig.call()
    rig.decide(port, "whatever")
    assert rig.reason == "refused" and port.of("call") == []


def test_a_question_without_an_answer_ends_and_goes_away(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.wait(119)
    assert rig.results == []
    rig.wait(2)
    assert rig.reason == "approval_timeout"
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    rig.decide(port, "once")  # too late
    assert port.of("call") == [] and len(rig.results) == 1


def test_in_a_hidden_tab_the_agent_gets_an_error_soon(rig: Rig) -> None:
    port = rig.tab(visible=False)
    rig.call()
    rig.wait(11)
    assert rig.reason == "approval_unseen"
    rig.call()
    rig.hub.receive(port, {"t": "tab", "title": "", "url": "", "visible": True})
    rig.wait(11)
    assert len(rig.results) == 1  # it is visible now: the question stays open
    rig.decide(port, "once")
    assert len(port.of("call")) == 1


def test_a_tab_that_is_closed_takes_its_questions_along(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.hub.detach(port)
    assert rig.reason == "approval_unseen"


def test_cancelled_the_question_goes_away_and_nothing_runs(rig: Rig) -> None:
    port = rig.tab()
    cancel = rig.call()
    cancel("the client left")
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    rig.decide(port, "once")
    rig.wait(200)
    assert port.of("call") == [] and rig.results == []
    cancel = rig.call()
    rig.decide(port, "once")
    cancel("the client left")
    assert port.last("cancel")["call"] == port.last("call")["call"]


def test_only_the_tab_that_was_asked_answers(rig: Rig) -> None:
    port = rig.tab()
    other = rig.tab("b", {"name": "other"})
    rig.call()
    call = port.last("approve")["call"]
    rig.hub.receive(other, {"t": "approval", "call": call, "decision": "once"})
    rig.hub.receive(FakePort(), {"t": "approval", "call": call, "decision": "once"})
    rig.hub.receive(port, {"t": "approval", "call": "999", "decision": "once"})
    assert port.of("call") == []


def test_a_question_is_answered_once(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.decide(port, "once")
    for decision in ("once", "session", "refuse"):
        rig.decide(port, decision)
    assert len(port.of("call")) == 1 and rig.results == []
    rig.call()
    assert len(port.of("approve")) == 2  # the late decision did not allow it for the session
    rig.decide(port, "refuse")
    rig.decide(port, "once")
    assert rig.reason == "refused" and len(port.of("call")) == 1 and len(rig.results) == 1


def test_a_page_that_went_and_its_successor_answer_no_question(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    call = port.last("approve")["call"]
    rig.hub.detach(port)
    again = rig.tab()
    for one in (port, again):
        rig.hub.receive(one, {"t": "approval", "call": call, "decision": "session"})
    assert rig.reason == "approval_unseen" and len(rig.results) == 1
    rig.call()
    assert port.of("call") == again.of("call") == [] and len(again.of("approve")) == 1


def test_a_decision_for_one_call_is_none_for_another_that_waits_already(rig: Rig) -> None:
    port = rig.tab()
    rig.call(what="one")
    rig.call(what="all")
    rig.decide(port, "session", which=0)
    assert [message["arguments"] for message in port.of("call")] == [{"what": "one"}]
    rig.decide(port, "refuse", which=1)
    assert rig.reason == "refused" and len(port.of("call")) == 1
    rig.call(what="three")  # the first decision allowed it for the session
    assert len(port.of("call")) == 2


@pytest.mark.parametrize("decision", ["once", "session"])
def test_a_tool_that_is_another_one_by_the_time_it_is_allowed_does_not_run(rig: Rig, decision: str) -> None:
    port = rig.tab()
    rig.call()
    rig.hub.receive(port, {"t": "offer", "tools": [WIPE | {"title": "Wipe all of it"}]})
    rig.decide(port, decision)
    assert port.of("call") == [] and rig.results[-1]["isError"]
    rig.call()
    assert len(port.of("approve")) == 2 and port.of("call") == []
    rig.decide(port, "once")
    assert len(port.of("call")) == 1


def test_a_tool_that_is_withdrawn_before_it_is_allowed_does_not_run(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.hub.receive(port, {"t": "withdraw", "tools": ["wipe"]})
    rig.decide(port, "once")
    assert port.of("call") == [] and rig.results[-1]["isError"]


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
def test_the_page_chooses_which_tools_ask_and_the_operator_may_require_more_or_none(
    rig: Rig, approve: Any, operator: str, asks: set[str]
) -> None:
    tools: list[dict[str, Any]] = [
        WIPE,
        {"name": "look", "annotations": {"readOnlyHint": True, "destructiveHint": True}},
        {"name": "plain"},
    ]
    rig.hub.use_approval(operator)
    port = rig.tab("a", *tools, approve=approve)
    for each in tools:
        rig.call(str(each["name"]))
    assert {message["name"] for message in port.of("approve")} == asks
    assert {message["name"] for message in port.of("call")} == {"wipe", "look", "plain"} - asks


def test_a_tool_of_the_worker_asks_in_the_tab_in_front(rig: Rig) -> None:
    ran: list[str] = []

    @tool(destructive=True, toolbox=rig.toolbox)
    def burn(what: str) -> str:
        ran.append(what)
        return "burnt"

    rig.call("burn", what="it")
    assert rig.reason == "approval_unseen"  # no page at all
    rig.tab("back", {"name": "x"}, visible=False)
    front = rig.tab("front", {"name": "y"})
    rig.call("burn", what="it")
    assert ran == []
    rig.decide(front, "once")
    assert ran == ["it"] and rig.results[-1]["content"][0]["text"] == "burnt"
    rig.call("burn", wrong="it")
    rig.decide(front, "once")
    assert ran == ["it"] and rig.results[-1]["isError"]


def test_a_call_through_the_static_tools_is_asked_about_as_any_other(rig: Rig) -> None:
    rig.hub.use_static_tools(True)
    port = rig.tab()
    rig.call("tool_call", name="wipe", arguments={"a": 1})
    assert len(port.of("approve")) == 1 and port.of("call") == []


def test_a_call_that_goes_on_after_a_question_to_its_client_is_not_asked_about_again(rig: Rig) -> None:
    port = rig.tab()
    rig.request.input_responses = {"sure": {"action": "accept"}}
    rig.call()  # answers alone prove nothing: any client can send some
    assert len(port.of("approve")) == 1
    rig.request.request_state = {"tab": "a", "state": 1}
    rig.call()  # sealed by an earlier worker, which may have run it already
    assert len(port.of("approve")) == 2 and port.of("call") == []
    rig.request.goes_on = True  # sealed by this worker
    rig.call()
    assert len(port.of("approve")) == 2 and len(port.of("call")) == 1


def test_what_is_shown_and_how_many_wait_is_bounded(rig: Rig) -> None:
    port = rig.tab()
    rig.call(text="x" * 10_000)
    asked = port.last("approve")
    assert len(asked["arguments"]) == MOST_SHOWN and asked["more"] > 5_000
    for _ in range(MOST_OPEN):
        rig.call()
    assert len(port.of("approve")) == MOST_OPEN
    assert rig.reason == "approval_busy"


def test_of_approvals_for_a_session_the_newest_are_kept(rig: Rig) -> None:
    names = [f"wipe{number}" for number in range(MOST_GRANTED + 1)]
    port = rig.tab("a", *(WIPE | {"name": name} for name in names))
    for name in names:
        rig.call(name)
        rig.decide(port, "session")
    asked = len(port.of("approve"))
    rig.call(names[-1])
    assert len(port.of("approve")) == asked, "the newest approval is kept"
    rig.call(names[0])
    assert len(port.of("approve")) == asked + 1, "the oldest one is not"


def test_a_page_that_is_being_loaded_again_is_asked_when_it_is_back(rig: Rig) -> None:
    port = rig.tab()
    rig.hub.detach(port, returns=True)
    rig.call()
    assert rig.results == []
    again = rig.tab()
    rig.wait(0.3)
    assert len(again.of("approve")) == 1
    rig.decide(again, "once")
    assert len(again.of("call")) == 1


# -- calls that wait for a page to come back ---------------------------------------------------------------------------


INFO: dict[str, Any] = {"name": "info"}
HARMFUL = INFO | {"annotations": {"destructiveHint": True}}


def reload(rig: Rig, port: FakePort) -> None:
    rig.hub.detach(port, returns=True, is_expected=True)


@pytest.mark.parametrize(
    ("now", "approve", "operator"),
    [(HARMFUL, None, "page"), (INFO, "all", "page"), (INFO, ["info"], "page"), (INFO, None, "all")],
)
def test_a_call_that_waited_for_its_page_asks_if_it_would_have_to_by_now(
    rig: Rig, now: dict[str, Any], approve: Any, operator: str
) -> None:
    reload(rig, rig.tab("a", INFO))
    rig.call("info", what="it")
    rig.hub.use_approval(operator)
    again = rig.tab("a", now, approve=approve)
    assert again.of("call") == [] and rig.results == []
    [asked] = again.of("approve")
    assert (asked["name"], asked["arguments"]) == ("info", '{\n  "what": "it"\n}')
    rig.decide(again, "once")
    [call] = again.of("call")
    rig.hub.receive_result(again, call["call"], '{"content":[]}', False)
    assert call["arguments"] == {"what": "it"} and len(rig.results) == 1 and "isError" not in rig.results[0]


def test_a_call_that_waited_is_refused_as_any_other(rig: Rig) -> None:
    reload(rig, rig.tab("a", INFO))
    rig.call("info")
    again = rig.tab("a", HARMFUL)
    rig.decide(again, "refuse")
    assert rig.reason == "refused" and again.of("call") == []
    rig.decide(again, "once")
    assert again.of("call") == [] and len(rig.results) == 1


def test_a_call_that_waited_asks_before_it_runs_in_another_tab(rig: Rig) -> None:
    port = rig.tab("a", INFO)
    rig.time_ms = 1.0  # the name belongs to the first tab
    other = rig.tab("b", HARMFUL)
    reload(rig, port)
    rig.call("info")
    assert other.of("approve") == [] and rig.results == []
    rig.wait(3.1)  # it does not return, and the other tab has its name now
    assert other.of("call") == [] and len(other.of("approve")) == 1
    rig.decide(other, "once")
    assert len(other.of("call")) == 1


def test_the_user_is_asked_about_what_a_page_offers_and_not_about_what_it_offered_before_it_was_left(
    rig: Rig,
) -> None:
    reload(rig, rig.tab())
    again = FakePort()
    rig.hub.attach(again, {"id": "a", "title": "Tab a", "url": "", "visible": True})
    rig.call()
    rig.wait(0.3)
    assert again.of("approve") == []
    rig.hub.receive(again, {"t": "offer", "tools": [WIPE | {"title": "Wipe all of it"}]})
    assert [asked["title"] for asked in again.of("approve")] == ["Wipe all of it"] and again.of("call") == []
    rig.decide(again, "once")
    assert len(again.of("call")) == 1


def test_a_call_that_waited_can_be_cancelled_whatever_became_of_it(rig: Rig) -> None:
    port = rig.tab("a", INFO)
    reload(rig, port)
    cancel = rig.call("info")
    port = rig.tab("a", HARMFUL)
    cancel("the client left")  # the user is asked
    assert port.last("approve_over")["call"] == port.last("approve")["call"]
    rig.decide(port, "once")
    assert port.of("call") == [] and port.of("cancel") == []
    reload(rig, port)
    cancel = rig.call("info")
    port = rig.tab("a", HARMFUL)
    rig.decide(port, "once")
    cancel("the client left")  # it runs
    assert port.last("cancel")["call"] == port.last("call")["call"]
    reload(rig, port)
    rig.call("info")("the client left")  # it waits
    port = rig.tab("a", HARMFUL)
    assert port.of("approve") == port.of("call") == [] and rig.results == []


def test_what_is_allowed_for_the_session_waits_for_its_page_and_is_asked_about_if_it_is_another(rig: Rig) -> None:
    port = rig.tab()
    rig.call()
    rig.decide(port, "session")
    reload(rig, port)
    rig.call()
    port = rig.tab()
    assert port.of("approve") == [] and len(port.of("call")) == 1
    reload(rig, port)
    rig.results.clear()
    rig.call()
    port = rig.tab("a", WIPE | {"title": "Wipe all of it"})
    assert len(port.of("approve")) == 1 and port.of("call") == rig.results == []


@pytest.mark.parametrize(
    ("before", "now", "runs", "asks"),
    [
        (HARMFUL, HARMFUL, True, False),
        (HARMFUL, HARMFUL | {"title": "More"}, False, False),
        (INFO, HARMFUL, False, True),  # the user was not asked in the earlier round
        (HARMFUL, INFO, True, False),
    ],
)
def test_a_call_that_goes_on_and_waited_for_its_page_does_so_with_the_tool_that_was_allowed(
    rig: Rig, before: dict[str, Any], now: dict[str, Any], runs: bool, asks: bool
) -> None:
    reload(rig, rig.tab("a", before))
    rig.request.goes_on = True
    rig.call("info")
    again = rig.tab("a", now)
    assert (len(again.of("call")), len(again.of("approve"))) == (runs, asks)
    if not (runs or asks):
        assert rig.reason == "tab_gone"


def test_what_a_page_wants_to_be_asked_about_holds_before_it_is_announced(rig: Rig) -> None:
    port = rig.tab("a", INFO)

    def call_at_once() -> None:
        rig.call("info")

    rig.on_tabs = call_at_once  # type: ignore[method-assign]
    rig.hub.attach(port, {"id": "a", "title": "Another title", "url": "", "visible": True, "approve": "all"})
    assert len(port.of("approve")) == 1 and port.of("call") == []


@pytest.mark.parametrize(("is_expected", "seconds", "reason"), [(False, 1.1, "tab_left"), (True, 3.1, "tab_gone")])
def test_calls_for_a_page_that_does_not_come_back_wait_no_longer_because_it_would_have_asked(
    rig: Rig, is_expected: bool, seconds: float, reason: str
) -> None:
    other = rig.tab("b", {"name": "burn", "annotations": {"destructiveHint": True}})
    rig.hub.detach(rig.tab("a", INFO, WIPE), returns=True, is_expected=is_expected)
    rig.call("info")
    for _ in range(MOST_OPEN):
        rig.call("wipe")
    rig.wait(seconds - 0.2)
    assert rig.results == []
    rig.wait(0.2)
    errors = [next(value for key, value in result["_meta"].items() if key.endswith("error")) for result in rig.results]
    expected = {"reason": reason, "delivered": "no", "retryable": reason == "tab_left", "help": BY_REASON[reason]}
    assert errors == [expected] * (MOST_OPEN + 1)
    rig.wait(3)
    rig.call("burn")  # none of them counts against the limit of open questions
    assert len(other.of("approve")) == 1 and len(rig.results) == MOST_OPEN + 1
