"""Drives one Link over one socket after another: dial with a timeout, greet, pass on, and dial again after a drop.

One loop: what comes from the socket goes through the link at once and its answers are written before control returns; a
task is started only to dial. The link decides what a frame means, the Dialer how a socket is opened; here is only when.

States, and what leads out of them:

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
from typing import Any, Final, Generic, TypeVar, cast

from .attempt import Attempt, CallLater, Timer
from .backoff import Backoff, Verdict
from .channels import Channels
from .sockets import Abort, Dialer, DialError, Socket
from .timing import DEFAULTS, Timing
from .wire.events import Closed, Event, Opened, Parted, Received, Silence, Violation, Welcomed
from .wire.frames import CLOSE_PROTOCOL, CLOSE_SLOW, Kind
from .wire.jsonrpc import RequestId
from .wire.ledger import Answer, Ledger, Standing
from .wire.link import Link
from .wire.payload import Codec, Text

__all__ = ["Abort", "DialError", "Dialer", "Socket", "State", "Transport"]

P = TypeVar("P")

HIGH_WATER: Final = 1024 * 1024
DRAIN_CHECK_S: Final = 0.02
MIN_FORGET_S: Final = 0.01  # a timer may fire a moment before it is due


@dataclass(frozen=True, slots=True)
class State:
    """`state`: stopped, connecting, connected or waiting; `attempts`: how often it dialled since it was connected."""

    state: str
    why: str | None = None
    message: str = ""
    retry_in_ms: int | None = None
    attempts: int = 0


class Transport(Generic[P]):
    """The worker's connection to the relay. Set the callbacks, then `start()`: from then on it keeps itself up."""

    def __init__(
        self,
        link: Link[P],
        dialer: Dialer[P],
        *,
        clock: Callable[[], float],
        new_abort: Callable[[], Abort],
        jitter: Callable[[], float],
        timing: Timing = DEFAULTS,
        call_later: CallLater | None = None,
        codec: Codec[P] | None = None,
    ) -> None:
        """`jitter`: numbers from 0 to 1, as `random.random` gives; `call_later`: the event loop's by default."""
        self._link, self._dialer = link, dialer
        self._clock, self._new_abort = clock, new_abort
        self._backoff = Backoff(jitter, timing)
        self._connect_timeout_s = timing.connect_s
        self._given_call_later = call_later
        self.on_open: Callable[[], None] = lambda: None
        self.on_close: Callable[[int, str], None] = lambda code, reason: None
        self.on_error: Callable[[Exception], None] = lambda error: None
        self.on_message: Callable[[Received[P] | Opened | Closed], None] = lambda event: None
        self.on_state: Callable[[State], None] = lambda state: None
        # Before anything gets a number, or is looked at by those that have one: see express.py.
        self.catch_up: Callable[[], None] = lambda: None
        self.state = State("stopped")
        self.welcome: Welcomed | None = None
        self._is_wanted = False
        self._current: Attempt[P] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._attempts = 0
        self._channels = Channels(link, clock)
        self._ledger: Ledger[P] = Ledger(codec if codec is not None else cast("Codec[P]", Text()))
        self._forgetting: Timer | None = None
        self._is_pumping = False
        self._retry: Timer | None = None
        self._drain: Timer | None = None
        self._alarms: list[float] = []  # when the link's timers will ring

    # -- the handle ---------------------------------------------------------------------------------------------------

    @property
    def is_connected(self) -> bool:
        return self._link.is_up

    @property
    def taken(self) -> int:
        """The number of the last frame that came."""
        return self._link.taken

    async def start(self) -> None:
        """Begin to dial and return; `on_open` and `on_state` tell how it goes. Started twice is started once."""
        if not self._is_wanted:
            self._is_wanted = True
            self._attempts = 0
            self._backoff.reset()
            self._dial()

    async def close(self) -> None:
        """Give up what is under way, say goodbye, and stay down until the next `start()`."""
        self._is_wanted = False
        self._cancel_retry()
        self.catch_up()
        attempt = self._current
        if attempt is not None and self._link.is_up:
            self._link.bye(1000, "closing", self._clock())
            self._write(attempt)
        self._leave(1000, "closing")
        self._tell(State("stopped"))
        # Dials that were aborted end by themselves; wait so that none outlives us.
        tasks = self._tasks - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks, timeout=1.0)

    def retry_now(self) -> None:
        """Dial without waiting: the network is back, the page is looked at, or somebody asked. Also wakes a stop."""
        if self._is_wanted and self._current is None:
            self._dial()

    def send(
        self,
        channel: str,
        kind: Kind,
        payload: P,
        *,
        id: RequestId | None = None,
        related: RequestId | None = None,
    ) -> None:
        """Send on a channel that is open; what is said on one that is gone is dropped. Raises MessageTooLarge."""
        self.catch_up()
        now = self._clock()
        answered = id if kind is Kind.RES else None
        if answered is not None and self._answer(channel, answered, payload, now):
            self._ledger.finish(channel, answered, payload, now)
            return
        self._channels.send(channel, kind, payload, id, related, now)
        if answered is not None:
            self._ledger.finish(channel, answered, payload, now)
        if not self._is_pumping:  # else the round that called us goes on
            self._pump()

    def close_channel(self, channel: str, why: str) -> None:
        self.catch_up()
        self._guarded(lambda: self._channels.close(channel, why))
        self._pump()

    # -- calls that the shell carries out by itself: see express.py ---------------------------------------------------

    def take(self, upto: int, channel: str, id: RequestId, size: int) -> None:
        """Count the request that came next. `size`: of its header and payload."""
        self._link.take_next(upto, size, self._clock())
        self.begin(channel, id)

    def begin(self, channel: str, id: RequestId) -> None:
        """A request opened this channel, and has no answer yet."""
        self._channels.opened(channel, is_single=True)
        self._ledger.begin(channel, id)

    def is_open(self, channel: str) -> bool:
        return channel in self._channels

    def book(self, came: int, size: int, upto: int, told: int, answers: list[tuple[str, RequestId, P]]) -> None:
        """Count requests that came, and answers that were written under the numbers that `turn` said. See Link.book."""
        now, note, closed = self._clock(), self._ledger.note, self._channels.closed
        for channel, id, payload in answers:
            closed(channel)
            note(channel, id, payload, now)
        if not self._link.book(came, size, upto, told, answers, now):
            self.violate("acknowledged more than was said")
        self.wind_up()

    def violate(self, what: str) -> None:
        """End this socket: what was carried out and what is counted do not agree any more. A new one sorts it out."""
        self._take(Violation(what))
        self._pump()

    def turn(self, frames: int, letters: int) -> int:
        """The number that an answer will have which is written next, if so much may be written before it is counted.
        0: answers have to be sent."""
        attempt = self._current
        if attempt is None or attempt.socket is None or attempt.outbox or self._channels.unsent:
            return 0
        return self._link.turn(frames, letters) if attempt.socket.buffered < HIGH_WATER else 0

    # -- dialling -----------------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        self._cancel_retry()
        self._attempts += 1
        attempt: Attempt[P] = Attempt(self._new_abort())
        self._current = attempt
        attempt.deadline = self._call_later(self._connect_timeout_s, lambda: self._timed_out(attempt))
        task = asyncio.get_running_loop().create_task(self._run(attempt))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self._tell(State("connecting", attempts=self._attempts))

    async def _run(self, attempt: Attempt[P]) -> None:
        try:
            socket = await self._dialer.dial(
                attempt.abort,
                partial(self._heard, attempt),
                partial(self._lost, attempt),
            )
        except DialError as error:
            self._failed(attempt, error)
        except Exception as error:
            self._failed(attempt, DialError("lost", f"{type(error).__name__}: {error}"))
        else:
            if attempt is not self._current:
                socket.close(1000, "given up")
                return
            attempt.socket = socket
            self._link.connected(self._clock())
            self._pump()
            # What the socket said between its opening and now.
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
        self._leave(CLOSE_SLOW, error.why)
        self._report(error)
        self._settle(self._backoff.after_failure(error))

    # -- one socket ---------------------------------------------------------------------------------------------------

    def _heard(self, attempt: Attempt[P], header: str, payload: P | None) -> None:
        if attempt is not self._current:
            return
        if attempt.socket is None:
            attempt.early.append(lambda: self._heard(attempt, header, payload))
            return
        link, now = self._link, self._clock()
        request = None if payload is None or self._is_pumping else link.request(header, payload, now)
        if request is None:
            link.receive(header, payload, now)
            self._pump()
            return
        self._is_pumping = True
        try:
            self._received(request)
        finally:
            self._is_pumping = False
        self.wind_up()

    def wind_up(self) -> None:
        """Write what there is to write, and look at the timers."""
        if self._link.has_frames or self._channels.unsent:
            self._pump()
        else:
            self._arm()

    def _lost(self, attempt: Attempt[P], code: int, reason: str) -> None:
        """The socket closed, or is as good as closed."""
        if attempt is not self._current:
            return
        if attempt.socket is None:
            attempt.early.append(lambda: self._lost(attempt, code, reason))
            return
        was_up = attempt.up_since is not None
        self._leave(1000, "closed", told=(code, reason))
        verdict = self._backoff.after_close(code, reason, attempt.parted, was_up=was_up)
        if not was_up:
            error = DialError(verdict.why, verdict.message, verdict.delay_s is None)
            self._report(error)
        self._settle(verdict)

    def _leave(self, code: int, reason: str, told: tuple[int, str] | None = None) -> None:
        """Let go of the current attempt, wherever it is, and close what it holds. `told`: what `on_close` hears."""
        self.catch_up()
        attempt, self._current = self._current, None
        if attempt is None:
            return
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        if self._drain is not None:
            self._drain.cancel()
            self._drain = None
        now = self._clock()
        self._link.disconnected(now)
        self._arm()
        if attempt.socket is None:
            attempt.abort.abort(reason)
            return
        self._guarded(lambda: _close(attempt.socket, code, reason))
        if attempt.up_since is not None:
            self._backoff.was_up(now - attempt.up_since)
            shown = told or (code, reason)
            self._guarded(lambda: self.on_close(*shown))

    def _settle(self, verdict: Verdict) -> None:
        """Wait, or stop until somebody asks. (`close()` is something else: it makes `retry_now` deaf.)"""
        if not self._is_wanted or self._current is not None:
            return  # a callback has closed or dialled in the meantime
        if verdict.delay_s is None:
            self._tell(State("stopped", verdict.why, verdict.message, None, self._attempts))
            return
        self._retry = self._call_later(verdict.delay_s, self.retry_now)
        retry_in_ms = round(verdict.delay_s * 1000)
        self._tell(State("waiting", verdict.why, verdict.message, retry_in_ms, self._attempts))

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    def _tell(self, state: State) -> None:
        self.state = state
        self._guarded(lambda: self.on_state(state))

    # -- the loop: events, frames, timer ------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Act on what the link says and write what it wants written, until it has nothing more; then set one timer."""
        if self._is_pumping:
            return  # a callback sent something: the round that called it goes on
        self._is_pumping = True
        try:
            events = self._link.events()
            while True:
                for event in events:
                    self._take(event)
                while self._channels.unsent and (error := self._channels.flush()) is not None:
                    self._report(error)
                self._write(self._current)
                events = self._link.events()
                if not events:
                    break
        finally:
            self._is_pumping = False
        self._arm()

    def _take(self, event: Event) -> None:
        if type(event) is Received:
            self._received(event)
        elif isinstance(event, Opened):
            is_known = self._channels.is_orphan(event.channel)
            self._channels.opened(event.channel, is_single=False)
            if not is_known:
                self._pass_on(event)
        elif isinstance(event, Closed):
            self._channels.closed(event.channel)
            self._ledger.close(event.channel)
            self._pass_on(event)
        elif isinstance(event, Welcomed):
            self._welcomed(event)
        elif isinstance(event, Parted):
            if self._current is not None:
                self._current.parted = event
        elif isinstance(event, Violation):
            self._link.bye(CLOSE_PROTOCOL, event.reason, self._clock())
            self._cut(CLOSE_PROTOCOL, event.reason)
        elif isinstance(event, Silence):
            self._cut(CLOSE_SLOW, f"waited in vain for {event.waited_for}")

    def _received(self, event: Received[P]) -> None:
        if event.caller is not None:
            self._channels.opened(event.channel, is_single=True)
        if event.kind is Kind.REQ and event.id is not None:
            if event.again and self._is_known(event.channel, event.id):
                return
            self._ledger.begin(event.channel, event.id)
        try:
            self.on_message(event)
        except Exception as error:
            self._report(error)

    def _is_known(self, channel: str, id: RequestId) -> bool:
        """A request that is asked again must not run again: it has its answer, or gets it, or will never have one."""
        standing = self._ledger.recall(channel, id)
        if isinstance(standing, Answer):
            self._channels.send(channel, Kind.RES, standing.payload, id, None, self._clock())
        elif standing is Standing.FORGOTTEN:
            self._channels.close(channel, "it was answered or given up before, and the answer is no longer here")
        return standing is not Standing.UNKNOWN

    def _forget(self) -> None:
        """Nobody comes back for what was open in an earlier session: end what still runs there."""
        if self._forgetting is not None:
            self._forgetting.cancel()
            self._forgetting = None
        for channel in self._channels.forget(self._clock()):
            self._ledger.close(channel)
            self._pass_on(Closed(channel, "the relay started anew"))
        due = self._channels.next_forgotten
        if due is not None:
            self._forgetting = self._call_later(max(due - self._clock(), MIN_FORGET_S), self._forget)

    def _welcomed(self, event: Welcomed) -> None:
        attempt = self._current
        assert attempt is not None
        if attempt.deadline is not None:
            attempt.deadline.cancel()
        attempt.up_since = self._clock()
        self.welcome = event
        self._attempts = 0
        if not event.resumed:
            # The callers of the earlier session may come back for their answers, but only within its grace.
            self._channels.orphan(self._clock() + self._link.grace_s)
            self._forget()
        self._tell(State("connected"))
        self._guarded(self.on_open)

    def _cut(self, code: int, reason: str) -> None:
        """Close the current socket from our side; the browser may take long to say that it did."""
        attempt = self._current
        if attempt is not None:
            self._write(attempt)
            self._guarded(lambda: _close(attempt.socket, code, reason))
            self._lost(attempt, code, reason)

    def _pass_on(self, event: Opened | Closed) -> None:
        try:
            self.on_message(event)
        except Exception as error:
            self._report(error)

    def _answer(self, channel: str, id: RequestId, payload: P, now: float) -> bool:
        """Write an answer at once, past the outbox, if nothing waits to be written before it."""
        attempt = self._current
        socket = None if attempt is None else attempt.socket
        if attempt is None or socket is None or attempt.outbox or socket.buffered >= HIGH_WATER:
            return False
        header = self._channels.answer(channel, id, payload, now)
        if header is None:
            return False
        try:
            socket.send(header, payload)
        except Exception as error:
            self._report(error)
            self._lost(attempt, 1006, "writing failed")
        return True

    def _write(self, attempt: Attempt[P] | None) -> None:
        """Write to one socket, in order, as long as it takes more; then look again a little later."""
        if attempt is None or attempt.socket is None:
            return
        attempt.outbox.extend(self._link.frames())
        if not attempt.outbox:
            return
        try:
            while attempt.outbox and attempt.socket.buffered < HIGH_WATER:
                attempt.socket.send(*attempt.outbox[0])
                attempt.outbox.popleft()
        except Exception as error:
            self._report(error)
            self._lost(attempt, 1006, "writing failed")
            return
        if attempt.outbox and self._drain is None:
            self._drain = self._call_later(DRAIN_CHECK_S, self._drained)

    def _drained(self) -> None:
        self._drain = None
        self.catch_up()
        self._pump()

    def _arm(self) -> None:
        """No timer is ever taken back: a browser's loop keeps a cancelled one, and all it holds, until its time comes.

        With every frame the watchdog moves on, so that would be one more for each. One that rings early does no harm.
        """
        due = self._link.next_timer()
        alarms = self._alarms
        if due is not None and (not alarms or due < (alarms[0] if len(alarms) == 1 else min(alarms))):
            self._alarms.append(due)
            self._call_later(max(0.0, due - self._clock()), lambda: self._ring(due))

    def _ring(self, due: float) -> None:
        self._alarms.remove(due)
        self.catch_up()
        self._link.handle_timer(self._clock())
        self._pump()

    def _call_later(self, delay_s: float, callback: Callable[[], None]) -> Timer:
        if self._given_call_later is not None:
            return self._given_call_later(delay_s, callback)
        return asyncio.get_running_loop().call_later(delay_s, callback)

    def _guarded(self, callback: Callable[[], None]) -> None:
        """Run somebody else's code: what it raises must not take the connection down."""
        try:
            callback()
        except Exception as error:
            self._report(error)

    def _report(self, error: Exception) -> None:
        # An error handler that fails itself: nobody is left to be told.
        with suppress(Exception):
            self.on_error(error)


def _close(socket: Socket[Any] | None, code: int, reason: str) -> None:
    if socket is not None:
        # A close reason is at most 123 bytes of UTF-8; a longer one makes a browser throw.
        socket.close(code, reason.encode()[:120].decode(errors="ignore"))
