"""Link session of the worker: frames, channels, request history and timers over changing sockets.

A frame goes through the link as soon as the socket receives it, and the frames that follow from it are written before
control returns. Invariant: Python changes the link in `_change` only, which first applies what JavaScript did by itself
(worker/js_calls.py); only what JavaScript calls, `received` and `record`, does without. The link decides what a frame
means; `reconnect` decides when there is another socket.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar, cast

from ..wire.call_times import CallTimes
from ..wire.codec import Codec, TextCodec
from ..wire.events import ByeReceived, Closed, Event, Opened, Received, Silence, Violation, Welcomed
from ..wire.frames import CLOSE_PROTOCOL, CLOSE_SLOW, Kind
from ..wire.jsonrpc import RequestId
from ..wire.limits import RETRY_TIMER_S
from ..wire.link import Link
from ..wire.request_history import RecordedAnswer, RequestHistory, RequestStanding
from .channels import Channels
from .dialing import CallLater, DialTimer, OpenSocket

P = TypeVar("P")
T = TypeVar("T")

HIGH_WATER: Final = 1024 * 1024  # bytes in the socket's buffer; with more, frames wait in the outbox
DRAIN_CHECK_S: Final = 0.02  # between checks of that buffer
MAX_MEASURED: Final = 1024  # F6: calls whose times are taken at the same time
MIN_EXPIRY_S: Final = 0.01  # a timer may fire a moment before it is due

NewReceiver = Callable[[Callable[..., None]], Callable[[Received[P] | Opened | Closed], None]]


class LinkSession(Generic[P]):
    """`new_receiver` gets `send` and returns the function that receives the messages. `sync` records the calls that
    JavaScript has carried out: see worker/js_calls.py.

    `welcomed` is called when the relay has sent its `welcome`. `failed` is called with a close code and a reason
    when the socket can't be used any more; the owner of the socket then closes it and calls `disconnected`."""

    def __init__(
        self,
        link: Link[P],
        *,
        clock: Callable[[], float],
        call_later: CallLater,
        codec: Codec[P] | None,
        new_receiver: NewReceiver[P],
        sync: Callable[[], None],
        welcomed: Callable[[Welcomed], None],
        failed: Callable[[int, str], None],
        report: Callable[[Exception], None],
    ) -> None:
        self._link, self._clock, self._call_later = link, clock, call_later
        self._welcomed, self._failed, self._report = welcomed, failed, report
        self._sync = sync
        # The `bye` of the relay on this socket.
        self.received_bye: ByeReceived | None = None
        self._socket: OpenSocket[P] | None = None
        self._outbox: deque[tuple[str, P | None]] = deque()
        self._channels = Channels(link, clock)
        self._request_history: RequestHistory[P] = RequestHistory(
            codec if codec is not None else cast("Codec[P]", TextCodec())
        )
        self._measured: dict[tuple[str, RequestId], CallTimes] = {}
        self._expiry_timer: DialTimer | None = None
        self._is_pumping = self._is_pump_due = False
        self._drain_timer: DialTimer | None = None
        self._due_times: list[float] = []  # when the timers that were set will fire
        self._receive = new_receiver(self.send)

    @property
    def is_up(self) -> bool:
        return self._link.is_up

    @property
    def last_received(self) -> int:
        """The number of the last frame received."""
        return self._link.last_received

    # -- sockets ------------------------------------------------------------------------------------------------------

    def connected(self, socket: OpenSocket[P]) -> None:
        self._socket, self.received_bye = socket, None
        self._change(self._link.connected, self._clock())
        self._pump()

    def disconnected(self) -> None:
        """The socket closed, or its dial was aborted."""
        self._change(self._link.disconnected, self._clock())
        if self._drain_timer is not None:
            self._drain_timer.cancel()
            self._drain_timer = None
        self._socket = None
        self._outbox.clear()
        self._arm()

    def refused(self) -> None:
        """L16: the relay closed the socket because of a frame of this end: see Link.refused."""
        self._change(self._link.refused)

    def bye(self, code: int, reason: str) -> None:
        """Send `bye`, if the link is up."""
        self._change(self._bye, code, reason)
        self._write()

    def _bye(self, code: int, reason: str) -> None:
        if self._link.is_up:
            self._link.bye(code, reason, self._clock())

    def received(self, header: str, payload: P | None) -> None:
        """The socket received a frame."""
        self._link.receive(header, payload, self._clock())
        self._pump()

    # -- sending ------------------------------------------------------------------------------------------------------

    def send(
        self,
        channel: str,
        kind: Kind,
        payload: P,
        *,
        id: RequestId | None = None,
        related: RequestId | None = None,
    ) -> None:
        """Send on an open channel; a message for a closed one is dropped. Raises MessageTooLarge."""
        now = self._clock()
        times = self._measured.pop((channel, id), None) if self._measured and id is not None else None
        self._change(self._channels.send, channel, kind, payload, id, related, now, times)
        if id is not None and kind is Kind.RES:
            self._request_history.finish(channel, id, payload, now)
        if not self._is_pumping:  # else the `_pump` that called this function continues
            self._write()
            self._arm()

    def _change(self, change: Callable[..., T], *args: object) -> T:
        """Change the link: number a frame, handle a timer, begin or end a socket. JavaScript may have carried out calls
        that are not recorded yet, under numbers that come before."""
        # defence: calls of JavaScript: reported before Python sends
        self._sync()
        return change(*args)

    # -- calls that JavaScript handles: see worker/js_calls.py --------------------------------------------------------

    def receive_request(self, upto: int, channel: str, id: RequestId, size: int) -> None:
        """Count the next request. `size`: of its header and payload."""
        self.record(1, size, upto, 0, [])
        self.begin_request(channel, id)

    def begin_request(self, channel: str, id: RequestId) -> None:
        """A request opened this channel, and has no response yet."""
        self._channels.opened(channel, is_single=True)
        self._request_history.begin(channel, id)

    def is_open(self, channel: str) -> bool:
        return channel in self._channels

    def record(self, count: int, size: int, upto: int, acked: int, answers: list[tuple[str, RequestId, P]]) -> None:
        """Record received requests, and responses that were written under numbers of `next_seq`: see Link.record."""
        now, note, closed = self._clock(), self._request_history.record_finished, self._channels.closed
        for channel, id, payload in answers:
            closed(channel)
            note(channel, id, payload, now)
        if not self._link.record(count, size, upto, acked, answers, now):
            self.fail_socket("acknowledged more than was sent")
        self._pump()

    def fail_socket(self, what: str) -> None:
        """End this socket, because the calls that JavaScript handled contradict the recorded state. On the next socket
        both ends agree on it again."""
        self._handle(Violation(what))
        self._pump()

    def next_seq(self, frames: int, characters: int) -> int:
        """The number of the next response, if `frames` responses, of `characters` together, may be written before they
        are recorded. 0: responses have to be sent with `send`."""
        socket = self._socket
        if socket is None or self._outbox or self._channels.unsent or socket.buffered >= HIGH_WATER:
            return 0
        return self._link.next_seq(frames, characters)

    # -- the loop: events, frames, timer ------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Handle events and write frames of the link until it has none left; then set one timer."""
        self._is_pump_due = True
        if self._is_pumping:
            return  # a socket received a frame while it was written to: the call of `_pump` that writes it continues
        self._is_pumping = True
        try:
            while self._is_pump_due:
                self._is_pump_due = False
                for event in self._link.events():
                    self._handle(event)
                while self._channels.unsent and (error := self._change(self._channels.flush)) is not None:
                    self._report(error)
                self._write()
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
        elif isinstance(event, ByeReceived):
            self.received_bye = event
        elif isinstance(event, Violation):
            self._change(self._link.bye, CLOSE_PROTOCOL, event.reason, self._clock())
            self._cut(CLOSE_PROTOCOL, event.reason)
        elif isinstance(event, Silence):
            self._cut(CLOSE_SLOW, f"timed out waiting for {event.waited_for}")

    def _handle_message(self, event: Received[P]) -> None:
        if event.caller is not None:
            self._channels.opened(event.channel, is_single=True)
        if event.kind is Kind.REQ and event.id is not None:
            if event.again and self._answer_repeat(event.channel, event.id):
                return
            self._request_history.begin(event.channel, event.id)
            if event.is_measured:
                event.times = self._measure(event.channel, event.id)
        try:
            self._receive(event)
        except Exception as error:
            self._report(error)

    def _measure(self, channel: str, id: RequestId) -> CallTimes:
        """F6: take the times of this request. Beyond the bound, those of the oldest are not reported."""
        # defence: calls whose times are taken
        if len(self._measured) >= MAX_MEASURED:
            del self._measured[next(iter(self._measured))]
        times = self._measured[channel, id] = CallTimes(self._clock)
        return times

    def _answer_repeat(self, channel: str, id: RequestId) -> bool:
        """Was this request received before? Then it must not run again: its response is sent again, or follows, or is
        gone and the channel is closed (L6)."""
        standing = self._request_history.lookup(channel, id)
        if isinstance(standing, RecordedAnswer):
            self._channels.send(channel, Kind.RES, standing.payload, id, None, self._clock())
        elif standing is RequestStanding.FORGOTTEN:
            self._channels.close(channel, "it was answered or cancelled before, and the response is no longer kept")
        return standing is not RequestStanding.UNKNOWN

    def _greeted(self, event: Welcomed) -> None:
        if not event.resumed:
            # L7: the relay may ask again for responses of the earlier session, but only within its grace.
            self._channels.orphan(self._clock() + self._link.grace_s)
            self._expire_orphans()
        self._welcomed(event)

    def _expire_orphans(self) -> None:
        """L7: end calls of earlier sessions whose grace is over."""
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        for channel in self._channels.expire_orphans(self._clock()):
            self._request_history.close(channel)
            self._deliver(Closed(channel, "the relay started a new session"))
        due = self._channels.next_expiry
        if due is not None:
            self._expiry_timer = self._call_later(max(due - self._clock(), MIN_EXPIRY_S), self._expire_orphans)

    def _cut(self, code: int, reason: str) -> None:
        self._write()
        self._failed(code, reason)

    def _deliver(self, event: Opened | Closed) -> None:
        try:
            self._receive(event)
        except Exception as error:
            self._report(error)

    def _write(self) -> None:
        """Write frames to the socket, in order, while it has room; then try again after DRAIN_CHECK_S."""
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
        self._pump()

    def _arm(self) -> None:
        """Set a timer for the link, unless one is set that fires earlier. No timer is ever cancelled: a browser's event
        loop keeps a cancelled one, with all its references, until its time comes.

        Each frame moves the watchdog, so that would be one more timer for each frame. One that fires early is harmless.
        """
        due = self._link.next_timer()
        set_for = self._due_times
        if due is not None and (not set_for or due < (set_for[0] if len(set_for) == 1 else min(set_for))):
            self._due_times.append(due)
            self._call_later(max(0.0, due - self._clock()), lambda: self._timer_fired(due))

    def _timer_fired(self, due: float) -> None:
        self._due_times.remove(due)
        try:
            self._change(self._link.handle_timer, self._clock())
            self._pump()
        except Exception as error:
            # L14: without its timer a link would not notice that the relay is gone. With a pause, as it may fail again.
            self._report(error)
            retry_at = self._clock() + RETRY_TIMER_S
            self._due_times.append(retry_at)
            # defence: stalls: a link whose timer failed gets another one in the worker
            self._call_later(RETRY_TIMER_S, lambda: self._timer_fired(retry_at))
