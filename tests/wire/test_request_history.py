"""The worker's ledger and the relay's roster: who is asked again, and what runs."""

from __future__ import annotations

from tabserver.wire import request_history as rules
from tabserver.wire.codec import TextCodec
from tabserver.wire.pending_calls import PendingCalls
from tabserver.wire.request_history import RecordedAnswer, RequestHistory, RequestStanding


def test_a_request_stands_as_it_is() -> None:
    ledger = RequestHistory(TextCodec())
    assert ledger.recall("c", 1) is RequestStanding.UNKNOWN
    ledger.begin("c", 1)
    assert ledger.recall("c", 1) is RequestStanding.RUNNING
    assert ledger.recall("c", "1") is RequestStanding.UNKNOWN
    ledger.finish("c", 1, "answer", 0.0)
    assert ledger.recall("c", 1) == RecordedAnswer("answer", 6, 0.0)


def test_of_a_caller_that_left_nothing_is_kept_and_nothing_runs_anew() -> None:
    ledger = RequestHistory(TextCodec())
    ledger.begin("c", 1)
    ledger.close("c")
    ledger.finish("c", 1, "late", 0.0)
    assert ledger.recall("c", 1) is RequestStanding.FORGOTTEN
    for number in range(rules.MAX_KEYS + 10):
        ledger.begin(str(number), 1)
        ledger.close(str(number))
    assert ledger.recall("c", 1) is RequestStanding.UNKNOWN


def test_answers_are_bounded_in_number_size_and_age_and_never_taken_for_unasked() -> None:
    ledger = RequestHistory(TextCodec())
    for number in range(rules.MAX_ANSWERS + 1):
        ledger.begin("c", number)
        ledger.finish("c", number, "x", 0.0)
    assert ledger.recall("c", 0) is RequestStanding.FORGOTTEN
    assert isinstance(ledger.recall("c", 1), RecordedAnswer)
    ledger.begin("c", "big")
    ledger.finish("c", "big", "x" * rules.MAX_SIZE, 0.0)
    assert ledger.recall("c", 1) is RequestStanding.FORGOTTEN
    ledger.begin("c", "later")
    ledger.finish("c", "later", "x", rules.MAX_AGE_S + 1)
    assert ledger.recall("c", "big") is RequestStanding.FORGOTTEN
    assert isinstance(ledger.recall("c", "later"), RecordedAnswer)


def test_keys_are_bounded_too() -> None:
    ledger = RequestHistory(TextCodec())
    for number in range(rules.MAX_KEYS + 10):
        ledger.begin("c", number)
        ledger.finish("c", number, "x", 0.0)
    assert ledger.recall("c", 0) is RequestStanding.UNKNOWN
    assert ledger.recall("c", 20) is RequestStanding.FORGOTTEN


def test_what_runs_is_known_however_many_were_answered_since_and_is_bounded_by_itself() -> None:
    ledger = RequestHistory(TextCodec())
    ledger.begin("long", 1)
    for number in range(rules.MAX_KEYS + 10):
        ledger.begin("c", number)
        ledger.finish("c", number, "x", 0.0)
    assert ledger.recall("long", 1) is RequestStanding.RUNNING
    ledger.finish("long", 1, "at last", 0.0)
    assert isinstance(ledger.recall("long", 1), RecordedAnswer)
    for number in range(rules.MAX_KEYS + 1):
        ledger.begin("never answered", number)
    assert ledger.recall("never answered", 0) is RequestStanding.FORGOTTEN
    assert ledger.recall("never answered", 1) is RequestStanding.RUNNING


def test_the_same_worker_is_asked_again_and_another_never() -> None:
    roster: PendingCalls[str] = PendingCalls()
    assert roster.claim("w1") == ([], [])
    roster["c", 1] = "call"
    assert roster.claim("w1") == (["call"], [])
    assert roster.claim("w2") == ([], ["call"])
    assert len(roster) == 0


def test_an_answer_is_taken_once_and_by_its_own_key() -> None:
    roster: PendingCalls[str] = PendingCalls()
    roster["c", 1] = "call"
    assert roster.pop(("c", "1"), None) is None
    assert roster.pop(("d", 1), None) is None
    assert roster.pop(("c", 1), None) == "call"
    assert roster.pop(("c", 1), None) is None
