"""Reconnecting transport: dials with a timeout, and dials again after a drop.

A task is started only to dial. The dialer decides how a socket is opened, `connection` what is sent over it, and
`backoff` when to dial again. L11: events of a socket that is not the current one are ignored.

States and transitions:

    stopped ──start──► connecting ──welcome──► connected ──drop──► waiting ──time, retry_now──► connecting
                         │    └────fails, timeout────────────────────► ▲
                         └──refused, replaced──► stopped ──retry_now──► connecting
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from ..timing import DEFAULTS, Timing
from ..wire.codec import Codec
from ..wire.events import Welcomed
from ..wire.frames import CLOSE_SLOW, REFUSALS
from ..wire.link import Link
from .backoff import Backoff, Verdict
from .connection import LinkSession, NewReceiver
from .dialing import Abort, Attempt, CallLater, DialError, DialTimer, OpenSocket, SocketDialer

__all__ = ["Abort", "DialError", "OpenSocket", "SocketDialer", "Transport", "TransportState"]

P = TypeVar("P")


@dataclass(frozen=True, slots=True)
class TransportState:
    """`state`: stopped, connecting, connected or waiting; `attempts`: dials since the last connection."""

    state: str
    why: str | None = None
    message: str = ""
    retry_in_ms: int | None = None
    attempts: int = 0


class Transport(Generic[P]):
    """The worker's connection to the relay. After `start()` it reconnects by itself.

    `new_receiver` and `sync` are as in LinkSession. `on_open` and `on_close` report the link,
    `on_state` each change of state, `on_error` what went wrong.
    """

    def __init__(
        self,
        link: Link[P],
        dialer: SocketDialer[P],
        *,
        clock: Callable[[], float],
        new_abort: Callable[[], Abort],
        jitter: Callable[[], float],
        timing: Timing = DEFAULTS,
        call_later: CallLater | None = None,
        codec: Codec[P] | None = None,
        new_receiver: NewReceiver[P] = lambda send: lambda event: None,
        sync: Callable[[], None] = lambda: None,
        on_open: Callable[[], None] = lambda: None,
        on_close: Callable[[int, str], None] = lambda code, reason: None,
        on_error: Callable[[Exception], None] = lambda error: None,
        on_state: Callable[[TransportState], None] = lambda state: None,
    ) -> None:
        """`jitter`: returns numbers from 0 to 1, as `random.random`; `call_later`: the event loop's by default."""
        self._dialer, self._clock, self._new_abort = dialer, clock, new_abort
        self._backoff = Backoff(jitter, timing)
        self._connect_timeout_s = timing.connect_s
        self._given_call_later = call_later
        self._on_open, self._on_close, self._on_error, self._on_state = on_open, on_close, on_error, on_state
        self.state = TransportState("stopped")
        self.welcome: Welcomed | None = None
        self._is_wanted = False
        self._current: Attempt[P] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts = 0
        self._retry: DialTimer | None = None
        self.session = LinkSession(
            link,
            clock=clock,
            call_later=self._call_later,
            codec=codec,
            new_receiver=new_receiver,
            sync=sync,
            welcomed=self._welcomed,
            failed=self._close_current,
            report=self._report,
        )

    # -- start and stop -----------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self.session.is_up

    async def start(self) -> None:
        """Begin to dial and return; `on_open` and `on_state` report the progress. A second call has no effect."""
        if not self._is_wanted:
            self._is_wanted = True
            self._attempts = 0
            self._backoff.reset()
            self._dial()

    async def close(self) -> None:
        """Abort a dial, or send `bye` and close the socket; stay down until the next `start()`."""
        self._is_wanted = False
        self._cancel_retry()
        self.session.bye(1000, "closing")
        self._drop_attempt(1000, "closing")
        self._set_state(TransportState("stopped"))
        # Aborted dials end by themselves. Wait for them, so that none outlives this object.
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def retry_now(self) -> None:
        """L10: dial now: the network is back, the page is visible, or the user asked. Also after a refusal."""
        if self._is_wanted and self._current is None:
            self._dial()

    def interrupt(self) -> None:
        """Close the socket without `bye`, as a failing network does. The link is kept, and the next dial resumes it."""
        if self.is_connected:
            self._close_current(CLOSE_SLOW, "interrupted by the page")

    # -- dialing ------------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._cancel_retry()
        self._attempts += 1
        attempt: Attempt[P] = Attempt(self._new_abort())
        self._current = attempt
        attempt.deadline = self._call_later(self._connect_timeout_s, lambda: self._timed_out(attempt))
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._set_state(TransportState("connecting", attempts=self._attempts))

    async def _run(self, attempt: Attempt[P]) -> None:
        try:
            socket = await self._dialer.dial(
                attempt.abort,
                partial(self._received, attempt),
                partial(self._lost, attempt),
            )
        except DialError as error:
            self._failed(attempt, error)
        except Exception as error:
            self._failed(attempt, DialError("lost", f"{type(error).__name__}: {error}"))
        else:
            if attempt is not self._current:
                socket.close(1000, "aborted")
                return
            attempt.socket = socket
            self.session.connected(socket)
            # Events of the socket between its opening and now.
            for early in attempt.early:
                early()
            attempt.early.clear()

    def _timed_out(self, attempt: Attempt[P]) -> None:
        seconds = f"{self._connect_timeout_s:g}"
        self._failed(attempt, DialError("timeout", f"The relay did not answer within {seconds} s."))

    def _failed(self, attempt: Attempt[P], error: DialError) -> None:
        """An attempt ended without a welcome."""
        if attempt is not self._current:
            return
        self._drop_attempt(CLOSE_SLOW, error.why)
        self._report(error)
        self._schedule(self._backoff.after_failure(error))

    # -- one socket ---------------------------------------------------------------------------------------------------

    def _received(self, attempt: Attempt[P], header: str, payload: P | None) -> None:
        if attempt is not self._current:
            return  # L11
        if attempt.socket is None:
            attempt.early.append(lambda: self._received(attempt, header, payload))
            return
        self.session.received(header, payload)

    def _lost(self, attempt: Attempt[P], code: int, reason: str, *, is_ours: bool = False) -> None:
        """The socket closed or can't be used any more. `is_ours`: this end chose the code, not the relay."""
        if attempt is not self._current:
            return
        if attempt.socket is None:
            attempt.early.append(lambda: self._lost(attempt, code, reason))
            return
        was_up = attempt.up_since is not None
        if was_up and code in REFUSALS and not is_ours:
            self.session.refused()
        self._drop_attempt(1000, "closed", seen=(code, reason))
        verdict = self._backoff.after_close(code, reason, self.session.received_bye, was_up=was_up)
        if not was_up:
            error = DialError(verdict.why, verdict.message, verdict.delay_s is None)
            self._report(error)
        self._schedule(verdict)

    def _drop_attempt(self, code: int, reason: str, seen: tuple[int, str] | None = None) -> None:
        """End the current attempt in any state and close its socket. `seen`: the arguments for `on_close`."""
        attempt, self._current = self._current, None
        if attempt is None:
            return
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        self.session.disconnected()
        if attempt.socket is None:
            attempt.abort.abort(reason)
            return
        self._call_safely(lambda: _close(attempt.socket, code, reason))
        if attempt.up_since is not None:
            self._backoff.was_up(self._clock() - attempt.up_since)
            shown = seen or (code, reason)
            self._call_safely(lambda: self._on_close(*shown))

    def _schedule(self, verdict: Verdict) -> None:
        """Wait, or stop until `retry_now` is called. (After `close()` that has no effect.)"""
        if not self._is_wanted or self._current is not None:
            return  # a callback has called `close` or `retry_now`
        if verdict.delay_s is None:
            self._set_state(TransportState("stopped", verdict.why, verdict.message, None, self._attempts))
            return
        self._retry = self._call_later(verdict.delay_s, self.retry_now)
        retry_in_ms = round(verdict.delay_s * 1000)
        self._set_state(TransportState("waiting", verdict.why, verdict.message, retry_in_ms, self._attempts))

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _set_state(self, state: TransportState) -> None:
        self.state = state
        self._call_safely(lambda: self._on_state(state))

    def _welcomed(self, event: Welcomed) -> None:
        attempt = self._current
        assert attempt is not None
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        attempt.up_since = self._clock()
        self.welcome = event
        self._attempts = 0
        self._set_state(TransportState("connected"))
        self._call_safely(self._on_open)

    def _close_current(self, code: int, reason: str) -> None:
        """Close the current socket from this end. The browser may report that much later."""
        attempt = self._current
        if attempt is not None:
            self._call_safely(lambda: _close(attempt.socket, code, reason))
            self._lost(attempt, code, reason, is_ours=True)

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> DialTimer:
        if self._given_call_later is not None:
            return self._given_call_later(delay_s, callback)
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def _call_safely(self, callback: Callable[[], None]) -> None:
        """Run a callback: its exceptions must not end the connection."""
        try:
            callback()
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        # There is no handler for the exceptions of the error handler.
        with suppress(Exception):
            self._on_error(error)


def _close(socket: OpenSocket[Any] | None, code: int, reason: str) -> None:
    if socket is not None:
        # A close reason is at most 123 bytes of UTF-8; a longer one makes a browser throw.
        socket.close(code, reason.encode(errors="replace")[:120].decode(errors="ignore"))
