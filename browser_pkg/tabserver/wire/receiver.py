"""Receiving half of a link: duplicate detection, reassembly of slices, and the number to acknowledge.

Each frame is taken once and in order. While the memory budget is exhausted, frames are still read, and only their
acknowledgement is held back (L4). When an `ack` is sent is decided in `timers`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from . import frames
from .codec import Codec, Gathering
from .errors import RemoteProtocolError, TooMuch
from .limits import Limits
from .memory_budget import MemoryBudget

P = TypeVar("P")


@dataclass(slots=True)
class _Partial(Generic[P]):
    """A large frame of which some slices were received."""

    frame: dict[str, Any]
    count: int
    slices: Gathering[P]
    received: int = 0
    size: int = 0


class Receiver(Generic[P]):
    """`rx`: the last number received. `ack`: the last that may be acknowledged. They differ while memory is short."""

    def __init__(self, limits: Limits, codec: Codec[P], budget: MemoryBudget | None) -> None:
        self._limits = limits
        self._codec = codec
        self._budget = budget
        self.max_message = limits.max_message
        self.rx = 0
        self.ack = 0
        self._acked = 0
        self._bytes = 0
        self._partial: dict[int, _Partial[P]] = {}

    def take(self, seq: int, header_size: int, payload: P | None) -> bool:
        """Is this frame new? A gap is an error of the other end: frames of one socket can't overtake each other."""
        # L1: `s <= rx` is dropped, `s = rx + 1` is taken, a gap is a violation.
        if seq <= self.rx:
            return False
        if seq != self.rx + 1:
            raise RemoteProtocolError(f"frame {seq} after {self.rx}: the frames between them are missing")
        self.rx = seq
        self._bytes += header_size + (self._codec.size(payload) if payload is not None else 0)
        self.advance()
        return True

    def roll_back(self, rx: int) -> None:
        """L16: the frame after `rx` was refused and does not count as received."""
        self.rx = rx
        self.ack = min(self.ack, rx)

    def take_next(self, size: int) -> bool:
        """Count the next frame, which was received. Must it be acknowledged at once?"""
        self.rx += 1
        self._bytes += size
        if self._budget is None or self._budget.used < self._budget.limit:
            self.ack = self.rx
        unacked = self.ack - self._acked
        limits = self._limits
        return unacked > 0 and (unacked >= limits.ack_after_messages or self._bytes >= limits.ack_after_bytes)

    def record(self, count: int, size: int, acked: int) -> bool:
        """Count the next `count` frames, of `size` together. Frames that were sent meanwhile acknowledged `acked`. Must
        the others be acknowledged at once?"""
        self.rx += count
        self.advance()
        self._bytes += size
        if acked > self._acked:
            self._acked, self._bytes = acked, 0
        return self.must_ack

    def advance(self) -> bool:
        """Advance the acknowledgement to `rx`, unless memory is short. Returns whether it did."""
        # L4: without an acknowledgement, the other end pauses its large messages.
        if self._budget is None or not self._budget.is_exhausted:
            self.ack = self.rx
        return self.ack == self.rx

    @property
    def has_unacked(self) -> bool:
        """Is there a frame that was not acknowledged yet?"""
        return self.rx > self._acked

    @property
    def must_ack(self) -> bool:
        """L2: were enough frames or bytes received to acknowledge at once instead of with the next frame?"""
        unacked = self.ack - self._acked
        limits = self._limits
        return unacked > 0 and (unacked >= limits.ack_after_messages or self._bytes >= limits.ack_after_bytes)

    def ack_sent(self) -> bool:
        """A frame with the current `ack` was sent. Is a frame left whose acknowledgement is held back?"""
        self._acked = self.ack
        self._bytes = 0
        return self.rx > self.ack

    def assemble(self, part: dict[str, Any], payload: P | None) -> tuple[dict[str, Any], P] | None:
        """F4: add a slice; returns the whole frame with the last one. Slices of one frame arrive in order."""
        name, index, count = part["f"], part["q"], part["n"]
        if count == 0 and payload is None:  # L16: the other end abandons this message
            if name in self._partial:
                self._drop(name)
            return None
        if payload is None:
            raise RemoteProtocolError("frame part has no payload")
        partial = self._partial.get(name)
        if index == 0 and partial is None:
            partial = self._begin(part, name, count)
        if partial is None or index != partial.received or count != partial.count:
            raise RemoteProtocolError(f"slice {index} of {count} does not continue frame {name}")
        size, width = self._codec.weigh(payload)
        if partial.size + size > self.max_message:
            raise TooMuch(f"a message of more than {self.max_message:,} characters")
        # defence: unfinished messages of all links
        if self._budget is not None and self._budget.used + size * width > self._budget.hard_limit:
            raise TooMuch("more large messages at once than the memory budget allows")
        before = partial.slices.cost
        partial.slices.add(payload)
        partial.received += 1
        partial.size += size
        if self._budget is not None:
            self._budget.add(partial.slices.cost - before)
        if partial.received < count:
            return None
        self._drop(name)
        return partial.frame, partial.slices.whole()

    def _begin(self, part: dict[str, Any], name: int, count: int) -> _Partial[P]:
        # F4: at most 4 messages per direction are in slices at a time, and the first slice has `h`.
        if len(self._partial) >= self._limits.large_at_once:
            raise RemoteProtocolError(f"more than {self._limits.large_at_once} large frames at once")
        if count < 2:
            raise RemoteProtocolError("a message in slices has at least two")
        inner = part.get("h")
        if not isinstance(inner, dict) or inner.get("t") != "msg":
            raise RemoteProtocolError("the first slice does not describe a message")
        # `s` and `a` belong to the slices; only the other fields of the whole are used.
        frame = frames.check({**inner, "s": 0, "a": 0})
        partial = self._partial[name] = _Partial(frame, count, self._codec.gather())
        return partial

    def _drop(self, name: int) -> None:
        partial = self._partial.pop(name)
        if self._budget is not None:
            self._budget.release(partial.slices.cost)

    def reset(self) -> None:
        self.rx = self.ack = self._acked = self._bytes = 0
        for name in list(self._partial):
            self._drop(name)
