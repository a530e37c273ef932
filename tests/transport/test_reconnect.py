"""Dials, drops and reconnects of the transport. Time is simulated, the relay's end is the real Link."""

from __future__ import annotations

import json
from typing import Any

from tabserver.transport.connection import HIGH_WATER
from tabserver.transport.dialing import DialError
from tabserver.transport.reconnect import TransportState
from tabserver.wire.events import Closed, Opened, Received, Welcomed
from tabserver.wire.frames import Kind
from tabserver.wire.link import Link
from tests.support.fake_clock import settle
from tests.support.fake_sockets import FakeRelay
from tests.support.transport_harness import CALLER, TransportHarness


async def test_it_connects_and_reports_it(bench: TransportHarness) -> None:
    await bench.start()
    assert not bench.is_connected()
    socket = await bench.connect()
    hello = json.loads(socket.sent[0][0])
    assert (hello["t"], hello["server"], hello.get("sid")) == ("hello", "demo", None)
    assert bench.is_connected()
    assert bench.log == [("open", None)]
    assert [state.state for state in bench.states] == ["connecting", "connected"]
    assert bench.transport.welcome == Welcomed(False, "e-s1", "b")


async def test_started_twice_dials_once(bench: TransportHarness) -> None:
    await bench.start()
    await bench.start()
    assert len(bench.dialer.dials) == 1


async def test_an_attempt_that_takes_too_long_is_aborted_and_retried_after_1_2_3_3_seconds(
    bench: TransportHarness,
) -> None:
    story: list[tuple[float, TransportState]] = []
    bench.on_state = lambda state: story.append((bench.clock() - 100, state))
    await bench.start()
    await bench.clock.advance(30)
    text = "The relay did not answer within 5 s."
    assert story == [
        (0, TransportState("connecting", attempts=1)),
        (5, TransportState("waiting", "timeout", text, 1000, 1)),
        (6, TransportState("connecting", attempts=2)),
        (11, TransportState("waiting", "timeout", text, 2000, 2)),
        (13, TransportState("connecting", attempts=3)),
        (18, TransportState("waiting", "timeout", text, 3000, 3)),
        (21, TransportState("connecting", attempts=4)),
        (26, TransportState("waiting", "timeout", text, 3000, 4)),
        (29, TransportState("connecting", attempts=5)),
    ]
    assert [abort.reason for abort in bench.aborts] == ["timeout"] * 4 + [None]
    assert [str(error) for error in bench.errors()] == [text] * 4


async def test_a_socket_that_opens_but_is_never_welcomed_times_out_and_is_closed(bench: TransportHarness) -> None:
    await bench.start()
    socket = bench.dialer.last.open()
    await bench.clock.advance(5.1)
    assert socket.closed is not None
    assert (bench.transport.state.state, bench.transport.state.why) == ("waiting", "timeout")
    assert ("open", None) not in bench.log and not any(kind == "close" for kind, _ in bench.log)


async def test_the_timeout_ends_with_the_welcome(bench: TransportHarness) -> None:
    await bench.start()
    await bench.clock.advance(4.9)
    socket = await bench.connect()
    await bench.clock.advance(1)
    assert bench.is_connected() and socket.closed is None


async def test_a_failed_dial_reports_the_reason(bench: TransportHarness) -> None:
    await bench.start()
    bench.dialer.last.fail("relay_down", "No relay answers.")
    await settle()
    assert bench.transport.state == TransportState("waiting", "relay_down", "No relay answers.", 1000, 1)
    assert isinstance(bench.errors()[0], DialError)


async def test_a_dialer_that_breaks_is_one_more_failed_dial(bench: TransportHarness) -> None:
    await bench.start()
    bench.dialer.last.outcome.set_exception(OSError("boom"))
    await settle()
    assert bench.transport.state == TransportState("waiting", "lost", "OSError: boom", 1000, 1)


async def test_close_during_the_dial_aborts_it(bench: TransportHarness) -> None:
    await bench.start()
    await bench.transport.close()
    assert bench.aborts[0].reason == "closing"
    assert bench.transport.state == TransportState("stopped")
    await bench.clock.advance(60)
    assert len(bench.dialer.dials) == 1 and bench.log == []


async def test_a_late_open_of_an_abandoned_attempt_is_closed(bench: TransportHarness) -> None:
    await bench.start()
    late = bench.dialer.last
    late.ignores_abort = True
    await bench.clock.advance(5.1)
    socket = late.open()
    await settle()
    assert socket.closed == (1000, "aborted") and socket.sent == []
    assert bench.transport.state.state == "waiting"


async def test_close_sends_bye_and_stays_down(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    await bench.transport.close()
    assert json.loads(socket.sent[-1][0])["t"] == "bye"
    assert socket.closed == (1000, "closing")
    assert bench.log == [("open", None), ("close", 1000)]
    assert not bench.is_connected()
    bench.transport.retry_now()
    await bench.clock.advance(60)
    assert len(bench.dialer.dials) == 1


async def test_it_can_be_started_again_after_close(bench: TransportHarness) -> None:
    await bench.start()
    await bench.connect()
    await bench.transport.close()
    bench.relay = FakeRelay(bench.clock, "s2")
    await bench.start()
    await bench.connect()
    assert bench.is_connected()


async def test_after_a_drop_it_reconnects_and_asks_to_resume(bench: TransportHarness) -> None:
    await bench.start()
    first = await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    bench.relay.drop(1006)
    assert not bench.is_connected()
    assert bench.log[-1] == ("close", 1006)
    assert bench.transport.state == TransportState("waiting", "lost", "The connection was lost (1006).", 1000, 0)

    # Sent while the link was down: it goes out on the next socket.
    bench.transport.session.send("c", Kind.RES, '"late"', id=7)
    assert len(first.sent) == 1
    await bench.clock.advance(1)
    second = await bench.connect()
    hello = json.loads(second.sent[0][0])
    assert (hello["sid"], hello["rx"]) == ("s1", 1)
    assert bench.transport.welcome == Welcomed(True, "e-s1", "b")
    assert [e for e in bench.relay.events if isinstance(e, Received)] == [
        Received("c", Kind.RES, 7, None, '"late"', None)
    ]


async def test_a_permanent_refusal_of_the_dial_stops_it(bench: TransportHarness) -> None:
    await bench.start()
    bench.dialer.last.fail("unauthorized", "Bad token. Run: tabrelay pair", permanent=True)
    await bench.clock.advance(600)
    assert bench.transport.state == TransportState("stopped", "unauthorized", "Bad token. Run: tabrelay pair", None, 1)
    assert len(bench.dialer.dials) == 1
    bench.transport.retry_now()
    assert bench.transport.state.state == "connecting"


async def test_retry_now_cuts_the_waiting_short_and_does_nothing_otherwise(bench: TransportHarness) -> None:
    bench.transport.retry_now()
    assert bench.dialer.dials == []
    await bench.start()
    bench.transport.retry_now()
    bench.dialer.last.fail()
    await settle()
    bench.transport.retry_now()
    await bench.clock.advance(4)
    assert len(bench.dialer.dials) == 2
    await bench.connect()
    bench.transport.retry_now()
    await bench.clock.advance(30)
    assert len(bench.dialer.dials) == 2


async def test_a_wait_that_was_cut_short_does_not_dial_a_second_time(bench: TransportHarness) -> None:
    await bench.start()
    bench.dialer.last.fail()
    await settle()
    bench.transport.retry_now()
    await settle()
    bench.dialer.last.fail()
    await settle()
    assert bench.transport.state.retry_in_ms == 2000
    await bench.clock.advance(1.9)
    assert len(bench.dialer.dials) == 2


async def test_a_wait_ends_with_close_even_if_it_is_started_again(bench: TransportHarness) -> None:
    await bench.start()
    bench.dialer.last.fail()
    await settle()
    await bench.transport.close()
    await bench.start()
    bench.dialer.last.fail("unauthorized", "No.", permanent=True)
    await bench.clock.advance(60)
    assert len(bench.dialer.dials) == 2 and bench.transport.state.why == "unauthorized"


async def test_events_of_an_old_socket_are_ignored(bench: TransportHarness) -> None:
    await bench.start()
    old = await bench.connect()
    bench.relay.drop(1006)
    await bench.clock.advance(1)
    await bench.connect()
    before = len(bench.log)
    old.deliver('{"t":"open","s":1,"a":0,"c":"x","o":{}}', None)
    old.deliver("nonsense", None)
    old.drop(4409, "replaced")
    assert len(bench.log) == before and bench.is_connected()


async def test_messages_before_the_dial_returned_are_not_lost_and_a_close_then_is_seen(bench: TransportHarness) -> None:
    await bench.start()
    socket = bench.dialer.last.open()
    socket.deliver('{"t":"bye","code":4401,"reason":"token"}', None)
    socket.drop(1006, "")
    await settle()
    assert (bench.transport.state.state, bench.transport.state.why) == ("stopped", "unauthorized")


async def test_events_reach_the_callback_in_order_and_answers_go_out_before_it_returns(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()

    def answer(event: object) -> None:
        bench.log.append(("message", event))
        if isinstance(event, Received):
            bench.transport.session.send(event.channel, Kind.NOTE, '"going"', related=event.id)
            bench.transport.session.send(event.channel, Kind.RES, '"done"', id=event.id)

    bench.receive = answer
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.link.send("c", Kind.REQ, "{}", bench.clock(), id="r1")
    bench.relay.link.close("c", "left", bench.clock())
    for header, payload in bench.relay.link.frames():
        socket.deliver(header, payload)
    assert [type(event) for event in bench.messages()] == [Opened, Received, Closed]
    assert [payload for _, payload in socket.sent if payload] == ['"going"', '"done"']


async def test_a_callback_that_raises_is_reported_and_the_link_goes_on(bench: TransportHarness) -> None:
    def broken(event: object) -> None:
        raise KeyError("bug")

    bench.receive = broken
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    assert [type(error) for error in bench.errors()] == [KeyError]
    assert bench.is_connected()


async def test_an_error_handler_that_raises_does_no_harm(bench: TransportHarness) -> None:
    def broken(error: Exception) -> None:
        raise error

    bench.on_error = broken
    await bench.start()
    bench.dialer.last.fail()
    await settle()
    assert bench.transport.state.state == "waiting"


async def test_a_broken_frame_closes_the_socket_with_4400_and_dials_again(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    socket.deliver("nonsense", None)
    assert json.loads(socket.sent[-1][0])["code"] == 4400
    assert socket.closed is not None and socket.closed[0] == 4400
    assert bench.log[-1] == ("close", 4400)
    assert bench.transport.state.state == "waiting"


async def test_an_interrupted_link_is_resumed_on_the_next_socket(bench: TransportHarness) -> None:
    await bench.start()
    bench.transport.interrupt()  # not connected yet: nothing to interrupt
    first = await bench.connect()
    bench.transport.interrupt()
    assert first.closed is not None and not bench.is_connected()
    assert all('"bye"' not in header for header, _ in first.sent)
    assert bench.transport.state.state == "waiting"
    bench.relay.link.disconnected(bench.clock())
    await bench.clock.advance(1)
    second = await bench.connect()
    assert json.loads(second.sent[0][0])["sid"] == "s1"
    assert bench.is_connected()


async def test_a_silent_relay_is_given_up_after_the_watchdog(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    await bench.clock.advance(38)
    assert bench.is_connected()
    await bench.clock.advance(1)
    assert socket.closed is not None and not bench.is_connected()
    await bench.clock.advance(1)
    assert len(bench.dialer.dials) == 2


class FailsOnce(Link[Any]):
    failures = 0

    def handle_timer(self, now: float) -> None:
        if not self.failures:
            self.failures += 1
            raise KeyError("ack")
        super().handle_timer(now)


async def test_a_link_whose_timer_failed_still_notices_a_silent_relay(bench: TransportHarness) -> None:
    bench.transport.session._link.__class__ = FailsOnce
    await bench.start()
    socket = await bench.connect()
    await bench.clock.advance(60)
    assert socket.closed is not None
    assert "KeyError" in [type(error).__name__ for error in bench.errors()]


async def test_acknowledgements_are_sent_by_the_timer(bench: TransportHarness) -> None:
    await bench.start()
    await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    assert bench.relay.link.unacknowledged == 1
    await bench.clock.advance(1)
    bench.relay.exchange()
    assert bench.relay.link.unacknowledged == 0


async def test_timers_do_not_grow_with_the_frames(bench: TransportHarness) -> None:
    """A browser keeps every timer until its time comes, cancelled or not."""
    await bench.start()
    await bench.connect()
    before = bench.clock.pending
    for number in range(200):
        bench.relay.link.open(f"c{number}", CALLER, bench.clock())
        bench.relay.exchange()
        await bench.clock.advance(0.05)
    assert bench.clock.pending <= before + 2


async def test_while_the_socket_is_full_frames_wait_in_order(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    socket.buffered = HIGH_WATER
    for n in range(3):
        bench.transport.session.send("c", Kind.NOTE, str(n))
    await bench.clock.advance(0.1)
    assert [payload for _, payload in socket.sent if payload] == []
    socket.buffered = HIGH_WATER - 1
    await bench.clock.advance(0.02)
    assert [payload for _, payload in socket.sent if payload] == ["0", "1", "2"]


async def test_frames_that_waited_for_a_socket_that_died_go_out_on_the_next(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    socket.buffered = HIGH_WATER
    bench.transport.session.send("c", Kind.NOTE, '"held"')
    bench.relay.drop(1006)
    await bench.clock.advance(1)
    await bench.connect()
    assert [e.payload for e in bench.relay.events if isinstance(e, Received)] == ['"held"']


async def test_a_write_that_fails_is_a_drop(bench: TransportHarness) -> None:
    await bench.start()
    socket = await bench.connect()
    bench.relay.link.open("c", CALLER, bench.clock())
    bench.relay.exchange()
    socket.is_broken = True
    bench.transport.session.send("c", Kind.NOTE, '"x"')
    assert bench.transport.state.state == "waiting"
    assert bench.log[-1] == ("close", 1006)


async def test_closing_from_inside_a_callback_is_obeyed(bench: TransportHarness) -> None:
    closing: list[Any] = []
    bench.on_error = lambda error: closing.append(bench.transport.close())
    await bench.start()
    bench.dialer.last.fail()
    await settle()
    await closing[0]
    await bench.clock.advance(60)
    assert bench.transport.state == TransportState("stopped") and len(bench.dialer.dials) == 1
