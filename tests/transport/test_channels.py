"""Open channels, the callers of a lost session, and messages that wait for room on the link."""

from __future__ import annotations

import json
from contextlib import nullcontext, suppress

import pytest

from tabserver.transport.channels import MAX_NOTICES
from tabserver.wire.errors import BufferFull, MessageTooLarge
from tabserver.wire.events import Closed, Received
from tabserver.wire.frames import Kind
from tabserver.wire.limits import Limits
from tabserver.wire.request_history import MAX_KEYS
from tests.support.fake_sockets import FakeRelay, FakeSocket
from tests.support.transport_harness import CALLER, ONE_REQUEST, TransportHarness


async def lose_the_session(bench: TransportHarness) -> FakeSocket:
    """The relay has lost the session, and the worker has connected again: channel "c" (a session) and "d" (one request)
    were open."""
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.link.send("d", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST)
    bench.relay.exchange()
    bench.relay.drop(1006)
    bench.relay = FakeRelay(bench.clock, "s2")
    await bench.clock.advance(1)
    return await bench.connect()


async def test_channels_of_a_lost_session_end_when_no_caller_comes_back_for_them(bench: TransportHarness) -> None:
    socket = await lose_the_session(bench)
    bench.transport.session.send("d", Kind.RES, "{}", id=1)
    assert [json.loads(header)["t"] for header, _ in socket.sent] == ["hello"]
    await bench.clock.advance(59.9)
    assert [e.channel for e in bench.messages() if isinstance(e, Closed)] == []
    await bench.clock.advance(0.2)
    assert [e.channel for e in bench.messages() if isinstance(e, Closed)] == ["c", "d"]


async def test_a_request_sent_again_while_it_runs_runs_once_and_is_answered_once(bench: TransportHarness) -> None:
    socket = await lose_the_session(bench)
    bench.relay.link.send("d", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST, again=True)
    bench.relay.exchange()
    assert len([e for e in bench.messages() if isinstance(e, Received)]) == 1
    bench.transport.session.send("d", Kind.RES, '"done"', id=1)
    assert socket.sent[-1][1] == '"done"'
    await bench.clock.advance(60)
    assert "d" not in [e.channel for e in bench.messages() if isinstance(e, Closed)]


async def test_a_request_sent_again_when_it_is_done_is_answered_from_the_history(bench: TransportHarness) -> None:
    socket = await lose_the_session(bench)
    bench.transport.session.send("d", Kind.RES, '"done"', id=1)
    bench.relay.link.send("d", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST, again=True)
    bench.relay.exchange()
    assert len([e for e in bench.messages() if isinstance(e, Received)]) == 1
    assert socket.sent[-1][1] == '"done"'


async def test_a_request_sent_again_that_never_arrived_runs(bench: TransportHarness) -> None:
    await lose_the_session(bench)
    bench.relay.link.send("new", Kind.REQ, "{}", bench.clock(), id=9, caller=ONE_REQUEST, again=True)
    bench.relay.exchange()
    assert [e.channel for e in bench.messages() if isinstance(e, Received)] == ["d", "new"]


async def test_an_id_that_a_session_uses_again_is_a_new_request(bench: TransportHarness) -> None:
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    for _ in range(2):
        bench.relay.link.send("c", Kind.REQ, "{}", bench.clock(), id=1)
        bench.relay.exchange()
        bench.transport.session.send("c", Kind.RES, "{}", id=1)
    assert len([e for e in bench.messages() if isinstance(e, Received)]) == 2


async def test_a_channel_of_one_request_ends_with_its_answer(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    bench.relay.link.send("d", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST)
    bench.relay.exchange()
    bench.transport.session.send("d", Kind.RES, '"first"', id=1)
    bench.transport.session.send("d", Kind.RES, '"second"', id=1)
    assert [payload for _, payload in socket.sent if payload] == ['"first"']


async def test_without_room_on_the_link_answers_wait_and_notices_about_requests_are_dropped() -> None:
    bench = TransportHarness(Limits(replay_messages=1))
    await bench.start()
    socket = await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    for n in range(3):
        with pytest.raises(BufferFull) if n else nullcontext():
            bench.transport.session.send("c", Kind.NOTE, f'"progress {n}"', related=1)
        bench.transport.session.send("c", Kind.RES, f'"answer {n}"', id=n)
    assert [payload for _, payload in socket.sent if payload] == ['"progress 0"']
    for _ in range(4):
        bench.relay.exchange()
        await bench.clock.advance(0.5)
        bench.relay.link.handle_timer(bench.clock() + 1)  # the relay acknowledges
    assert [payload for _, payload in socket.sent if payload] == ['"progress 0"'] + [f'"answer {n}"' for n in range(3)]
    await bench.transport.close()


async def test_a_message_that_is_too_large_is_refused_where_it_was_sent() -> None:
    bench = TransportHarness(Limits(max_message=10))
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    with pytest.raises(MessageTooLarge):
        bench.transport.session.send("c", Kind.RES, "x" * 11, id=1)
    bench.transport.session.send("c", Kind.RES, "x", id=1)
    assert [e.payload for e in bench.relay.exchange() if isinstance(e, Received)] == ["x"]
    await bench.transport.close()


async def test_what_is_too_large_is_refused_also_while_others_wait_for_room() -> None:
    bench = TransportHarness(Limits(replay_bytes=3000, max_message=1500))
    await bench.start()
    await bench.connect()
    for n in range(5):
        bench.relay.link.send(f"c{n}", Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST)
    bench.relay.exchange()
    bench.relay.drop(1006)
    for n in range(4):
        bench.transport.session.send(f"c{n}", Kind.RES, "x" * 1000, id=1)
    with pytest.raises(MessageTooLarge):
        bench.transport.session.send("c4", Kind.RES, "x" * 2000, id=1)
    bench.transport.session.send("c4", Kind.RES, "sorry", id=1)
    await bench.clock.advance(1)
    await bench.connect()
    for _ in range(8):
        bench.relay.exchange()
        await bench.clock.advance(0.5)
        bench.relay.link.handle_timer(bench.clock() + 1)
    answered = [event for event in bench.relay.events if isinstance(event, Received)]
    assert [(event.channel, len(event.payload)) for event in answered] == [
        *((f"c{n}", 1000) for n in range(4)),
        ("c4", 5),
    ]
    await bench.transport.close()


async def test_unread_notices_do_not_pile_up_and_answers_wait_all_the_same() -> None:
    bench = TransportHarness(Limits(replay_messages=1))
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    bench.relay.drop(1006)
    bench.transport.session.send("c", Kind.NOTE, '"fills the link"')
    for n in range(2 * MAX_NOTICES):
        bench.transport.session.send("c", Kind.NOTE, '"the same"')
        with suppress(BufferFull):
            bench.transport.session.send("c", Kind.NOTE, f'"{n}"')
    assert len(bench.transport.session._channels.unsent) == MAX_NOTICES
    bench.transport.session.send("c", Kind.RES, '"answer"', id=1)
    assert len(bench.transport.session._channels.unsent) == MAX_NOTICES + 1
    await bench.transport.close()


async def test_a_long_call_is_not_run_again_however_many_came_after_it() -> None:
    bench = TransportHarness()
    await bench.start()
    await bench.connect()

    def ask(channel: str, *, again: bool = False) -> None:
        bench.relay.link.send(channel, Kind.REQ, "{}", bench.clock(), id=1, caller=ONE_REQUEST, again=again)
        bench.relay.exchange()

    ask("long")
    for n in range(MAX_KEYS + 10):
        ask(f"c{n}")
        bench.transport.session.send(f"c{n}", Kind.RES, "{}", id=1)
        bench.relay.exchange()
    bench.relay.drop(1006)
    bench.relay = FakeRelay(bench.clock, "s2")
    await bench.clock.advance(1)
    await bench.connect()
    ask("long", again=True)
    assert [event.channel for event in bench.messages() if isinstance(event, Received)].count("long") == 1
    await bench.transport.close()
