"""Back-off: delays between dials, and the close codes that stop them."""

from __future__ import annotations

import pytest

from tabserver.transport.backoff import Backoff
from tabserver.transport.dialing import DialError
from tabserver.wire.events import ByeReceived
from tests.support.fake_clock import settle
from tests.support.transport_harness import TransportHarness


async def test_back_off_starts_again_only_after_a_stable_time(bench: TransportHarness) -> None:
    await bench.start()
    for up_s, wait_ms in [(1, 1000), (9, 2000), (9, 3000), (11, 1000), (1, 2000)]:
        await bench.connect()
        await bench.clock.advance(up_s)
        bench.relay.drop(1006)
        assert bench.transport.state.retry_in_ms == wait_ms
        await bench.clock.advance(wait_ms / 1000)


@pytest.mark.parametrize("code", [1001, 1012])
async def test_a_relay_that_restarts_is_dialled_at_once_but_not_in_a_tight_loop(
    bench: TransportHarness, code: int
) -> None:
    await bench.start()
    for wait_ms in (0, 1000, 2000):
        await bench.connect()
        await bench.clock.advance(1)
        bench.relay.drop(code)
        assert bench.transport.state.retry_in_ms == wait_ms
        await bench.clock.advance(wait_ms / 1000)
        assert bench.transport.state.state == "connecting"


async def test_a_bye_sets_the_delay_whatever_the_close_code(bench: TransportHarness) -> None:
    await bench.start()
    await bench.connect()
    bench.relay.link.bye(1012, "drain", bench.clock(), retry_ms=250)
    bench.relay.exchange()
    bench.relay.drop(1006)
    assert bench.transport.state.retry_in_ms == 250
    await bench.clock.advance(0.25)
    assert len(bench.dialer.dials) == 2


@pytest.mark.parametrize(("code", "why"), [(4401, "unauthorized"), (4403, "forbidden"), (4409, "replaced")])
async def test_a_refusal_stops_it_until_the_page_asks(bench: TransportHarness, code: int, why: str) -> None:
    await bench.start()
    await bench.connect()
    bench.relay.drop(code)
    state = bench.transport.state
    assert (state.state, state.why, state.retry_in_ms) == ("stopped", why, None) and state.message
    await bench.clock.advance(600)
    assert len(bench.dialer.dials) == 1
    bench.transport.retry_now()
    await settle()
    await bench.connect()
    assert bench.is_connected()


async def test_a_name_that_is_held_by_another_principal_is_requested_again_more_and_more_rarely(
    bench: TransportHarness,
) -> None:
    await bench.start()
    socket = bench.dialer.last.open()
    await settle()
    socket.deliver('{"t":"bye","code":4403,"reason":"held by a page of another origin"}', None)
    socket.drop(4403, "")
    state = bench.transport.state
    assert (state.state, state.why, state.message) == ("waiting", "taken", "held by a page of another origin")
    backoff = Backoff(lambda: 0.5)
    taken = DialError("taken", "held by a page of another origin")
    assert [backoff.after_failure(taken).delay_s for _ in range(6)] == [2, 4, 8, 16, 30, 30]
    assert backoff.after_failure(DialError("lost", "")).delay_s == 1
    # A name of the relay's configuration never becomes free.
    assert backoff.after_failure(DialError("taken", "", True)).delay_s is None


async def test_a_name_that_is_reserved_for_another_principal_is_requested_again(bench: TransportHarness) -> None:
    await bench.start()
    socket = bench.dialer.last.open()
    await settle()
    socket.deliver('{"t":"bye","code":4403,"reason":"kept for a page of another origin","retry_ms":3000}', None)
    socket.drop(4403, "")
    state = bench.transport.state
    assert (state.state, state.why, state.retry_in_ms) == ("waiting", "taken", 3000)


async def test_a_bye_with_replaced_stops_it_even_if_the_close_code_is_lost(bench: TransportHarness) -> None:
    await bench.start()
    await bench.connect()
    bench.relay.link.bye(4409, "replaced", bench.clock())
    bench.relay.exchange()
    bench.relay.drop(1006)
    assert (bench.transport.state.state, bench.transport.state.why) == ("stopped", "replaced")


@pytest.mark.parametrize("jitter", [0.0, 0.3, 0.999])
def test_jitter_keeps_every_delay_between_one_and_three_point_three_seconds(jitter: float) -> None:
    backoff = Backoff(lambda: jitter)
    delays = [backoff.after_failure(DialError("lost", "")).delay_s for _ in range(20)]
    assert all(delay is not None and 1 <= delay <= 3.3 for delay in delays)
    assert delays[-1] == pytest.approx(3 * (0.9 + 0.2 * jitter))


def test_a_drain_is_recognised_by_its_reason_too() -> None:
    verdict = Backoff(lambda: 0.5).after_close(1006, "", ByeReceived(1000, "drain", 40), was_up=True)
    assert verdict.delay_s == 0.04
