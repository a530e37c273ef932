"""Log messages outside of calls: whom they reach, and how many of them."""

from __future__ import annotations

from typing import Any

import orjson

from tabrelay.calls.calls import Notice
from tabrelay.translation.background_logs import MAX_DELIVERIES, WINDOW_S, BackgroundLogs
from tabrelay.translation.subscribers import Subscribers


class Session:
    def __init__(self, subscribers: Subscribers, channel: str, level: str | None = None) -> None:
        self.received: list[Any] = []
        subscribers.listen(channel, self.receive)
        if level is not None:
            subscribers.set_level(channel, level)

    def receive(self, notice: Notice) -> None:
        self.received.append(orjson.loads(notice.payload)["params"]["data"])


def message(level: str, data: str = "") -> dict[str, Any]:
    return {"level": level, "data": data or level}


def test_without_any_level_the_server_chooses() -> None:
    subscribers = Subscribers()
    logs, session = BackgroundLogs(subscribers), Session(subscribers, "a")
    logs.announce(message("debug"), 0.0)
    assert session.received == ["debug"]


def test_the_level_of_another_caller_brings_no_debug_messages_to_a_session_without_one() -> None:
    subscribers = Subscribers()
    logs, silent, detailed = BackgroundLogs(subscribers), Session(subscribers, "a"), Session(subscribers, "b", "debug")
    for level in ("debug", "info", "unknown", "error"):
        logs.announce(message(level), 0.0)
    assert silent.received == ["info", "error"]
    assert detailed.received == ["debug", "info", "error"]
    subscribers.leave("b")  # the server keeps the level
    logs.announce(message("debug"), 0.0)
    assert silent.received == ["info", "error"]


def test_a_message_without_a_level_or_of_another_type_reaches_no_caller() -> None:
    subscribers = Subscribers()
    logs, session = BackgroundLogs(subscribers), Session(subscribers, "a", "debug")
    for params in ({}, {"level": None, "data": "x"}, {"level": ["info"], "data": "x"}):
        logs.announce(params, 0.0)
    assert session.received == []


def test_a_flood_of_messages_is_cut_and_reported() -> None:
    subscribers = Subscribers()
    logs, sessions = BackgroundLogs(subscribers), [Session(subscribers, str(number)) for number in range(10)]
    for number in range(1_000):
        logs.announce(message("info", str(number)), WINDOW_S * number / 1_000)
    most = MAX_DELIVERIES // len(sessions)
    assert [session.received for session in sessions] == [[str(number) for number in range(most)]] * len(sessions)
    logs.announce(message("info", "later"), WINDOW_S)
    note = f"{1_000 - most:,} log messages of this server were left out: there were too many at once."
    assert sessions[0].received[most:] == [note, "later"]
    logs.announce(message("info", "once more"), 3 * WINDOW_S)
    assert sessions[0].received[most:] == [note, "later", "once more"]
