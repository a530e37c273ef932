"""Requests sent to a suspended relay (SIGSTOP, a laptop's sleep, a stalled machine) are answered when it resumes.

A process that is stopped between two reads first runs the due timers when it resumes, and only then reads again. So the
tests block uvloop in a socket's callback for longer than a deadline, and send a request meanwhile.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tabrelay.system.patient_timer import TURN_S, PatientTimer
from tests.support.fake_clock import Clock
from tests.support.raw_http import RawConnection
from tests.support.running_relay import ACCEPT, RunningRelay

DEADLINE_S = 0.5
SUSPENDED_S = 1.2
DEADLINES: dict[str, Any] = {
    "header_deadline_s": DEADLINE_S,
    "body_deadline_s": DEADLINE_S,
    "connection_idle_s": DEADLINE_S,
}

GET = b"GET /-/healthz HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n"
POST = b"POST /notes HTTP/1.1\r\nHost: 127.0.0.1:%d\r\nContent-Type: application/json\r\nAccept: %s\r\n"
POST += b"Content-Length: 100000\r\n\r\n"

Scenario = Callable[[RunningRelay, RawConnection], Awaitable[None]]


def play(home: Path, scenario: Scenario) -> None:
    """On uvloop, with a connection that the relay has accepted."""

    async def run() -> None:
        async with RunningRelay(home, servers=("notes",), no_auth=True, **DEADLINES) as relay:
            line = await RawConnection(relay.port).open()
            await has_read(relay)
            await scenario(relay, line)
            await line.close()

    uvloop.run(run())


async def has_read(relay: RunningRelay) -> None:
    """A later request is answered, so the relay has read the earlier bytes."""
    for _ in range(3):
        assert (await relay.http.get("/-/healthz")).status_code == 200


async def send_while_suspended(line: RawConnection, data: bytes) -> None:
    """The bytes are in the kernel, and every deadline has passed, when the event loop resumes."""
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    ours, other = socket.socketpair()

    def suspend() -> None:
        loop.remove_reader(ours)
        line.send_now(data)
        time.sleep(SUSPENDED_S)
        is_over.set()

    with ours, other:
        ours.setblocking(False)
        loop.add_reader(ours, suspend)
        other.send(b"now")
        await is_over.wait()


def test_a_request_that_came_on_a_new_connection_is_answered(tmp_path: Path) -> None:
    async def scenario(relay: RunningRelay, line: RawConnection) -> None:
        await send_while_suspended(line, GET % relay.port)
        answer = await line.answer("GET")
        assert answer is not None and answer.status == 200

    play(tmp_path, scenario)


def test_a_request_that_came_on_an_idle_connection_is_answered(tmp_path: Path) -> None:
    async def scenario(relay: RunningRelay, line: RawConnection) -> None:
        line.send(GET % relay.port)
        assert await line.answer("GET") is not None
        await send_while_suspended(line, GET % relay.port)
        answer = await line.answer("GET")
        assert answer is not None and answer.status == 200

    play(tmp_path, scenario)


def test_a_body_of_which_the_rest_came_meanwhile_is_read(tmp_path: Path) -> None:
    async def scenario(relay: RunningRelay, line: RawConnection) -> None:
        line.send(POST % (relay.port, ACCEPT.encode()) + b" " * 10)
        await has_read(relay)
        await send_while_suspended(line, b" " * 99_990)
        answer = await line.answer()
        assert answer is not None and (answer.status, answer.json()["error"]["code"]) == (400, -32700)

    play(tmp_path, scenario)


def test_a_header_that_does_not_come_is_refused_all_the_same(tmp_path: Path) -> None:
    async def scenario(relay: RunningRelay, line: RawConnection) -> None:
        await send_while_suspended(line, b"GET /-/healthz HTTP/1.1\r\n")
        answer = await line.answer("GET")
        assert answer is not None and answer.status == 408

    play(tmp_path, scenario)


# -- the timer ---------------------------------------------------------------------------------------------------------


class Loop(Clock):
    """The part of an event loop that the timer uses; it can be suspended."""

    def time(self) -> float:
        return self.now

    async def sleep_through(self, seconds: float) -> None:
        """Timers that fall due meanwhile run afterwards."""
        self.now += seconds
        await self.advance(0)


@pytest.mark.parametrize(("suspended_s", "more_s"), [(0.0, TURN_S), (8.0, TURN_S), (13.0, 3.0), (100.0, 10.0)], ids=str)
async def test_a_timer_that_is_late_gives_as_much_time_again_and_never_more_than_its_own(
    suspended_s: float, more_s: float
) -> None:
    loop, fired = Loop(), []
    any_loop: Any = loop
    PatientTimer(any_loop, 10.0, lambda: fired.append(loop.now))
    began = loop.now
    await loop.sleep_through(suspended_s)
    await loop.advance(max(0.0, 10.0 - suspended_s))
    assert fired == []
    await loop.advance(60)
    assert fired == [pytest.approx(max(began + 10.0, began + suspended_s) + more_s)]


async def test_a_timer_that_was_restarted_or_cancelled_does_not_fire() -> None:
    loop, fired = Loop(), []
    any_loop: Any = loop
    timer = PatientTimer(any_loop, 10.0, lambda: fired.append(loop.now))
    await loop.advance(9)
    timer.restart()
    await loop.advance(9)
    assert fired == []
    await loop.advance(1)  # due, and checked once more
    timer.cancel()
    await loop.advance(60)
    assert fired == []
