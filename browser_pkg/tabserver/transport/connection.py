"""A link in use: what is said over it, whichever socket it has at the moment.

One loop: what comes from the socket goes through the link at once, and its answers are written before control returns.
The link decides what a frame means, and `reconnect` when there is another socket. Here are the channels that are open,
the ledger of what was asked and answered, and what waits to be written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from ..wire.codec import Codec, TextCodec
from ..wire.events import Closed, Event, Opened, Parted, Received, Silence, Violation, Welcomed
from ..wire.frames import CLOSE_PROTOCOL, CLOSE_SLOW, Kind
from ..wire.jsonrpc import RequestId
from ..wire.link import Link
from ..wire.request_history import RecordedAnswer, RequestHistory, RequestStanding
from .channels import Channels
from .dialing import CallLater, DialTimer, OpenSocket

P = TypeVar("P")

HIGH_WATER: Final = 1024 * 1024
DRAIN_CHECK_S: Final = 0.02
RETRY_TIMER_S: Final = 1.0
MIN_EXPIRY_S: Final = 0.01  # a timer may fire a moment before it is due


class LinkSession(Generic[P]):
    """`welcomed` is called when the relay has greeted, and `failed` when the socket is of no use any more, with the
    code and reason to close it with; then whoever gave it takes it away."""

    def __init__(
        self,
        link: Link[P],
        *,
        clock: Callable[[], float],
        call_later: CallLater,
        codec: Codec[P] | None,
        welcomed: Callable[[Welcomed], None],
        failed: Callable[[int, str], None],
        report: Callable[[Exception], None],
    ) -> None:
        self._link, self._clock, self._call_later = link, clock, call_later
        self._welcomed, self._failed, self._report = welcomed, failed, report
        self.on_message: Callable[[Received[P] | Opened | Closed], None] = lambda event: None
        # Before anything gets a number, or is looked at by those that have one: see express.py.
        self.sync: Callable[[], None] = lambda: None
        # How the relay said goodbye on this socket.
        self.parted: Parted | None = None
        self._socket: OpenSocket[P] | None = None
        self._outbox: deque[tuple[str, P | None]] = deque()
        self._channels = Channels(link, clock)
        self._request_history: RequestHistory[P] = RequestHistory(
            codec if codec is not None else cast("Codec[P]", TextCodec())
        )
        self._expiry_timer: DialTimer | None = None
        self._is_pumping = False
        self._drain_timer: DialTimer | None = None
        self._due_times: list[float] = []  # when the link's timers will ring

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    @property
    def last_received(self) -> int:
        """The number of the last frame that came."""
        return self._link.last_received

    # -- sockets ------------------------------------------------------------------------------------------------------

    def connected(self, socket: OpenSocket[P]) -> None:
        self._socket, self.parted = socket, None
        self._link.connected(self._clock())
        self._pump()

    def disconnected(self) -> None:
        """The socket is gone, or given up before it was there."""
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self._socket = None
        self._outbox.clear()
        self._link.disconnected(self._clock())
        self._arm()

    def refused(self) -> None:
        """The relay closed the socket because of a frame of ours: see Link.refused."""
        self.sync()
        self._link.refused()

    def bye(self, code: int, reason: str) -> None:
        """Say goodbye, if there is anybody to say it to."""
        self.sync()
        if self._link.is_up:
            self._link.bye(code, reason, self._clock())
            self._write()

    def received(self, header: str, payload: P | None) -> None:
        """A frame came from the socket."""
        link, now = self._link, self._clock()
        request = None if payload is None or self._is_pumping else link.request(header, payload, now)
        if request is None:
            link.receive(header, payload, now)
            self._pump()
            return
        self._is_pumping = True
        try:
            self._handle_message(request)
        finally:
            self._is_pumping = False
        self.flush()

    def flush(self) -> None:
        """Write what there is to write, and look at the timers."""
        if self._link.has_frames or self._channels.unsent:
            self._pump()
        else:
            self._arm()

    # -- saying -------------------------------------------------------------------------------------------------------

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
        # defence: calls that JavaScript carries out: told before others send
        self.sync()
        now = self._clock()
        answered = id if kind is Kind.RES else None
        if answered is not None and self._write_now(channel, answered, payload, now):
            self._request_history.finish(channel, answered, payload, now)
            return
        self._channels.send(channel, kind, payload, id, related, now)
        if answered is not None:
            self._request_history.finish(channel, answered, payload, now)
        if not self._is_pumping:  # else the round that called us goes on
            self._pump()

    def close_channel(self, channel: str, why: str) -> None:
        self.sync()
        try:
            self._channels.close(channel, why)
        except Exception as error:
            self._report(error)
        self._pump()

    # -- calls that the shell carries out by itself: see express.py ---------------------------------------------------

    def receive_request(self, upto: int, channel: str, id: RequestId, size: int) -> None:
        """Count the request that came next. `size`: of its header and payload."""
        self._link.take_next(upto, size, self._clock())
        self.begin_request(channel, id)

    def begin_request(self, channel: str, id: RequestId) -> None:
        """A request opened this channel, and has no answer yet."""
        self._channels.opened(channel, is_single=True)
        self._request_history.begin(channel, id)

    def is_open(self, channel: str) -> bool:
        return channel in self._channels

    def record(self, count: int, size: int, upto: int, acked: int, answers: list[tuple[str, RequestId, P]]) -> None:
        """Count requests that came, and answers that were written under the numbers of `next_seq`. See Link.record."""
        now, note, closed = self._clock(), self._request_history.record_finished, self._channels.closed
        for channel, id, payload in answers:
            closed(channel)
            note(channel, id, payload, now)
        if not self._link.record(count, size, upto, acked, answers, now):
            self.fail_socket("acknowledged more than was said")
        self.flush()

    def fail_socket(self, what: str) -> None:
        """End this socket: what was carried out and what is counted do not agree any more. A new one sorts it out."""
        self._handle(Violation(what))
        self._pump()

    def next_seq(self, frames: int, characters: int) -> int:
        """The number that an answer will have which is written next, if so much may be written before it is counted.
        0: answers have to be sent."""
        socket = self._socket
        if socket is None or self._outbox or self._channels.unsent or socket.buffered >= HIGH_WATER:
            return 0
        return self._link.next_seq(frames, characters)

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
                    self._handle(event)
                while self._channels.unsent and (error := self._channels.flush()) is not None:
                    self._report(error)
                self._write()
                events = self._link.events()
                if not events:
                    break
        finally:
            self._is_pumping = False
            self._arm()

    def _handle(self, event: Event) -> None:
        if type(event) is Received:
            self._handle_message(event)
        elif isinstance(event, Opened):
            is_known = self._channels.is_orphan(event.channel)
            self._channels.opened(event.channel, is_single=False)
            if not is_known:
                self._deliver(event)
        elif isinstance(event, Closed):
            self._channels.closed(event.channel)
            self._request_history.close(event.channel)
            self._deliver(event)
        elif isinstance(event, Welcomed):
            self._greeted(event)
        elif isinstance(event, Parted):
            self.parted = event
        elif isinstance(event, Violation):
            self._link.bye(CLOSE_PROTOCOL, event.reason, self._clock())
            self._cut(CLOSE_PROTOCOL, event.reason)
        elif isinstance(event, Silence):
            self._cut(CLOSE_SLOW, f"waited in vain for {event.waited_for}")

    def _handle_message(self, event: Received[P]) -> None:
        if event.caller is not None:
            self._channels.opened(event.channel, is_single=True)
        if event.kind is Kind.REQ and event.id is not None:
            if event.again and self._answer_repeat(event.channel, event.id):
                return
            self._request_history.begin(event.channel, event.id)
        try:
            self.on_message(event)
        except Exception as error:
            self._report(error)

    def _answer_repeat(self, channel: str, id: RequestId) -> bool:
        """A request that is asked again must not run again: it has its answer, or gets it, or will never have one."""
        standing = self._request_history.lookup(channel, id)
        if isinstance(standing, RecordedAnswer):
            self._channels.send(channel, Kind.RES, standing.payload, id, None, self._clock())
        elif standing is RequestStanding.FORGOTTEN:
            self._channels.close(channel, "it was answered or given up before, and the answer is no longer here")
        return standing is not RequestStanding.UNKNOWN

    def _greeted(self, event: Welcomed) -> None:
        if not event.resumed:
            # The callers of the earlier session may come back for their answers, but only within its grace.
            self._channels.orphan(self._clock() + self._link.grace_s)
            self._expire_orphans()
        self._welcomed(event)

    def _expire_orphans(self) -> None:
        """Nobody comes back for what was open in an earlier session: end what still runs there."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        for channel in self._channels.expire_orphans(self._clock()):
            self._request_history.close(channel)
            self._deliver(Closed(channel, "the relay started anew"))
        due = self._channels.next_expiry
        if due is not None:
            self._expiry_timer = self._call_later(max(due - self._clock(), MIN_EXPIRY_S), self._expire_orphans)

    def _cut(self, code: int, reason: str) -> None:
        self._write()
        self._failed(code, reason)

    def _deliver(self, event: Opened | Closed) -> None:
        try:
            self.on_message(event)
        except Exception as error:
            self._report(error)

    def _write_now(self, channel: str, id: RequestId, payload: P, now: float) -> bool:
        """Write an answer at once, past the outbox, if nothing waits to be written before it."""
        socket = self._socket
        if socket is None or self._outbox or socket.buffered >= HIGH_WATER:
            return False
        header = self._channels.answer(channel, id, payload, now)
        if header is None:
            return False
        try:
            socket.send(header, payload)
        except Exception as error:
            self._report(error)
            self._failed(1006, "writing failed")
        return True

    def _write(self) -> None:
        """Write to the socket, in order, as long as it takes more; then look again a little later."""
        socket, outbox = self._socket, self._outbox
        if socket is None:
            return
        outbox.extend(self._link.frames())
        if not outbox:
            return
        try:
            while outbox and socket.buffered < HIGH_WATER:
                socket.send(*outbox[0])
                outbox.popleft()
        except Exception as error:
            self._report(error)
            self._failed(1006, "writing failed")
            return
        if outbox and self._drain_timer is None:
            self._drain_timer = self._call_later(DRAIN_CHECK_S, self._drained)

    def _drained(self) -> None:
        self._drain_timer = None
        self.sync()
        self._pump()

    def _arm(self) -> None:
        """No timer is ever taken back: a browser's loop keeps a cancelled one, and all it holds, until its time comes.

        With every frame the watchdog moves on, so that would be one more for each. One that rings early does no harm.
        """
        due = self._link.next_timer()
        alarms = self._due_times
        if due is not None and (not alarms or due < (alarms[0] if len(alarms) == 1 else min(alarms))):
            self._due_times.append(due)
            self._call_later(max(0.0, due - self._clock()), lambda: self._timer_fired(due))

    def _timer_fired(self, due: float) -> None:
        self._due_times.remove(due)
        try:
            self.sync()
            self._link.handle_timer(self._clock())
            self._pump()
        except Exception as error:
            # Without its timer a link would not notice that the relay is gone. A pause, as it may fail again.
            self._report(error)
            retry_at = self._clock() + RETRY_TIMER_S
            self._due_times.append(retry_at)
            # defence: stalls: a link whose timer failed gets another one in the worker
            self._call_later(RETRY_TIMER_S, lambda: self._timer_fired(retry_at))
