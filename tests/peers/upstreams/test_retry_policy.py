"""When a server elsewhere is connected to again: the steps, the breaker, the probes. No time passes here."""

from __future__ import annotations

from tabrelay.peers.upstreams.retry_policy import NextTry, RetryPolicy


def test_a_round_is_five_attempts_with_growing_pauses_between() -> None:
    ladder = RetryPolicy(probes=False)
    assert ladder.begin(0)
    pauses = []
    for _ in range(4):
        ladder.attempted()
        pauses.append(ladder.failed())
    ladder.attempted()
    assert pauses == [NextTry(0.5), NextTry(1.0), NextTry(2.0), NextTry(4.0)]
    assert ladder.failed() is None
    assert ladder.attempts == 5


def test_a_server_at_an_address_is_looked_for_further() -> None:
    ladder = RetryPolicy(probes=True)
    ladder.begin(0)
    for _ in range(4):
        ladder.failed()
    found = [ladder.failed() for _ in range(7)]
    assert found == [NextTry(seconds, is_probe=True) for seconds in (15, 30, 60, 120, 240, 300, 300)]
    ladder.connected()
    assert ladder.failed() == NextTry(0.5)


def test_more_than_five_rounds_in_half_a_minute_are_too_many() -> None:
    ladder = RetryPolicy(probes=True)
    assert [ladder.begin(now) for now in (0, 5, 10, 15, 20)] == [True] * 5
    assert not ladder.begin(29.9)
    assert not ladder.begin(31)  # the one at 5 s counts as well
    assert ladder.begin(70)


def test_rounds_that_are_far_apart_are_never_too_many() -> None:
    ladder = RetryPolicy(probes=True)
    assert all(ladder.begin(now) for now in range(0, 600, 7))


def test_asking_for_it_by_hand_forgets_everything() -> None:
    ladder = RetryPolicy(probes=False)
    assert [ladder.begin(0) for _ in range(6)] == [True] * 5 + [False]
    ladder.reset()
    assert ladder.begin(1)
    assert ladder.attempts == 0
