"""Pairing requests of pages on other origins, as values, with time as an argument."""

from __future__ import annotations

import pytest

from tabrelay.admission.pairing import (
    ALPHABET,
    CODE_LENGTH,
    LIFE_S,
    MAX_DECIDED,
    MAX_SHOWN,
    MUTE_S,
    NOTIFY_EVERY_S,
    Pairing,
    PairingRequest,
    PairingState,
    PairingTicket,
)

APP = "https://app.example"
NOW = 1000.0


def ask(pairing: Pairing, origin: str = APP, server: str = "notes", now: float = NOW) -> PairingTicket:
    return pairing.ask(origin, server, now)


def state(pairing: Pairing, ticket: PairingTicket, origin: str = APP, now: float = NOW) -> PairingState | None:
    found = pairing.find(ticket.request, origin, now)
    return None if found is None else found.state


def flood(pairing: Pairing, now: float = NOW) -> None:
    """What a program without a token can do: forge any origin, send requests and guess without limit."""
    for number in range(300):
        for origin in (APP, f"https://{number}.example"):
            pairing.ask(origin, "notes", now)
            for guess in ("guess", "", "\ud800", "A" * 60):
                pairing.find(guess, origin, now)


def test_a_request_waits_is_approved_and_is_collected_once() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert len(ticket.code) == CODE_LENGTH + 1 and set(ticket.code) == set(ticket.code) & {*ALPHABET, "-"}
    assert state(pairing, ticket) is PairingState.WAITING
    decided = pairing.decide(ticket.code, approve=True, now=NOW)
    assert decided == PairingRequest(ticket.code, APP, "notes", NOW, PairingState.APPROVED)
    assert pairing.waiting(NOW) == []
    assert state(pairing, ticket) is PairingState.APPROVED
    pairing.collect(ticket.request, NOW)
    for now in (NOW, NOW + LIFE_S - 1):
        assert state(pairing, ticket, now=now) is None
    assert state(pairing, ticket, now=NOW + 3 * LIFE_S) is PairingState.EXPIRED


@pytest.mark.parametrize(
    "typed", [str.lower, lambda code: code.replace("-", ""), lambda code: f" {code[:2]} {code[2:]} "]
)
def test_a_code_is_understood_as_people_type_it(typed) -> None:  # type: ignore[no-untyped-def]
    pairing = Pairing()
    ticket = ask(pairing)
    assert pairing.decide(typed(ticket.code), approve=True, now=NOW) is not None


def test_only_the_origin_that_asked_can_look() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=True, now=NOW)
    assert state(pairing, ticket, "https://evil.example") is None
    assert state(pairing, ticket) is PairingState.APPROVED


def test_a_ticket_that_was_changed_or_made_by_another_process_is_none() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=True, now=NOW)
    assert Pairing().find(ticket.request, APP, NOW) is None
    for place in range(0, len(ticket.request) - 1, 7):
        other = "A" if ticket.request[place] != "A" else "B"
        assert pairing.find(ticket.request[:place] + other + ticket.request[place + 1 :], APP, NOW) is None
    assert state(pairing, ticket) is PairingState.APPROVED


@pytest.mark.parametrize("approve", [True, False])
def test_a_code_of_no_request_decides_nothing(approve: bool) -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    last = ALPHABET[(ALPHABET.index(ticket.code[-1]) + 1) % len(ALPHABET)]
    for code in ("", "0", "\ud800", ticket.code + "2", ticket.code[:-1], ticket.code[:-1] + last, "ß" * 100):
        assert pairing.decide(code, approve=approve, now=NOW) is None
    assert state(pairing, ticket) is PairingState.WAITING


def test_a_request_ends_after_two_minutes() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert state(pairing, ticket, now=NOW + LIFE_S - 1) is PairingState.WAITING
    assert pairing.decide(ticket.code, approve=True, now=NOW + LIFE_S) is None
    assert state(pairing, ticket, now=NOW + LIFE_S) is PairingState.EXPIRED
    assert pairing.waiting(NOW + LIFE_S) == []


def test_a_page_that_asks_in_a_loop_has_one_row_and_the_user_is_notified_rarely() -> None:
    pairing = Pairing()
    told = [ask(pairing, now=NOW + tenth / 10).is_user_notified for tenth in range(3)]
    assert told == [True, False, False]
    assert len(pairing.waiting(NOW + 1)) == 1
    assert ask(pairing, now=NOW + 1 + NOTIFY_EVERY_S).is_user_notified


def test_a_program_that_asks_and_guesses_under_every_origin_keeps_no_page_from_being_paired() -> None:
    pairing = Pairing()
    flood(pairing)
    ticket = ask(pairing, "https://honest.example", now=NOW + 1)
    flood(pairing, NOW + 1)
    early = ask(pairing, now=NOW + 2)
    flood(pairing, NOW + 3)
    assert len(pairing.waiting(NOW + 3)) == MAX_SHOWN
    for one, origin in ((ticket, "https://honest.example"), (early, APP)):
        assert state(pairing, one, origin, NOW + 4) is PairingState.WAITING
        assert pairing.decide(one.code, approve=True, now=NOW + 4) or pairing.approve_unseen(one.code, NOW + 4)
        assert state(pairing, one, origin, NOW + 4) is PairingState.APPROVED


def test_what_is_kept_of_requests_does_not_grow_with_them() -> None:
    pairing = Pairing()
    for start in range(3):
        flood(pairing, NOW + start * LIFE_S)
    assert len(pairing._shown) <= MAX_SHOWN
    assert not pairing._decided and not pairing._muted


def test_what_is_kept_of_decisions_has_a_bound() -> None:
    pairing = Pairing()
    for number in range(MAX_DECIDED + 50):
        ticket = ask(pairing, f"https://{number}.example")
        assert pairing.decide(ticket.code, approve=False, now=NOW) is not None
    assert len(pairing._decided) == len(pairing._muted) == MAX_DECIDED
    ask(pairing, now=NOW + 2 * LIFE_S)
    last = ask(pairing, "https://last.example", now=NOW + 2 * LIFE_S)
    pairing.decide(last.code, approve=True, now=NOW + 2 * LIFE_S)
    assert len(pairing._decided) == 1


def test_the_origin_of_a_refused_request_is_not_shown_for_ten_minutes_and_can_be_approved_by_its_code() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=False, now=NOW)
    assert state(pairing, ticket) is PairingState.REFUSED
    again = ask(pairing, now=NOW + 1)
    assert (again.is_shown, again.is_user_notified, pairing.waiting(NOW + 1)) == (False, False, [])
    assert ask(pairing, "https://another.example", now=NOW + 1).is_shown
    # The refused request may have come from a program that forged the origin.
    assert pairing.approve_unseen(again.code, NOW + 2)
    assert state(pairing, again, now=NOW + 2) is PairingState.APPROVED
    assert state(pairing, ticket, now=NOW + 2) is PairingState.REFUSED
    assert ask(pairing, now=NOW + MUTE_S).is_shown


def test_an_approval_of_what_is_not_shown_is_for_that_code_and_can_be_taken_back() -> None:
    pairing = Pairing()
    first, second = ask(pairing), ask(pairing)  # the second takes the row
    assert [each.code for each in pairing.waiting(NOW)] == [second.code]
    assert not pairing.approve_unseen("K7QF", NOW)
    assert pairing.approve_unseen(first.code, NOW)
    assert not pairing.approve_unseen(first.code, NOW)
    assert (state(pairing, first), state(pairing, second)) == (PairingState.APPROVED, PairingState.WAITING)
    pairing.withdraw(first.code)
    assert state(pairing, first) is PairingState.WAITING
    assert pairing.approve_unseen(first.code, NOW)
    pairing.collect(first.request, NOW)
    pairing.withdraw(first.code)
    assert state(pairing, first) is None


def test_an_approval_that_is_not_collected_ends() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    pairing.decide(ticket.code, approve=True, now=NOW + LIFE_S - 1)
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S - 1) is PairingState.APPROVED
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S) is PairingState.EXPIRED
    assert state(pairing, ticket, now=NOW + 2 * LIFE_S) is PairingState.EXPIRED


def test_a_code_is_used_once_and_not_after_its_end() -> None:
    pairing = Pairing()
    ticket = ask(pairing)
    assert pairing.decide(ticket.code, approve=True, now=NOW) is not None
    for approve in (True, False):
        assert pairing.decide(ticket.code, approve=approve, now=NOW) is None
    assert state(pairing, ticket) is PairingState.APPROVED
    late = ask(pairing, "https://late.example")
    for now in (NOW + LIFE_S, NOW + 10 * LIFE_S):
        assert pairing.decide(late.code, approve=True, now=now) is None
        assert state(pairing, late, "https://late.example", now=now) is PairingState.EXPIRED
