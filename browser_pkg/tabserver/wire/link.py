"""The link: a resumable session between a worker and the relay that outlives its WebSockets.

Theory of operation
-------------------
A *socket* is one WebSocket and may close at any time. A *link* is the session: it keeps each frame until the other end
has acknowledged it, and replays it on the next socket. Both ends are this class. They differ in which end sends the
greeting (`dialer`: the worker) and which replies to it (`accepter`: the relay).

Each `open`, `msg`, `part` and `close` frame has a sequence number `s`, which increases by one per direction, and a
cumulative acknowledgement `a`. A receiver drops a frame that it already has (`s <= rx`), takes the next (`s = rx + 1`)
and treats a gap as a protocol violation. On a new socket the worker sends the last number that it has received (`rx`)
and its session (`sid`); the relay replies whether that session still exists, and both replay what the other lacks. If
the session is gone, the worker starts from zero: results for its callers are dropped, never given to other callers.

Time is an argument. The class has no clock, no loop and no socket: a shell calls `connected`, `receive`,
`disconnected`, `send`, `handle_timer`, then drains `events()` and `frames()` and re-arms one timer at `next_timer()`.

The clauses F1 to L16 that the comments cite are those of docs/reference/link.md. The state machine is in `states`,
timers and acknowledgements are in `timers`, usual requests and responses are in `shortcuts`.

What is *not* here: which browsers may connect (the relay's gate), what a payload means (the MCP core), and when to dial
again (the worker's transport).
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeVar, cast

from . import frames
from .call_times import MAX_TIME
from .codec import Codec, TextCodec
from .errors import LocalProtocolError, RemoteProtocolError, TooMuch
from .events import ByeReceived, ClockRead, Closed, Event, Opened, Received, Undeliverable, Violation, Welcomed
from .frames import Caller, Greeting, Kind, Terms
from .jsonrpc import RequestId
from .limits import DEFAULTS, Limits, watchdog_s
from .memory_budget import MemoryBudget
from .shortcuts import LinkShortcuts
from .states import ACCEPTS, TRANSITIONS, Phase, Role
from .timers import GRACE_TICKS

P = TypeVar("P")

# Read for each message: see timers.py.
_UP: Final = Phase.UP
_OVER: Final = Phase.OVER
_DIALER: Final = Role.DIALER


class Link(LinkShortcuts[P]):
    """One end of a link. Make it with `Link.dialer(...)` in a worker or `Link.accepter(...)` in the relay."""

    def __init__(
        self,
        role: Role,
        *,
        greeting: Greeting | None,
        terms: Terms | None,
        limits: Limits,
        codec: Codec[P] | None,
        budget: MemoryBudget | None,
    ) -> None:
        # Payloads are text unless the shell passes a codec; the type checker can't see that P is str then.
        super().__init__(role, limits, codec if codec is not None else cast("Codec[P]", TextCodec()), budget)
        self._greeting = greeting
        self._terms = terms
        self.sid: str | None = terms.sid if terms else None
        self.epoch: str | None = terms.epoch if terms else None
        # How long the relay keeps a session without a socket. A worker reads it from the welcome.
        self.grace_s = limits.grace_s
        self._refused_upto = 0  # the last frame sent on a socket that the other end closed because of a frame

    @classmethod
    def dialer(
        cls,
        greeting: Greeting,
        limits: Limits = DEFAULTS,
        codec: Codec[P] | None = None,
        budget: MemoryBudget | None = None,
    ) -> Link[P]:
        """The worker's end: it sends the `hello` and may ask to resume."""
        return cls(Role.DIALER, greeting=greeting, terms=None, limits=limits, codec=codec, budget=budget)

    @classmethod
    def accepter(
        cls, terms: Terms, limits: Limits = DEFAULTS, codec: Codec[P] | None = None, budget: MemoryBudget | None = None
    ) -> Link[P]:
        """The relay's end: one object per session, found again by its `sid`."""
        return cls(Role.ACCEPTER, greeting=None, terms=terms, limits=limits, codec=codec, budget=budget)

    @property
    def is_up(self) -> bool:
        return self.phase is _UP

    @property
    def is_over(self) -> bool:
        return self.phase is Phase.OVER

    @property
    def unacknowledged(self) -> int:
        """How many frames the other end has not acknowledged yet."""
        return self._sender.unacknowledged

    def unacknowledged_messages(self) -> list[tuple[str, Kind, P]]:
        """Notifications and responses that the other end has not acknowledged, by their channels. A link that replaces
        this one may send them again."""
        kept = [(json.loads(header), payload) for header, payload in self._sender.unacknowledged_frames()]
        return [(head["c"], Kind(head["k"]), payload) for head, payload in kept if head.get("k") in ("note", "res")]

    # -- sockets ------------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """A socket opened. The dialer sends the `hello` at once; the accepter waits for it."""
        self._transition("connected")
        self._sender.outbox.clear()
        self._timers.clear()
        self._timers["greeting"] = now + self._limits.greeting_s
        if self._greeting is not None:
            # L5: `sid` and `rx` ask for the session that this worker had.
            self._send_unnumbered(frames.hello_header(self._greeting, self.sid, self._receiver.rx))

    def disconnected(self, now: float) -> None:
        """The socket closed, for any reason. Unacknowledged frames stay for the next one."""
        if (self.phase, "disconnected") not in TRANSITIONS:
            return
        self._transition("disconnected")
        # L11: frames that were not written belonged to this socket. L3: the sender still has those with a number.
        self._sender.outbox.clear()
        self._timers.clear()
        if self._role is Role.ACCEPTER:
            # L7: the session is kept for its grace.
            self._grace_left = GRACE_TICKS
            self._timers["grace"] = now + self._limits.grace_s / GRACE_TICKS

    def refused(self) -> None:
        """L16: the other end closes this socket because of a frame (1009, 4400). Call it before `disconnected`. If the
        session is resumed, the first frame that the other end lacks is the one, and is not sent again."""
        if self.phase is _UP:
            self._refused_upto = self._sender.last

    def end(self) -> None:
        """End the session now and drop its frames."""
        if self.phase is not Phase.OVER:
            self.disconnected(0.0)
            self._expire()

    # -- sending ------------------------------------------------------------------------------------------------------

    def open(self, channel: str, caller: Caller, now: float) -> None:
        """Open a channel that lives until it is closed: a legacy session."""
        self._push("open", channel, f'"c":"{channel}","o":{caller.text}', None, now)

    def send(
        self,
        channel: str,
        kind: Kind,
        payload: P,
        now: float,
        id: RequestId | None = None,
        related: RequestId | None = None,
        caller: Caller | None = None,
        again: bool = False,
        is_measured: bool = False,
        times: str = "",
    ) -> None:
        """Send one message. With `caller`, the channel is opened for this one request and ends with its response.

        `again`: this request was also sent in an earlier session, and may have arrived there. `is_measured`: its
        response should report its times; `times`: the report, as JSON text.
        """
        # `value` is a descriptor, and ten times as slow.
        if id is None:
            tail = f'"c":"{channel}","k":"{kind._value_}"'
        else:
            tail = f'"c":"{channel}","k":"{kind._value_}","i":{id if type(id) is int else json.dumps(id)}'
        if related is not None:
            tail += f',"r":{related}' if isinstance(related, int) else f',"r":{json.dumps(related)}'
        if caller is not None:
            tail += f',"o":{caller.text}'
        if again:
            # L6: the worker looks the request up in its history before it runs it.
            tail += ',"d":1'
        # F6: a request that asks for its times, and a response that reports them.
        if is_measured:
            tail += ',"m":1'
        if times:
            tail += f',"w":{times}'
        self._push("msg", channel, tail, payload, now)

    def check(self, payload: P) -> None:
        """Raise MessageTooLarge as `send` would, for a payload that has to wait before it is sent."""
        self._sender.check(self._codec.size(payload))

    def close(self, channel: str, why: str, now: float) -> None:
        """Send the end of a channel: the caller left, or the session ended."""
        # L16: `why` is cut by the sender and by the receiver.
        self._push("close", channel, f'"c":"{channel}","why":{json.dumps(why[: frames.MAX_WHY])}', None, now)

    def bye(self, code: int, reason: str, now: float, retry_ms: int | None = None) -> None:
        """Send a `bye` on this socket, before the shell closes it with the same code."""
        fields: dict[str, Any] = {"t": "bye", "code": code, "reason": reason[: frames.MAX_WHY]}
        if retry_ms is not None:
            fields["retry_ms"] = retry_ms
        self._send_unnumbered(frames.encode(**fields))

    def ask_clock(self, stamp: int, now: float) -> None:
        """F7: have the other end read its clock. `stamp` comes back unchanged, as a ClockRead."""
        if self.phase is _UP:
            self._send_unnumbered(f'{{"t":"ack","p":{stamp},"a":{self._receiver.ack}}}')
            self._ack_sent(now)

    def _push(self, kind: str, channel: str, tail: str, payload: P | None, now: float) -> None:
        phase = self.phase
        if phase is _OVER:
            raise LocalProtocolError("the session is over")
        # L2: every frame with `s` carries `a`.
        if self._sender.push(kind, channel, tail, payload, self._receiver.ack, phase is _UP):
            self._ack_sent(now)

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, header: str, payload: P | None, now: float) -> None:
        """Handle one frame of the current socket. An invalid one becomes a Violation event, never an exception."""
        if self._role is _DIALER and payload is not None:
            request = self.request(header, payload, now)
            if request is not None:
                self._events.append(request)
                return
        rx = self._receiver.rx
        try:
            self._handle_frame(frames.decode(header), payload, len(header), now)
        except RemoteProtocolError as error:
            # L16: a refused frame does not count as received.
            self._receiver.roll_back(rx)
            self._events.append(Violation(str(error), isinstance(error, TooMuch)))

    def _handle_frame(self, frame: dict[str, Any], payload: P | None, header_size: int, now: float) -> None:
        kind = frame["t"]
        if kind not in ACCEPTS.get((self._role, self.phase), ()):
            raise RemoteProtocolError(f"frame {kind} is not legal while {self.phase.value}")
        if self._role is Role.DIALER and self.phase is _UP:
            # L9: each frame of the relay restarts the watchdog.
            self._timers["watchdog"] = now + self._watchdog_s
        if "a" in frame:
            self._confirm(frame["a"])
        # L1: a frame that was received before is dropped, after its acknowledgement was used.
        if "s" in frame and not self._receiver.take(frame["s"], header_size, payload):
            return
        if kind == "msg":
            self._handle_message(frame, payload)
        elif kind == "part":
            # F4: a message in slices is handled when its last slice is here.
            whole = self._receiver.assemble(frame, payload)
            if whole is not None:
                self._handle_message(*whole)
        elif kind == "open":
            self._events.append(Opened(frame["c"], Caller.from_dict(frame["o"])))
        elif kind == "close":
            self._events.append(Closed(frame["c"], frame["why"][: frames.MAX_WHY]))
        elif kind == "bye":
            self._events.append(ByeReceived(frame["code"], frame["reason"][: frames.MAX_WHY], frame.get("retry_ms")))
        elif kind == "hello":
            self._handle_hello(frame, now)
        elif kind == "welcome":
            self._handle_welcome(frame, now)
        elif kind == "ack" and len(frame) > 2:
            self._handle_clock(frame, now)
        if "s" in frame:
            self._schedule_ack(now, is_awaited=kind == "part")

    def _handle_clock(self, frame: dict[str, Any], now: float) -> None:
        """F7: the worker answers at once with the stamp and its clock; the relay reads the answer."""
        if self._role is _DIALER and frame.get("p") is not None:
            self._send_unnumbered(f'{{"t":"ack","e":[{frame["p"]},{round(now * 1e6)}],"a":{self._receiver.ack}}}')
            self._ack_sent(now)
        read = frame.get("e")
        if self._role is not _DIALER and read is not None:
            if len(read) != 2 or not all(type(each) is int and 0 <= each <= MAX_TIME for each in read):
                raise RemoteProtocolError("frame ack: field e must be two numbers")
            self._events.append(ClockRead(read[0], read[1] / 1e6))

    def _handle_message(self, frame: dict[str, Any], payload: P | None) -> None:
        # F1: a `msg` has a payload after its header.
        if payload is None:
            raise RemoteProtocolError("frame msg has no payload")
        try:
            kind = Kind(frame["k"])
        except ValueError:
            raise RemoteProtocolError(f"frame msg: unknown kind {ascii(frame['k'])[:40]}") from None
        caller = Caller.from_dict(frame["o"]) if "o" in frame else None
        id, related = frames.request_id(frame, "i"), frames.request_id(frame, "r")
        self._events.append(Received(frame["c"], kind, id, related, payload, caller, *_more(frame)))

    def _confirm(self, upto: int) -> None:
        # L2: to acknowledge what was never sent is a violation.
        if upto > self._sender.last:
            raise RemoteProtocolError(f"acknowledged {upto}, but only {self._sender.last} were sent")
        self._sender.confirm(upto)

    # -- greeting -----------------------------------------------------------------------------------------------------

    def _handle_hello(self, frame: dict[str, Any], now: float) -> None:
        assert self._terms is not None
        low, high = (frame["v"] + [0, 0])[:2]
        if not (isinstance(low, int) and isinstance(high, int) and low <= frames.VERSION <= high):
            raise RemoteProtocolError(f"this relay supports link version {frames.VERSION} only")
        # L5: the relay found this object by server, instance, principal and Origin; the `sid` is the last condition.
        resumed = frame.get("sid") == self._terms.sid
        if resumed:
            self._confirm(frame["rx"])
        self._replace_refused(resumed)
        self._send_unnumbered(frames.welcome_header(self._terms, resumed, self._receiver.rx))
        self._greeted(resumed, self._terms.epoch, frame["build"], now)

    def _handle_welcome(self, frame: dict[str, Any], now: float) -> None:
        if frame["resumed"]:
            if frame["sid"] != self.sid:
                raise RemoteProtocolError("welcome resumes a session that this worker does not have")
            self._confirm(frame["rx"])
        else:
            # L5: the relay does not know our session. Its callers are gone, so its frames are dropped.
            self._sender.reset()
            self._receiver.reset()
        self._replace_refused(frame["resumed"])
        self.sid, self.epoch, self.grace_s = frame["sid"], frame["epoch"], frame["grace_ms"] / 1000
        # L9: the watchdog follows from the heartbeat that the relay announces.
        # defence: half-open: the worker knows the heartbeat of its relay
        if not self._limits.watchdog_s and frame.get("beat_ms"):
            self._watchdog_s = watchdog_s(frame["beat_ms"] / 1000)
        self._sender.max_message = min(self._limits.max_message, frame["max_msg"])
        self._receiver.max_message = frame["max_msg"]
        more = frame.get("static", False), frame.get("approve", "page"), frame.get("key", ""), frame.get("tasks")
        self._greeted(frame["resumed"], frame["epoch"], frame["build"], now, *more)

    def _greeted(self, resumed: bool, epoch: str, build: str, now: float, *more: Any) -> None:
        self._transition("greeted")
        self._timers.clear()
        # L3: unacknowledged frames are sent again on this socket, in order.
        self._sender.replay()
        self._receiver.advance()
        self._ack_sent(now)
        if self._role is Role.DIALER:
            self._timers["watchdog"] = now + self._watchdog_s
        self._events.append(Welcomed(resumed, epoch, build, *more))

    def _replace_refused(self, resumed: bool) -> None:
        """L16: the frame because of which the other end closed the last socket is replaced, not sent again."""
        refused_upto, self._refused_upto = self._refused_upto, 0
        head = self._sender.drop_first(refused_upto, self._receiver.ack) if refused_upto and resumed else None
        if head is not None:
            kind = Kind(head["k"]) if "k" in head else None
            self._events.append(Undeliverable(head.get("c", ""), kind, head.get("i")))

    # -- draining -----------------------------------------------------------------------------------------------------

    def frames(self) -> list[tuple[str, P | None]]:
        """The frames to write on the current socket, in order."""
        sender = self._sender
        if sender.queues and self.phase is _UP:
            sender.fill(self._receiver.ack)
        drained, sender.outbox = sender.outbox, []
        return drained

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def events(self) -> list[Event]:
        """The events since the last call, in order."""
        drained, self._events = self._events, []
        return drained


def _more(frame: dict[str, Any]) -> tuple[bool, bool, None, dict[str, Any] | None]:
    """The rare fields of a `msg`, as `Received` has them."""
    return frame.get("d") == 1, frame.get("m") == 1, None, frame.get("w")
