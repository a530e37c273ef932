"""Fast paths of the link: usual requests and responses, handled without parsing JSON and without events.

Invariant: a shortcut leaves the link in the state that `send` and `receive` would leave it in, or it changes nothing
and returns None, 0 or False. Then the caller uses `send` or `receive`. Everything unusual belongs to those two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Final, TypeVar

from . import frames
from .codec import Codec
from .errors import RemoteProtocolError
from .events import Received
from .frames import Caller, Kind
from .jsonrpc import RequestId
from .limits import Limits
from .memory_budget import MemoryBudget
from .states import Phase, Role
from .timers import LinkTimers

P = TypeVar("P")

# The header of a usual response as `Link.send` writes it: nearly all frames that a relay receives. A header that is
# written differently is parsed.
_NUMBER: Final = "(0|[1-9][0-9]{0,14})"
_ANSWER: Final = re.compile(
    rf'{{"t":"msg","s":{_NUMBER},"a":{_NUMBER},"c":"([0-9A-Za-z_-]+)","k":"res","i":{_NUMBER}}}', re.ASCII
)

# The header of a usual request as `Link.send` writes it, up to the caller: number, acknowledgement, channel, and an id,
# which is a number or a string without escapes. Bounds as in L16.
_REQUEST: Final = re.compile(
    r'\{"t":"msg","s":(0|[1-9][0-9]{0,14}),"a":(0|[1-9][0-9]{0,14}),"c":"([ !#-\[\]-~]{0,256})","k":"req",'
    r'"i":(?:(0|[1-9][0-9]{0,14})|"([ !#-\[\]-~]{0,1024})")(?:(,"o":)|\}\Z)'
)
_MEMBERS: Final = frozenset("tsackio")

# Number, acknowledgement, channel, id, and the caller if it opens its channel.
RequestHeader = tuple[int, int, str, RequestId, Caller | None]

# Read for each message: see timers.py.
_UP: Final = Phase.UP


class RequestHeaderReader:
    """Reads request headers without parsing JSON, and caches the last caller.

    A request that opens its channel describes its caller at the end of the header. If that text equals the one of the
    last request, the caller is the same and is not parsed again. A request of a session ends with its id, because its
    channel is already open. The result equals that of `frames.decode`; a header that is written differently is left to
    that function.
    """

    def __init__(self) -> None:
        self._last: tuple[str, Caller | None] = "", None

    def read(self, header: str) -> RequestHeader | None:
        """None: the header is not a usual request. Raises RemoteProtocolError."""
        beginning = _REQUEST.match(header)
        if beginning is None:
            return None
        seq, ack, channel, number, text, opens = beginning.groups()
        end = header[beginning.end() :]
        known, caller = self._last
        if opens is None:
            caller = None
        elif caller is None or end != known:
            frame = frames.decode(header)
            if frame.keys() != _MEMBERS:
                return None
            caller = Caller.from_dict(frame["o"])
            self._last = end, caller
        return int(seq), int(ack), channel, text if number is None else int(number), caller


class LinkShortcuts(LinkTimers[P]):
    """The shortcuts of both roles: `request` and the methods for granted calls for a worker, `answer` for a relay."""

    def __init__(self, role: Role, limits: Limits, codec: Codec[P], budget: MemoryBudget | None) -> None:
        super().__init__(role, limits, codec, budget)
        self._requests = RequestHeaderReader()

    def answer(self, header: str, payload: P, now: float) -> tuple[str, int] | None:
        """Receive a usual response: returns its channel and id instead of an event. None: it is another frame, or not
        the next one."""
        found = _ANSWER.fullmatch(header) if self.phase is _UP else None
        if found is None:
            return None
        seq, ack, channel, id = found.groups()
        sender, receiver, upto = self._sender, self._receiver, int(ack)
        if int(seq) != receiver.rx + 1 or upto > sender.last or self._events:
            return None
        sender.confirm(upto)
        self._acknowledge(receiver.take_next(len(header) + self._codec.size(payload)), now)
        return channel, int(id)

    def request(self, header: str, payload: P, now: float) -> Received[P] | None:
        """Receive a request, which is nearly every frame that a worker receives. None as in `answer`."""
        try:
            opening = self._requests.read(header) if self.phase is _UP else None
        except RemoteProtocolError:
            return None
        if opening is None:
            return None
        seq, upto, channel, id, caller = opening
        sender, receiver, timers = self._sender, self._receiver, self._timers
        if seq != receiver.rx + 1 or upto > sender.last or self._events:
            return None
        timers["watchdog"] = now + self._watchdog_s
        sender.confirm(upto)
        self._acknowledge(receiver.take_next(len(header) + self._codec.size(payload)), now)
        return Received(channel, Kind.REQ, id, None, payload, caller)

    def _acknowledge(self, is_due: bool, now: float) -> None:
        """L2: acknowledge a frame now, or with the next frame, or soon."""
        if is_due:
            self._send_ack(now)
        elif "ack" not in self._timers:
            held = self._receiver.ack != self._receiver.rx
            self._timers["ack"] = now + (self._limits.hold_s if held else self._limits.ack_after_s)

    # -- calls that the shell handles by itself -----------------------------------------------------------------------

    @property
    def last_received(self) -> int:
        """The number of the last frame received."""
        return self._receiver.rx

    def next_seq(self, frames: int, size: int) -> int:
        """The number of the next usual response, for a shell that writes some by itself: at most `frames`, of `size`
        together, before it calls `record`. 0: it may not."""
        receiver = self._receiver
        return self._sender.next_seq(frames, size) if self.phase is _UP and receiver.ack == receiver.rx else 0

    def record(
        self, count: int, size: int, upto: int, acked: int, answers: Iterable[tuple[str, RequestId, P]], now: float
    ) -> bool:
        """Record what a shell did by itself after `next_seq`: it received `count` requests, in order, of `size`
        together, the last of which acknowledged `upto`; and it wrote these responses, in order, the last of which
        acknowledged `acked` (0: there is none). False: `upto` is more than was sent."""
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
        if is_due or receiver.has_unacked:
            self._acknowledge(is_due, now)
        else:
            timers.pop("ack", None)
        return True


def _answer_tail(channel: str, id: RequestId) -> str:
    """The header of a response, after `s` and `a`."""
    return f'"c":"{channel}","k":"res","i":{id if type(id) is int else json.dumps(id)}'
