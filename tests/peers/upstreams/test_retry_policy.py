"""Reconnection to an upstream: the steps, the suspension, the probes. No time passes here."""

from __future__ import annotations

from tabrelay.peers.upstreams.retry_policy import NextTry, RetryPolicy


def test_a_round_is_five_attempts_with_growing_pauses_between() -> None:
    policy = RetryPolicy(probes=False)
    assert policy.begin(0)
    pauses = []
    for _ in range(4):
        policy.attempted()
        pauses.append(policy.failed())
    policy.attempted()
    assert pauses == [NextTry(0.5), NextTry(1.0), NextTry(2.0), NextTry(4.0)]
    assert policy.failed() is None
    assert policy.attempts == 5


def test_a_server_at_an_address_is_looked_for_further() -> None:
    policy = RetryPolicy(probes=True)
    policy.begin(0)
    for _ in range(4):
        policy.failed()
    found = [policy.failed() for _ in range(7)]
    assert found == [NextTry(seconds, is_probe=True) for seconds in (15, 30, 60, 120, 240, 300, 300)]
    policy.connected()
    assert policy.failed() == NextTry(0.5)


def test_more_than_five_rounds_in_half_a_minute_are_too_many() -> None:
    policy = RetryPolicy(probes=True)
    assert [policy.begin(now) for now in (0, 5, 10, 15, 20)] == [True] * 5
    assert not policy.begin(29.9)
    assert not policy.begin(31)  # the one at 5 s counts too
    assert policy.begin(70)


def test_rounds_that_are_far_apart_are_never_too_many() -> None:
    policy = RetryPolicy(probes=True)
    assert all(policy.begin(now) for now in range(0, 600, 7))


def test_a_reconnect_by_hand_resets_the_policy() -> None:
    policy = RetryPolicy(probes=False)
    assert [policy.begin(0) for _ in range(6)] == [True] * 5 + [False]
    policy.reset()
    assert policy.begin(1)
    assert policy.attempts == 0
