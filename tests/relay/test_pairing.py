"""Pages of other origins ask to be paired: the requests as values, with time as an argument."""

from __future__ import annotations

import pytest

from tabrelay.pairing import ASK_EVERY_S, BLOCK_S, LIFE_S, MAX_REMEMBERED, Asking, Pairing, Refused, State, Ticket

APP = "https://app.example"
NOW = 1000.0


def ask(pairing: Pairing, origin: str = APP, server: str = "notes", now: float = NOW) -> Ticket:
    ticket = pairing.ask(origin, server, now)
    assert isinstance(ticket, Ticket)
    return ticket


def state(pairing: Pairing, ticket: Ticket, origin: str = APP, now: float = NOW) -> State | str | None:
    found = pairing.look(ticket.request, origin, now)
    return found.reason if isinstance(found, Refused) else None if found is None else found.state


def test_a_request_waits_is_approved_and_is_picked_up_once() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert len(ticket.code) == 4 and ticket.code.isdigit()
    assert len(ticket.request) == 22
    assert state(pairing, ticket) is State.WAITING
    decided = pairing.decide(ticket.code, approve=True, now=NOW)
    assert decided == Asking(ticket.code, APP, "notes", NOW, State.APPROVED)
    assert pairing.waiting(NOW) == []
    assert state(pairing, ticket) is State.APPROVED
    pairing.pick_up(ticket.request)
    assert state(pairing, ticket) is None


def test_only_the_origin_that_asked_can_look() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=True, now=NOW)
    assert state(pairing, ticket, "https://evil.example") is None
    assert state(pairing, ticket) is State.APPROVED


@pytest.mark.parametrize("approve", [True, False])
def test_a_code_that_nobody_has_decides_nothing(approve: bool) -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    for code in ("", "0", "\ud800", ticket.code + "0", f"{(int(ticket.code) + 1) % 10_000:04}"):
        assert pairing.decide(code, approve=approve, now=NOW) is None
    assert state(pairing, ticket) is State.WAITING


def test_a_request_ends_after_two_minutes() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert state(pairing, ticket, now=NOW + LIFE_S - 1) is State.WAITING
    assert pairing.decide(ticket.code, approve=True, now=NOW + LIFE_S) is None
    assert state(pairing, ticket, now=NOW + LIFE_S) is State.EXPIRED
    assert pairing.waiting(NOW + LIFE_S) == []


def test_what_is_asked_anew_makes_the_earlier_code_void() -> None:
    pairing = Pairing()
    first = ask(pairing)
    later = NOW + ASK_EVERY_S
    second = ask(pairing, server="other", now=later)
    assert pairing.decide(first.code, approve=True, now=later) is None or first.code == second.code
    assert pairing.look(first.request, APP, later, is_known=True) is None
    assert [asking.server for asking in pairing.waiting(later)] == ["other"]


def test_a_page_that_asks_in_a_loop_is_slowed_down() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    refused = pairing.ask(APP, "notes", NOW + 1)
    assert isinstance(refused, Refused) and (refused.reason, refused.retry_s) == ("busy", ASK_EVERY_S - 1)
    assert state(pairing, ticket) is State.WAITING


def test_three_origins_wait_at_a_time_each_with_a_code_of_its_own() -> None:
    pairing = Pairing()
    tickets = [ask(pairing, f"https://{name}.example") for name in "abc"]
    assert len({ticket.code for ticket in tickets}) == 3
    refused = pairing.ask(APP, "notes", NOW + 20)
    assert isinstance(refused, Refused) and (refused.reason, refused.retry_s) == ("busy", LIFE_S - 20)
    pairing.decide(tickets[0].code, approve=True, now=NOW + 20)
    ask(pairing, now=NOW + 20)


def test_a_refused_origin_is_told_and_not_listened_to_for_ten_minutes() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=False, now=NOW)
    assert state(pairing, ticket) is State.REFUSED
    refused = pairing.ask(APP, "notes", NOW + 1)
    assert isinstance(refused, Refused) and refused.reason == "blocked"
    assert refused.retry_s == BLOCK_S - 1
    ask(pairing, "https://another.example", now=NOW + 1)
    ask(pairing, now=NOW + BLOCK_S)


def test_five_wrong_codes_block_the_origin_for_ten_minutes_and_no_other() -> None:
    pairing = Pairing()
    for _ in range(5):
        assert pairing.look("guess", APP, NOW) is None
    assert isinstance(pairing.look("guess", APP, NOW), Refused)
    assert isinstance(pairing.ask(APP, "notes", NOW + BLOCK_S - 1), Refused)
    ask(pairing, "https://another.example")
    ask(pairing, now=NOW + BLOCK_S)


def test_four_wrong_codes_are_forgiven_after_a_while_or_a_success() -> None:
    pairing = Pairing()
    for start in (NOW, NOW + BLOCK_S + 1):
        for _ in range(4):
            assert pairing.look("guess", APP, start) is None
    ticket = ask(pairing, now=NOW + BLOCK_S + 1)
    pairing.decide(ticket.code, approve=True, now=NOW + BLOCK_S + 1)
    pairing.pick_up(ticket.request)
    assert pairing.look("guess", APP, NOW + BLOCK_S + 1) is None
    ask(pairing, now=NOW + BLOCK_S + 1)


def test_a_block_does_not_hide_the_answer_to_what_was_asked_before() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    for _ in range(6):
        pairing.look("guess", APP, NOW)
    assert state(pairing, ticket) is State.WAITING


def test_an_approval_that_nobody_picks_up_ends() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=True, now=NOW + LIFE_S - 1)
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S - 1) is State.APPROVED
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S) is State.EXPIRED
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S) is State.EXPIRED


def test_a_code_is_used_once_and_not_after_its_end() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert pairing.decide(ticket.code, approve=True, now=NOW) is not None
    for approve in (True, False):
        assert pairing.decide(ticket.code, approve=approve, now=NOW) is None
    assert state(pairing, ticket) is State.APPROVED
    late = ask(pairing, "https://late.example")
    for now in (NOW + LIFE_S, NOW + 10 * LIFE_S):
        assert pairing.decide(late.code, approve=True, now=now) is None
        assert state(pairing, late, "https://late.example", now=now) is State.EXPIRED


def test_whoever_comes_under_many_names_does_not_end_a_block() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=False, now=NOW)
    for number in range(2 * MAX_REMEMBERED):
        pairing.look("guess", f"https://{number}.example", NOW + 1)
    assert len(pairing._records) == MAX_REMEMBERED
    assert isinstance(pairing.ask(APP, "notes", NOW + 2), Refused)


def test_what_is_remembered_of_strangers_has_a_bound() -> None:
    pairing = Pairing()
    for number in range(MAX_REMEMBERED + 100):
        pairing.look("guess", f"https://{number}.example", NOW)
    assert len(pairing._records) == MAX_REMEMBERED
    # Also of those that are all blocked.
    for number in range(MAX_REMEMBERED + 100):
        for _ in range(5):
            pairing.look("guess", f"https://blocked-{number}.example", NOW)
    assert len(pairing._records) == MAX_REMEMBERED
