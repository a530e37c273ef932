"""Requests that ask for their times (F6): the session takes them, for so many at a time."""

from __future__ import annotations

import json
from typing import Any

from tabserver.transport.connection import MAX_MEASURED
from tabserver.wire.events import Received
from tabserver.wire.frames import Kind
from tests.support.transport_harness import ONE_REQUEST, TransportHarness


async def test_the_number_of_calls_whose_times_are_taken_is_bounded() -> None:
    harness = TransportHarness()
    await harness.start()
    socket = await harness.connect()
    got: list[Received[str]] = []
    harness.receive = got.append
    # Not through the link's replay buffer, which has room for as many.
    session = harness.transport.session
    for number in range(MAX_MEASURED + 1):
        session._handle_message(Received(f"c{number}", Kind.REQ, 1, None, "{}", ONE_REQUEST, is_measured=True))
    assert len(got) == MAX_MEASURED + 1 and all(event.times is not None for event in got)
    session.send("c0", Kind.RES, "{}", id=1)
    session.send("c1", Kind.RES, "{}", id=1)
    session.send("c2", Kind.RES, "{}", id=1)
    headers: list[dict[str, Any]] = [json.loads(header) for header, _ in socket.sent if '"res"' in header]
    assert ["w" in header for header in headers] == [False, True, True]
    assert not session._measured.keys() & {("c1", 1), ("c2", 1)}
