"""Redelivery: messages are kept within bounds, and each is handled once."""

from __future__ import annotations

from tabrelay.bus.redelivery import (
    MOST,
    MOST_OF_ONE,
    MOST_RECEIVED,
    MOST_SENDERS,
    MOST_SIZE,
    DuplicateFilter,
    Redelivery,
)


def payloads(redelivery: Redelivery, node: str, now: float = 0.0) -> list[str | None]:
    return [kept.payload for kept in redelivery.due(node, now)]


def test_messages_are_due_to_their_receivers_in_order() -> None:
    redelivery = Redelivery(10.0)
    redelivery.keep(frozenset({"b"}), {"op": "x"}, "1", 0.0)
    redelivery.keep(frozenset({"c"}), {"op": "x"}, "2", 0.0)
    redelivery.keep(frozenset({"b", "c"}), {"op": "x"}, "3", 0.0)
    assert (payloads(redelivery, "b"), payloads(redelivery, "c"), payloads(redelivery, "d")) == (
        ["1", "3"],
        ["2", "3"],
        [],
    )


def test_a_message_that_is_too_old_is_not_sent_again() -> None:
    redelivery = Redelivery(10.0)
    redelivery.keep(frozenset({"b"}), {}, "old", 0.0)
    redelivery.keep(frozenset({"b"}), {}, "new", 8.0)
    assert payloads(redelivery, "b", 10.0) == ["old", "new"]
    assert payloads(redelivery, "b", 11.0) == ["new"]
    redelivery.keep(frozenset({"b"}), {}, "newest", 12.0)
    assert len(redelivery) == 2  # and it is not kept either


def test_the_oldest_go_when_there_are_too_many_or_they_are_too_large() -> None:
    redelivery = Redelivery(10.0)
    for number in range(MOST + 5):
        redelivery.keep(frozenset({"b"}), {}, str(number), 0.0)
    assert payloads(redelivery, "b")[:1] == ["5"]
    large = "x" * MOST_OF_ONE
    for _ in range(20):
        redelivery.keep(frozenset({"b"}), {}, large, 0.0)
    assert payloads(redelivery, "b") == [large] * (MOST_SIZE // MOST_OF_ONE)
    redelivery.keep(frozenset({"b"}), {}, "x" * (MOST_OF_ONE + 1), 0.0)
    assert payloads(redelivery, "b") == [large] * (MOST_SIZE // MOST_OF_ONE)


def test_a_number_of_a_sender_is_new_once() -> None:
    once = DuplicateFilter()
    assert [once.is_new("a", 1), once.is_new("b", 1), once.is_new("a", 1), once.is_new("a", 2)] == [
        True,
        True,
        False,
        True,
    ]
    for number in range(3, MOST_RECEIVED + 10):
        assert once.is_new("a", number)
    assert not once.is_new("a", MOST_RECEIVED + 9)


def test_of_too_many_senders_the_longest_silent_are_forgotten() -> None:
    once = DuplicateFilter()
    assert once.is_new("a", 1)
    for number in range(MOST_SENDERS):
        assert once.is_new(f"other-{number}", 1)
        assert not once.is_new("a", 1)  # it sends all the time
    assert once.is_new("other-0", 1)
