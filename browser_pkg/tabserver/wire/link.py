"""The link: a conversation between a worker and the relay that survives its sockets.

Theory of operation
-------------------
A *socket* is one WebSocket; it drops, and nobody is surprised. A *link* is the conversation: it keeps what was sent
until the other end has acknowledged it, and says it again on the next socket. Both ends are this class; they differ
in who greets (`dialer`: the worker) and who answers (`accepter`: the relay).

Every frame that matters (`open`, `msg`, `close`) has a sequence number `s` that counts up by one per direction and a
cumulative acknowledgement `a`. A receiver drops what it has seen (`s <= rx`), takes the next (`s = rx + 1`) and treats
a gap as a broken peer. On a new socket the worker says what it has received (`rx`) under which session (`sid`); the
relay answers whether that session still exists, and both replay what the other has not seen. When the session is gone
the worker starts from nothing: results for callers that no longer exist are dropped, never given to somebody else.

Time is an argument. The class has no clock, no loop and no socket: a shell feeds it `connected`, `receive`,
`disconnected`, `send`, `handle_timer`, then drains `events()` and `frames()` and re-arms one timer at `next_timer()`.

What is *not* here: who may connect (the relay's gate), what a payload means (the MCP core), and when to dial again
(the worker's transport).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Any, Final, Generic, TypeVar, cast

from . import frames
from .codec import Codec, TextCodec
from .errors import LocalProtocolError, RemoteProtocolError, TooMuch
from .events import Closed, Event, Expired, Opened, Parted, Received, Silence, Undeliverable, Violation, Welcomed
from .frames import Caller, Greeting, Kind, Terms
from .jsonrpc import RequestId
from .limits import DEFAULTS, Limits, watchdog_s
from .memory_budget import MemoryBudget
from .receiver import Receiver
from .request_header import RequestHeaderReader
from .sender import Sender

P = TypeVar("P")


class Role(StrEnum):
    DIALER = "dialer"
    ACCEPTER = "accepter"


class Phase(StrEnum):
    """DOWN: no socket. GREETING: a socket, no welcome yet. UP: messages flow. OVER: the session can't be resumed."""

    DOWN = "down"
    GREETING = "greeting"
    UP = "up"
    OVER = "over"


# The whole machine: (phase, what happens) -> phase. What is not in the table is not allowed.
TRANSITIONS: Final[dict[tuple[Phase, str], Phase]] = {
    (Phase.DOWN, "connected"): Phase.GREETING,
    (Phase.GREETING, "greeted"): Phase.UP,
    (Phase.GREETING, "disconnected"): Phase.DOWN,
    (Phase.UP, "disconnected"): Phase.DOWN,
    (Phase.DOWN, "expired"): Phase.OVER,
}

# Which frames each end takes in which phase. Anything else is a violation.
ACCEPTS: Final[dict[tuple[Role, Phase], frozenset[str]]] = {
    (Role.DIALER, Phase.GREETING): frozenset({"welcome", "bye"}),
    (Role.DIALER, Phase.UP): frozenset({"open", "msg", "close", "part", "ack", "bye"}),
    (Role.ACCEPTER, Phase.GREETING): frozenset({"hello", "bye"}),
    (Role.ACCEPTER, Phase.UP): frozenset({"msg", "close", "part", "ack", "bye"}),
}


# The header of an ordinary answer, as this class writes it: nearly all that a relay reads. What is written in another
# way is read in full.
_NUMBER: Final = "(0|[1-9][0-9]{0,14})"
_ANSWER: Final = re.compile(
    rf'{{"t":"msg","s":{_NUMBER},"a":{_NUMBER},"c":"([0-9A-Za-z_-]+)","k":"res","i":{_NUMBER}}}', re.ASCII
)

# The grace is counted in so many ticks. A stall costs one of them at most.
GRACE_TICKS: Final = 8
# How often a dialer looks for frames that waited unread. More than once: a stall may last until the first time.
RECHECKS: Final = 2

# What is asked for with each message. In Python 3.11 a member of an enum is found by a function, each time anew.
_UP: Final = Phase.UP
_OVER: Final = Phase.OVER
_ACCEPTER: Final = Role.ACCEPTER


class Link(Generic[P]):
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
        # Text is what payloads are unless the shell says otherwise; the type checker can't see that P is str then.
        codec = codec if codec is not None else cast("Codec[P]", TextCodec())
        self._role = role
        self._greeting = greeting
        self._terms = terms
        self._limits = limits
        self._codec = codec
        self._sender = Sender(limits, codec, budget)
        self._receiver = Receiver(limits, codec, budget)
        self.phase = Phase.DOWN
        self.sid: str | None = terms.sid if terms else None
        self.epoch: str | None = terms.epoch if terms else None
        # How long the relay keeps a session without a socket: the worker learns it from the welcome.
        self.grace_s = limits.grace_s
        # How long the relay may be silent: derived from its heartbeat, which the welcome tells too.
        self._watchdog_s = limits.watchdog_s or watchdog_s(limits.heartbeat_s)
        self._refused_upto = 0  # the last frame of a socket that one of our frames ended
        self._events: list[Event] = []
        self._requests = RequestHeaderReader()
        self._timers: dict[str, float] = {}
        self._grace_left = self._rechecks_left = 0

    @classmethod
    def dialer(
        cls,
        greeting: Greeting,
        limits: Limits = DEFAULTS,
        codec: Codec[P] | None = None,
        budget: MemoryBudget | None = None,
    ) -> Link[P]:
        """The worker's end: it greets and may ask to resume."""
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
        """How many frames the other end has not confirmed yet."""
        return self._sender.unacknowledged

    def unacknowledged_messages(self) -> list[tuple[str, Kind, P]]:
        """Messages that nobody answers, and that the other end has not confirmed, by their channels: whoever goes on in
        the place of this link may say them again."""
        frames = [(json.loads(header), payload) for header, payload in self._sender.unacknowledged_frames()]
        return [(head["c"], Kind(head["k"]), payload) for head, payload in frames if head.get("k") in ("note", "res")]

    # -- sockets ------------------------------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """A socket opened. The dialer greets at once; the accepter waits for the greeting."""
        self._transition("connected")
        self._sender.outbox.clear()
        self._timers.clear()
        self._timers["greeting"] = now + self._limits.greeting_s
        if self._greeting is not None:
            self._send_unnumbered(frames.hello_header(self._greeting, self.sid, self._receiver.rx))

    def disconnected(self, now: float) -> None:
        """The socket is gone, however it went. What was not acknowledged stays for the next one."""
        if (self.phase, "disconnected") not in TRANSITIONS:
            return
        self._transition("disconnected")
        self._sender.outbox.clear()
        self._timers.clear()
        if self._role is Role.ACCEPTER:
            self._grace_left = GRACE_TICKS
            self._timers["grace"] = now + self._limits.grace_s / GRACE_TICKS

    def refused(self) -> None:
        """L16: the other end closes this socket because of a frame (1009, 4400). Call it before `disconnected`. If the
        session is resumed, the first frame that the other end lacks is the one, and is not sent again."""
        if self.phase is _UP:
            self._refused_upto = self._sender.last

    def end(self) -> None:
        """Give up the session now, with what it kept."""
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
        *,
        id: RequestId | None = None,
        related: RequestId | None = None,
        caller: Caller | None = None,
        again: bool = False,
    ) -> None:
        """Send one message. With `caller`, the channel is opened for this one request and ends with its response.

        `again`: this request was sent in an earlier session too, and may have arrived then.
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
            tail += ',"d":1'
        self._push("msg", channel, tail, payload, now)

    def check(self, payload: P) -> None:
        """For what waits before it is sent: raises MessageTooLarge as `send` will."""
        self._sender.check(self._codec.size(payload))

    def reply(self, channel: str, id: RequestId, payload: P, now: float) -> str | None:
        """Say an ordinary answer for a shell that writes it at once: the header to write with it. None, and nothing was
        done, where anything else has to be written before it, and for what has to wait: that is for `send`."""
        receiver = self._receiver
        if self.phase is not _UP or receiver.ack != receiver.rx:
            return None
        header = self._sender.push_now("msg", _answer_tail(channel, id), payload, receiver.ack)
        if header is not None:
            self._ack_sent(now)
        return header

    def close(self, channel: str, why: str, now: float) -> None:
        """Say that a channel ends: the caller left, or the session did."""
        self._push("close", channel, f'"c":"{channel}","why":{json.dumps(why[: frames.MAX_WHY])}', None, now)

    def bye(self, code: int, reason: str, now: float, retry_ms: int | None = None) -> None:
        """Say goodbye on this socket, before the shell closes it with the same code."""
        fields: dict[str, Any] = {"t": "bye", "code": code, "reason": reason[: frames.MAX_WHY]}
        if retry_ms is not None:
            fields["retry_ms"] = retry_ms
        self._send_unnumbered(frames.encode(**fields))

    def _push(self, kind: str, channel: str, tail: str, payload: P | None, now: float) -> None:
        phase, sender = self.phase, self._sender
        if phase is _OVER:
            raise LocalProtocolError("the session is over")
        is_live, before = phase is _UP, sender.last
        sender.push(kind, channel, tail, payload, ack=self._receiver.ack, is_live=is_live)
        if is_live and sender.last > before:
            self._ack_sent(now)

    def _send_unnumbered(self, header: str) -> None:
        """A frame without a number: it belongs to this socket and is never said again."""
        self._sender.outbox.append((header, None))

    # -- receiving ----------------------------------------------------------------------------------------------------

    def receive(self, header: str, payload: P | None, now: float) -> None:
        """Take one frame from the current socket. A broken one becomes a Violation event, never an exception."""
        rx = self._receiver.rx
        try:
            self._handle_frame(frames.decode(header), payload, len(header), now)
        except RemoteProtocolError as error:
            self._receiver.roll_back(rx)
            self._events.append(Violation(str(error), isinstance(error, TooMuch)))

    def answer(self, header: str, payload: P, now: float) -> tuple[str, int] | None:
        """Take an ordinary answer, which is nearly all that a relay hears: the channel and id that it is for, at once
        instead of as an event. None, and nothing was done, for everything else, and for what is not in order: that is
        `receive`'s."""
        found = _ANSWER.fullmatch(header) if self.phase is _UP else None
        if found is None:
            return None
        seq, ack, channel, id = found.groups()
        sender, receiver, upto = self._sender, self._receiver, int(ack)
        if int(seq) != receiver.rx + 1 or upto > sender.last or self._events:
            return None
        sender.confirm(upto)
        if receiver.take_next(len(header) + self._codec.size(payload)):
            self._send_ack(now)
        elif "ack" not in self._timers:
            self._start_ack_timer(now)
        return channel, int(id)

    def request(self, header: str, payload: P, now: float) -> Received[P] | None:
        """The same for what a worker hears most: a request."""
        try:
            opening = self._requests.read(header) if self.phase is _UP else None
        except RemoteProtocolError:
            return None
        if opening is None:
            return None
        seq, upto, channel, id, caller = opening
        if not self.expects(seq, upto):
            return None
        self.take_next(upto, len(header) + self._codec.size(payload), now)
        return Received(channel, Kind.REQ, id, None, payload, caller)

    def expects(self, seq: int, upto: int) -> bool:
        """Is a frame with these numbers the one that has to come next, and is there nothing to do before it?"""
        is_next = seq == self._receiver.rx + 1 and upto <= self._sender.last
        return is_next and self.phase is _UP and not self._events

    def take_next(self, upto: int, size: int, now: float) -> None:
        """Count a request that was expected. `size`: of its header and payload."""
        self._timers["watchdog"] = now + self._watchdog_s
        self._sender.confirm(upto)
        if self._receiver.take_next(size):
            self._send_ack(now)
        elif "ack" not in self._timers:
            self._start_ack_timer(now)

    def record(
        self, count: int, size: int, upto: int, acked: int, answers: Iterable[tuple[str, RequestId, P]], now: float
    ) -> bool:
        """Count what a shell did by itself after `next_seq`: `count` requests came, in order, of that size
        together, the last of which acknowledged `upto`; and these answers were written, in order, the last of which
        acknowledged `acked` (0: there is none). False: it acknowledged more than was said."""
        sender, receiver, timers = self._sender, self._receiver, self._timers
        is_due = receiver.record(count, size, acked)
        for channel, id, payload in answers:
            sender.keep("msg", _answer_tail(channel, id), payload, receiver.ack)
        # defence: calls that JavaScript carries out: more than was said
        if upto > sender.last:
            return False
        sender.confirm(upto)
        if count:
            timers["watchdog"] = now + self._watchdog_s
        if is_due:
            self._send_ack(now)
        elif not receiver.has_unacked:
            timers.pop("ack", None)
        elif "ack" not in timers:
            self._start_ack_timer(now)
        return True

    @property
    def last_received(self) -> int:
        """The number of the last frame that came."""
        return self._receiver.rx

    def next_seq(self, frames: int, size: int) -> int:
        """The number that an ordinary answer will have which is said next, for a shell that writes some by itself: so
        many at the most, of that size together, before it calls `record`. 0: it may not."""
        receiver = self._receiver
        return self._sender.next_seq(frames, size) if self.phase is _UP and receiver.ack == receiver.rx else 0

    def _handle_frame(self, frame: dict[str, Any], payload: P | None, header_size: int, now: float) -> None:
        kind = frame["t"]
        if kind not in ACCEPTS.get((self._role, self.phase), ()):
            raise RemoteProtocolError(f"frame {kind} is not legal while {self.phase.value}")
        if self._role is Role.DIALER and self.phase is _UP:
            self._timers["watchdog"] = now + self._watchdog_s
        if "a" in frame:
            self._confirm(frame["a"])
        if "s" in frame and not self._receiver.take(frame["s"], header_size, payload):
            return
        if kind == "msg":
            self._handle_message(frame, payload)
        elif kind == "part":
            whole = self._receiver.assemble(frame, payload)
            if whole is not None:
                self._handle_message(*whole)
        elif kind == "open":
            self._events.append(Opened(frame["c"], Caller.from_dict(frame["o"])))
        elif kind == "close":
            self._events.append(Closed(frame["c"], frame["why"][: frames.MAX_WHY]))
        elif kind == "bye":
            self._events.append(Parted(frame["code"], frame["reason"][: frames.MAX_WHY], frame.get("retry_ms")))
        elif kind == "hello":
            self._handle_hello(frame, now)
        elif kind == "welcome":
            self._handle_welcome(frame, now)
        if "s" in frame:
            self._schedule_ack(now, is_awaited=kind == "part")

    def _handle_message(self, frame: dict[str, Any], payload: P | None) -> None:
        if payload is None:
            raise RemoteProtocolError("frame msg has no payload")
        try:
            kind = Kind(frame["k"])
        except ValueError:
            raise RemoteProtocolError(f"frame msg: unknown kind {ascii(frame['k'])[:40]}") from None
        caller = Caller.from_dict(frame["o"]) if "o" in frame else None
        id, related = frames.request_id(frame, "i"), frames.request_id(frame, "r")
        self._events.append(Received(frame["c"], kind, id, related, payload, caller, frame.get("d") == 1))

    def _confirm(self, upto: int) -> None:
        if upto > self._sender.last:
            raise RemoteProtocolError(f"acknowledged {upto}, but only {self._sender.last} were sent")
        self._sender.confirm(upto)

    def _replace_refused(self, resumed: bool) -> None:
        suspect, self._refused_upto = self._refused_upto, 0
        head = self._sender.drop_first(suspect, self._receiver.ack) if suspect and resumed else None
        if head is not None:
            kind = Kind(head["k"]) if "k" in head else None
            self._events.append(Undeliverable(head.get("c", ""), kind, head.get("i")))

    def _handle_hello(self, frame: dict[str, Any], now: float) -> None:
        assert self._terms is not None
        low, high = (frame["v"] + [0, 0])[:2]
        if not (isinstance(low, int) and isinstance(high, int) and low <= frames.VERSION <= high):
            raise RemoteProtocolError(f"this relay speaks link version {frames.VERSION} only")
        resumed = frame.get("sid") == self._terms.sid
        if resumed:
            self._confirm(frame["rx"])
        self._replace_refused(resumed)
        self._send_unnumbered(frames.welcome_header(self._terms, resumed, self._receiver.rx))
        self._greeted(resumed, self._terms.epoch, frame["build"], now)

    def _handle_welcome(self, frame: dict[str, Any], now: float) -> None:
        if frame["resumed"]:
            if frame["sid"] != self.sid:
                raise RemoteProtocolError("welcome resumes a session that is not ours")
            self._confirm(frame["rx"])
        else:
            # The relay does not know our session: whoever waited for these frames is gone.
            self._sender.reset()
            self._receiver.reset()
        self._replace_refused(frame["resumed"])
        self.sid, self.epoch, self.grace_s = frame["sid"], frame["epoch"], frame["grace_ms"] / 1000
        # defence: half-open: the worker knows the heartbeat of its relay
        if not self._limits.watchdog_s and frame.get("beat_ms"):
            self._watchdog_s = watchdog_s(frame["beat_ms"] / 1000)
        self._sender.max_message = min(self._limits.max_message, frame["max_msg"])
        self._receiver.max_message = frame["max_msg"]
        more = frame.get("static", False), frame.get("approve", "page"), frame.get("key", "")
        self._greeted(frame["resumed"], frame["epoch"], frame["build"], now, *more)

    def _greeted(self, resumed: bool, epoch: str, build: str, now: float, *more: Any) -> None:
        self._transition("greeted")
        self._timers.clear()
        self._sender.replay()
        self._receiver.advance()
        self._ack_sent(now)
        if self._role is Role.DIALER:
            self._timers["watchdog"] = now + self._watchdog_s
        self._events.append(Welcomed(resumed, epoch, build, *more))

    # -- acknowledging and timers -------------------------------------------------------------------------------------

    def _schedule_ack(self, now: float, *, is_awaited: bool) -> None:
        """`is_awaited`: the other end sends its next slice only when it hears of this one."""
        receiver = self._receiver
        if receiver.must_ack or (is_awaited and receiver.advance()):
            self._send_ack(now)
        elif "ack" not in self._timers and receiver.has_unacked:
            held = not receiver.advance()
            self._timers["ack"] = now + (self._limits.hold_s if held else self._limits.ack_after_s)

    def _start_ack_timer(self, now: float) -> None:
        held = self._receiver.ack != self._receiver.rx
        self._timers["ack"] = now + (self._limits.hold_s if held else self._limits.ack_after_s)

    def _send_ack(self, now: float) -> None:
        self._receiver.advance()
        outbox = self._sender.outbox
        if outbox and outbox[-1][0].startswith('{"t":"ack"'):
            outbox.pop()  # this one says as much, and more
        self._send_unnumbered(f'{{"t":"ack","a":{self._receiver.ack}}}')
        self._ack_sent(now)

    def _ack_sent(self, now: float) -> None:
        """A frame with the current `a` went out: no ack is owed, and the other end has heard from us."""
        timers = self._timers
        if self._receiver.ack_sent():
            timers["ack"] = now + self._limits.hold_s
        else:
            timers.pop("ack", None)
        if self._role is _ACCEPTER:
            timers["heartbeat"] = now + self._limits.heartbeat_s

    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called next; None while nothing is due."""
        return min(self._timers.values(), default=None)

    def handle_timer(self, now: float) -> None:
        """Handle every timer that is due. After a stall several are due at once, late and in any order: one of them may
        end or move another, so each is looked up again before it is handled."""
        timers = self._timers
        for name in [name for name, due in timers.items() if due <= now]:
            due = timers.get(name)
            # defence: stalls: a timer that another one has ended is not handled
            if due is None or due > now:
                continue
            del timers[name]
            if name == "ack":
                self._ack_due(now)
            elif name == "heartbeat":
                self._send_ack(now)
            elif name == "grace":
                self._grace_due(due, now)
            elif name == "recheck":
                self._recheck_due(now)
            else:  # watchdog or greeting
                # defence: stalls: frames that waited unread are read before the socket is given up
                self._rechecks_left = RECHECKS
                timers["recheck"] = now + self._limits.watchdog_yield_s / RECHECKS

    def _recheck_due(self, now: float) -> None:
        """L9: after a stall, frames wait unread. They are read before the socket is given up."""
        self._rechecks_left -= 1
        if "watchdog" in self._timers:
            return
        if self._rechecks_left > 0:
            self._timers["recheck"] = now + self._limits.watchdog_yield_s / RECHECKS
        else:
            self._events.append(Silence("a greeting" if self.phase is Phase.GREETING else "a sign of life"))

    def _grace_due(self, due: float, now: float) -> None:
        """L7: grace counts the time in which this process ran: a greeting may have waited unread through a stall. After
        the last tick there is one more look, for a stall that began within that tick."""
        tick_s, is_late = self._limits.grace_s / GRACE_TICKS, now - due > self._limits.late_s
        # defence: stalls: the time in which a relay stalled is no part of a session's grace
        if not is_late:
            self._grace_left -= 1
        if self._grace_left > 0:
            self._timers["grace"] = (now if is_late else due) + tick_s
        elif self._grace_left == 0:
            self._timers["grace"] = now + min(tick_s, self._limits.watchdog_yield_s / RECHECKS)
        else:
            self._expire()
            self._events.append(Expired())

    def _ack_due(self, now: float) -> None:
        if self._receiver.advance():
            self._send_ack(now)
        else:
            self._timers["ack"] = now + self._limits.hold_s

    # -- draining -----------------------------------------------------------------------------------------------------

    @property
    def has_frames(self) -> bool:
        sender = self._sender
        return bool(sender.outbox) or sender.is_sliced

    def frames(self) -> list[tuple[str, P | None]]:
        """What to write on the current socket, in order."""
        sender = self._sender
        if self.phase is _UP and sender.is_sliced:
            sender.fill(self._receiver.ack)
        drained, sender.outbox = sender.outbox, []
        return drained

    @property
    def has_events(self) -> bool:
        return bool(self._events)

    def events(self) -> list[Event]:
        """What happened since the last call, in order."""
        drained, self._events = self._events, []
        return drained

    def _expire(self) -> None:
        self._transition("expired")
        self._timers.clear()
        self._sender.reset()
        self._receiver.reset()

    def _transition(self, what: str) -> None:
        try:
            self.phase = TRANSITIONS[self.phase, what]
        except KeyError:
            raise LocalProtocolError(f"{what} is not possible while {self.phase.value}") from None


def _answer_tail(channel: str, id: RequestId) -> str:
    """The header of an answer, after `s` and `a`."""
    return f'"c":"{channel}","k":"res","i":{id if type(id) is int else json.dumps(id)}'
