"""The queue of the NATS bus while the server reads nothing: bounds in bytes, messages and changes of subscriptions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tabrelay.bus import nats
from tabrelay.bus.bus import BusDown


@pytest.fixture
def bus() -> nats.NatsBus:
    """Connected to a server that reads nothing: no task writes the queue."""
    bus = nats.NatsBus(("nats://127.0.0.1:1",), nats.NatsAuth(), "test")
    client: Any = SimpleNamespace(is_connected=True)
    bus._client = client
    return bus


def fill(bus: nats.NatsBus, subject: str, data: bytes) -> int:
    """Send until no more is accepted; returns how many were."""
    for sent in range(1_000):
        try:
            bus.send(subject, data, on_reply=lambda reply: None)
        except BusDown:
            return sent
    return 1_000


def test_messages_that_the_server_does_not_take_count_with_their_subjects(
    bus: nats.NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "MAX_QUEUED", 100_000)
    assert fill(bus, "s" * 10_000, b"") == 9
    assert bus._queued <= nats.MAX_QUEUED
    assert len(bus._replies) == 9, "a message that was refused waits for no reply"
    for _ in range(20):
        bus.answer("r" * 10_000, b"")
    assert bus._queued <= nats.MAX_QUEUED and len(bus._queue) == 9


def test_the_number_of_messages_that_the_server_does_not_take_is_bounded(
    bus: nats.NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats, "MAX_ENTRIES", 5)
    assert fill(bus, "s", b"x") == 5
    for _ in range(20):
        bus.answer("r", b"x")
    assert len(bus._queue) == 5


def test_too_many_changes_of_subscriptions_end_the_connection(
    bus: nats.NatsBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next connection subscribes to what is needed then, so no subscription is lost."""
    monkeypatch.setattr(nats, "MAX_ENTRIES", 5)
    monkeypatch.setattr(nats, "MAX_CHANGES", 4)
    fill(bus, "s", b"x")
    for number in range(2):
        bus.subscribe(f"a{number}", lambda message: None)()
    assert len(bus._queue) == 9 and not bus._lost.is_set()
    bus.subscribe("wanted", lambda message: None)
    assert bus._lost.is_set() and len(bus._queue) == 9
    assert [each.subject for each in bus._subscriptions] == ["wanted"]
