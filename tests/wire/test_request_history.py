"""The worker's request history and the relay's pending calls: which worker is asked again, and which requests run."""

from __future__ import annotations

from tabserver.wire import request_history as rules
from tabserver.wire.codec import TextCodec
from tabserver.wire.pending_calls import PendingCalls
from tabserver.wire.request_history import RecordedAnswer, RequestHistory, RequestStanding


def test_a_request_is_new_running_or_answered() -> None:
    history = RequestHistory(TextCodec())
    assert history.lookup("c", 1) is RequestStanding.UNKNOWN
    history.begin("c", 1)
    assert history.lookup("c", 1) is RequestStanding.RUNNING
    assert history.lookup("c", "1") is RequestStanding.UNKNOWN
    history.finish("c", 1, "answer", 0.0)
    assert history.lookup("c", 1) == RecordedAnswer("answer", 6, 0.0)


def test_nothing_is_kept_of_a_caller_that_left_and_nothing_runs_again() -> None:
    history = RequestHistory(TextCodec())
    history.begin("c", 1)
    history.close("c")
    history.finish("c", 1, "late", 0.0)
    assert history.lookup("c", 1) is RequestStanding.FORGOTTEN
    for number in range(rules.MAX_KEYS + 10):
        history.begin(str(number), 1)
        history.close(str(number))
    assert history.lookup("c", 1) is RequestStanding.UNKNOWN


def test_answers_are_bounded_in_number_size_and_age_and_never_taken_for_unasked() -> None:
    history = RequestHistory(TextCodec())
    for number in range(rules.MAX_ANSWERS + 1):
        history.begin("c", number)
        history.finish("c", number, "x", 0.0)
    assert history.lookup("c", 0) is RequestStanding.FORGOTTEN
    assert isinstance(history.lookup("c", 1), RecordedAnswer)
    history.begin("c", "big")
    history.finish("c", "big", "x" * rules.MAX_SIZE, 0.0)
    assert history.lookup("c", 1) is RequestStanding.FORGOTTEN
    history.begin("c", "later")
    history.finish("c", "later", "x", rules.MAX_AGE_S + 1)
    assert history.lookup("c", "big") is RequestStanding.FORGOTTEN
    assert isinstance(history.lookup("c", "later"), RecordedAnswer)


def test_keys_are_bounded_too() -> None:
    history = RequestHistory(TextCodec())
    for number in range(rules.MAX_KEYS + 10):
        history.begin("c", number)
        history.finish("c", number, "x", 0.0)
    assert history.lookup("c", 0) is RequestStanding.UNKNOWN
    assert history.lookup("c", 20) is RequestStanding.FORGOTTEN


def test_what_runs_is_known_however_many_were_answered_since_and_is_bounded_by_itself() -> None:
    history = RequestHistory(TextCodec())
    history.begin("long", 1)
    for number in range(rules.MAX_KEYS + 10):
        history.begin("c", number)
        history.finish("c", number, "x", 0.0)
    assert history.lookup("long", 1) is RequestStanding.RUNNING
    history.finish("long", 1, "at last", 0.0)
    assert isinstance(history.lookup("long", 1), RecordedAnswer)
    for number in range(rules.MAX_KEYS + 1):
        history.begin("never answered", number)
    assert history.lookup("never answered", 0) is RequestStanding.FORGOTTEN
    assert history.lookup("never answered", 1) is RequestStanding.RUNNING


def test_calls_are_sent_again_to_the_same_worker_and_never_to_another() -> None:
    pending: PendingCalls[str] = PendingCalls()
    assert pending.claim("w1") == ([], [])
    pending["c", 1] = "call"
    assert pending.claim("w1") == (["call"], [])
    assert pending.claim("w2") == ([], ["call"])
    assert len(pending) == 0


def test_an_answer_is_taken_once_and_by_its_own_key() -> None:
    pending: PendingCalls[str] = PendingCalls()
    pending["c", 1] = "call"
    assert pending.pop(("c", "1"), None) is None
    assert pending.pop(("d", 1), None) is None
    assert pending.pop(("c", 1), None) == "call"
    assert pending.pop(("c", 1), None) is None
