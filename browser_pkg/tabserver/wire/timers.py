"""Acknowledgements and timers of a link: ack, heartbeat, watchdog, greeting and grace.

Time is an argument and may jump: any number of timers may be due in one call. Each timer has a name and one due time;
setting it again moves it. There is no clock and no event loop here: a shell calls `handle_timer` at `next_timer`.
"""

from __future__ import annotations

from typing import Final, Generic, TypeVar

from .codec import Codec
from .errors import LocalProtocolError
from .events import Event, Expired, Silence
from .limits import Limits, watchdog_s
from .memory_budget import MemoryBudget
from .receiver import Receiver
from .sender import Sender
from .states import TRANSITIONS, Phase, Role

P = TypeVar("P")

# The grace is counted in this many ticks. A stall costs one of them at most.
GRACE_TICKS: Final = 8
# How often a dialer checks for unread frames before it gives its socket up. A stall may last until the first check.
RECHECKS: Final = 2

# Read for each message. In Python 3.11 the lookup of an enum member calls a function each time.
_ACCEPTER: Final = Role.ACCEPTER


class LinkTimers(Generic[P]):
    """State and timers that both ends of a link have. The rest of the link is in its subclasses."""

    def __init__(self, role: Role, limits: Limits, codec: Codec[P], budget: MemoryBudget | None) -> None:
        self._role = role
        self._limits = limits
        self._codec = codec
        self._sender = Sender(limits, codec, budget)
        self._receiver = Receiver(limits, codec, budget)
        self.phase = Phase.DOWN
        # How long the relay may be silent. Derived from its heartbeat, which the welcome contains.
        self._watchdog_s = limits.watchdog_s or watchdog_s(limits.heartbeat_s)
        self._events: list[Event] = []
        self._timers: dict[str, float] = {}
        self._grace_left = self._rechecks_left = 0

    def next_timer(self) -> float | None:
        """When to call `handle_timer` next; None while no timer is set."""
        return min(self._timers.values(), default=None)

    def handle_timer(self, now: float) -> None:
        """Handle every timer that is due."""
        timers = self._timers
        # L14: after a stall several timers are due at once, late and in any order. One of them may end or move another,
        # so each is looked up again before it is handled.
        for name in [name for name, due in timers.items() if due <= now]:
            due = timers.get(name)
            # defence: stalls: a timer that another one has ended is not handled
            if due is None or due > now:
                continue
            del timers[name]
            if name == "ack":
                self._ack_due(now)
            elif name == "heartbeat":
                # L9: a page's script can't see WebSocket pings, so the relay sends an `ack` after silence.
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
            self._events.append(Silence("a greeting" if self.phase is Phase.GREETING else "a frame"))

    def _grace_due(self, due: float, now: float) -> None:
        """L7: the grace counts the time in which this process ran, as a greeting may have waited unread through a
        stall. After the last tick there is one more wait, for a stall that began within that tick."""
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

    def _expire(self) -> None:
        self._transition("expired")
        self._timers.clear()
        self._sender.reset()
        self._receiver.reset()

    # -- acknowledgements ---------------------------------------------------------------------------------------------

    def _schedule_ack(self, now: float, *, is_awaited: bool) -> None:
        """`is_awaited`: the other end sends its next slice only after this acknowledgement."""
        receiver = self._receiver
        # L2: at once after 16 messages or 64 KiB, else after 1 s. F4: a slice is acknowledged at once.
        if receiver.must_ack or (is_awaited and receiver.advance()):
            self._send_ack(now)
        elif "ack" not in self._timers and receiver.has_unacked:
            held = not receiver.advance()
            self._timers["ack"] = now + (self._limits.hold_s if held else self._limits.ack_after_s)

    def _ack_due(self, now: float) -> None:
        # L4: while memory is short, the acknowledgement is held back.
        if self._receiver.advance():
            self._send_ack(now)
        else:
            self._timers["ack"] = now + self._limits.hold_s

    def _send_ack(self, now: float) -> None:
        self._receiver.advance()
        outbox = self._sender.outbox
        # F4: slices that arrive together are acknowledged with one `ack`, which includes the one before.
        # F7: not one that carries a stamp.
        if outbox and outbox[-1][0].startswith('{"t":"ack","a"'):
            outbox.pop()
        self._send_unnumbered(f'{{"t":"ack","a":{self._receiver.ack}}}')
        self._ack_sent(now)

    def _ack_sent(self, now: float) -> None:
        """A frame with the current `a` was sent: no `ack` is due, and the heartbeat starts over."""
        timers = self._timers
        if self._receiver.ack_sent():
            timers["ack"] = now + self._limits.hold_s
        else:
            timers.pop("ack", None)
        if self._role is _ACCEPTER:
            timers["heartbeat"] = now + self._limits.heartbeat_s

    def _send_unnumbered(self, header: str) -> None:
        """Send a frame without `s`: it belongs to this socket and is never replayed."""
        self._sender.outbox.append((header, None))

    def _transition(self, what: str) -> None:
        try:
            self.phase = TRANSITIONS[self.phase, what]
        except KeyError:
            raise LocalProtocolError(f"{what} is not possible while {self.phase.value}") from None
