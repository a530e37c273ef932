"""Sending half of a link: sequence numbers, replay buffer, and slices of large frames.

A frame over the part size is sent as slices, each with its own sequence number, so that a large result does not delay
small ones (F4). Slices are sent only while few of them are unacknowledged, so the receiver sets the pace. Later frames
of the same channel wait behind a large one, because a channel's messages keep their order. Which frames are legal when
is decided in `link`.
"""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar, cast

from .codec import Codec
from .control_messages import DROPPED
from .errors import BufferFull, MessageTooLarge
from .frames import MAX_HEADER
from .jsonrpc import INTERNAL_ERROR, error_message
from .limits import Limits
from .memory_budget import MemoryBudget

P = TypeVar("P")

# Characters of a header after `s` and `a`; the rest of MAX_HEADER is for these and for the fields of a slice.
_MAX_TAIL: Final = MAX_HEADER - 1024
_DROPPED: Final = f'{{"jsonrpc":"2.0","method":"{DROPPED}"}}'


@dataclass(slots=True)
class _Waiting(Generic[P]):
    """A frame without a number: large and partly sent, or behind a large one of its channel. `size`: characters, with
    the header's tail. `width`: bytes of memory per character. `sent`: slices that were sent."""

    kind: str
    tail: str
    payload: P | None
    size: int
    width: int
    name: int
    slices: int
    sent: int = 0


# A frame that was sent and not acknowledged: its number, header and payload, its size in characters, its cost in bytes
# of memory, and, for a slice, the frame that it belongs to. A bare tuple, because there is one for each message.
_Kept = tuple[int, str, P | None, int, int, _Waiting[P] | None]


class Sender(Generic[P]):
    """`outbox`: frames that the shell writes next. Each numbered frame in it is also kept until it is acknowledged.
    `queues`: large frames that are being sent, and those behind them, by channel. An acknowledgement may make room for
    the next slice."""

    def __init__(self, limits: Limits, codec: Codec[P], budget: MemoryBudget | None) -> None:
        self._limits = limits
        self._codec = codec
        self._budget = budget
        self.max_message = limits.max_message
        self._max_part = limits.max_part
        self.last = 0
        self.outbox: list[tuple[str, P | None]] = []
        self._kept: deque[_Kept[P]] = deque()
        self.queues: dict[str, deque[_Waiting[P]]] = {}
        self._size = 0  # characters
        self._cost = 0  # bytes of memory
        self._parts = 0
        self._last_name = 0
        self._round = 0

    @property
    def unacknowledged(self) -> int:
        kept = len(self._kept)
        return kept + sum(map(len, self.queues.values())) if self.queues else kept

    def push(self, kind: str, channel: str, tail: str, payload: P | None, ack: int, is_live: bool) -> bool:
        """Number a frame and keep it; `tail` is its header after `s` and `a`. Raises BufferFull or MessageTooLarge.
        Returns whether the frame, and `ack` with it, is written next."""
        size, width = self._codec.weigh(payload) if payload is not None else (0, 1)
        if size > self.max_message:
            self.check(size)
        # L16: a sender does not send a header that the other end would refuse.
        # defence: the length of a header, in the sender
        if len(tail) > _MAX_TAIL:
            raise MessageTooLarge(f"a frame header of {len(tail):,} characters, at most {_MAX_TAIL:,}")
        limits, kept, queues, budget = self._limits, self._kept, self.queues, self._budget
        whole = size + len(tail)
        cost = whole * width
        count = self.unacknowledged if queues else len(kept)
        all_size = self._size + whole
        # L3: the replay buffer is bounded. A `close` always has room: it is small, each channel has one, and without it
        # a caller would wait until its deadline.
        # defence: stalls: a close has room where nothing else has
        if (count >= limits.replay_messages or all_size > limits.replay_bytes) and kind != "close":
            raise BufferFull(f"{count} frames, {self._size:,} characters wait to be acknowledged")
        if budget is not None and not budget.reserve(cost):
            if kind != "close":
                raise BufferFull("unacknowledged frames of all links exceed the memory budget")
            budget.add(cost)
        self._size = all_size
        self._cost += cost
        is_large = size > self._max_part
        if not is_large and (not queues or channel not in queues):  # nearly all frames: `_send`, inlined
            self.last = seq = self.last + 1
            header = f'{{"t":"{kind}","s":{seq},"a":{ack},{tail}}}'
            kept.append((seq, header, payload, whole, cost, None))
            if is_live:
                self.outbox.append((header, payload))
            return is_live
        # F4: a large frame is sent in slices, and later frames of its channel wait behind it.
        self._last_name += 1
        slices = -(-size // self._max_part) if is_large else 1
        waiting = _Waiting(kind, tail, payload, whole, width, self._last_name, slices)
        queues.setdefault(channel, deque()).append(waiting)
        return False

    def check(self, size: int) -> None:
        """Can a message of this size ever be sent? Raises MessageTooLarge."""
        if size > self.max_message:
            raise MessageTooLarge(f"a message of {size:,} characters, at most {self.max_message:,}")

    def keep(self, kind: str, tail: str, payload: P, ack: int) -> None:
        """Keep a small frame that was already written under the number that `next_seq` returned."""
        size, width = self._codec.weigh(payload)
        whole = size + len(tail)
        cost = whole * width
        if self._budget is not None:
            self._budget.add(cost)
        self._size += whole
        self._cost += cost
        self._send(kind, tail, payload, whole, cost, ack, False, None)

    def next_seq(self, frames: int, size: int) -> int:
        """The number of the next frame, if `frames` small ones, of `size` together, can be kept. 0: they can't."""
        limits = self._limits
        if self.outbox or self.queues or self._max_part > self.max_message:
            return 0
        has_room = len(self._kept) + frames <= limits.replay_messages and self._size + size <= limits.replay_bytes
        # defence: calls that JavaScript carries out: room to keep answers
        return self.last + 1 if has_room else 0

    def fill(self, ack: int) -> None:
        """F4: send slices until as many are unacknowledged as allowed, one slice of each large frame in turn."""
        while self.queues and self._parts < self._limits.parts_in_flight:
            self._round += 1
            channels = list(islice(self.queues, self._limits.large_at_once))
            channel = channels[self._round % len(channels)]
            queue = self.queues[channel]
            if queue[0].slices == 1:
                small = queue.popleft()
                cost = small.size * small.width
                self._send(small.kind, small.tail, small.payload, small.size, cost, ack, True, None)
            else:
                self._send_slice(queue, ack)
            if not queue:
                del self.queues[channel]

    def _send_slice(self, queue: deque[_Waiting[P]], ack: int) -> None:
        large = queue[0]
        assert large.payload is not None
        step = self._max_part
        payload = self._codec.cut(large.payload, large.sent * step, (large.sent + 1) * step)
        tail = f'"f":{large.name},"q":{large.sent},"n":{large.slices}'
        size = self._codec.size(payload)
        if large.sent == 0:
            # F4: the first slice describes the whole in `h`. Its cost was reserved with the frame.
            tail += f',"h":{{"t":"{large.kind}",{large.tail}}}'
            size += len(large.tail)
        large.sent += 1
        if large.sent == large.slices:
            queue.popleft()
        self._send("part", tail, payload, size, size * large.width, ack, True, large)

    def _send(
        self,
        kind: str,
        tail: str,
        payload: P | None,
        size: int,
        cost: int,
        ack: int,
        is_live: bool,
        large: _Waiting[P] | None,
    ) -> str:
        self.last = seq = self.last + 1
        header = f'{{"t":"{kind}","s":{seq},"a":{ack},{tail}}}'
        self._kept.append((seq, header, payload, size, cost, large))
        self._parts += large is not None
        if is_live:
            self.outbox.append((header, payload))
        return header

    def confirm(self, upto: int) -> None:
        """The other end has received every frame up to this number."""
        kept = self._kept
        all_size = all_cost = 0
        while kept and kept[0][0] <= upto:
            _, _, _, size, cost, large = kept.popleft()
            self._parts -= large is not None
            all_size += size
            all_cost += cost
        if all_size:  # `_release`, inlined
            self._size -= all_size
            self._cost -= all_cost
            if self._budget is not None:
                self._budget.used -= all_cost

    def replay(self) -> None:
        """L3: on a new socket, send the unacknowledged frames again, in order, under the same numbers."""
        self.outbox.extend((header, payload) for _, header, payload, *_ in self._kept)

    # -- a frame that the other end refuses ---------------------------------------------------------------------------

    def drop_first(self, upto: int, ack: int) -> dict[str, Any] | None:
        """L16: replace the first unacknowledged frame, if its number is not above `upto`: the other end closed a socket
        because of it. The number stays, so that there is no gap. A response becomes an error response, every other
        frame an empty notification. Returns the header of the replaced frame."""
        kept = self._kept
        if not kept or kept[0][0] > upto:
            return None
        seq, header, _, size, cost, large = kept[0]
        if large is not None:
            return self._drop_large(large, ack)
        head: dict[str, Any] = json.loads(header)
        kept[0] = self._replacement(seq, head, ack)
        self._release(size, cost)
        return head

    def _drop_large(self, large: _Waiting[P], ack: int) -> dict[str, Any]:
        """L16: a `part` with `n` = 0 replaces each kept slice, and the rest is never sent. The other end discards the
        slices that it has, and then receives the replacement."""
        head: dict[str, Any] = json.loads(f'{{"t":"{large.kind}",{large.tail}}}')
        for index, (seq, _, _, size, cost, of) in enumerate(self._kept):
            if of is large:
                gone = f'{{"t":"part","s":{seq},"a":{ack},"f":{large.name},"q":0,"n":0}}'
                self._kept[index] = (seq, gone, None, 0, 0, None)
                self._release(size, cost)
                self._parts -= 1
        queue = self.queues.get(head["c"])
        if queue and queue[0] is large:
            # Slices that were acknowledged before are not counted any more; those replaced above were released there.
            said = min(large.sent * self._max_part, large.size - len(large.tail)) + len(large.tail)
            self._release(large.size - said, (large.size - said) * large.width)
            queue.popleft()
            if not queue:
                del self.queues[head["c"]]
        self.last += 1
        self._kept.append(self._replacement(self.last, head, ack))
        return head

    def _replacement(self, seq: int, head: dict[str, Any], ack: int) -> _Kept[P]:
        about, text = '"c":"","k":"note"', _DROPPED
        if head.get("k") == "res" and "i" in head:
            about = f'"c":{json.dumps(head["c"])},"k":"res","i":{json.dumps(head["i"])}'
            data = {"reason": "bad_answer", "delivered": "unknown", "retryable": False}
            reason = "The response could not be delivered: the relay closed the connection when it received it."
            text = json.dumps(error_message(head["i"], INTERNAL_ERROR, reason, data))
        whole = len(about) + len(text)
        self._size += whole
        self._cost += whole
        if self._budget is not None:
            self._budget.add(whole)
        header = f'{{"t":"msg","s":{seq},"a":{ack},{about}}}'
        return seq, header, cast("P", text), whole, whole, None

    def unacknowledged_frames(self) -> list[tuple[str, P]]:
        """Headers and payloads of whole frames that were not acknowledged. A large frame that was sent completely is
        left out: only its slices remain, which no other link can use."""
        frames = [(header, payload) for _, header, payload, _, _, large in self._kept if large is None]
        frames += [(f'{{"t":"{one.kind}",{one.tail}}}', one.payload) for queue in self.queues.values() for one in queue]
        return [(header, payload) for header, payload in frames if payload is not None]

    def reset(self) -> None:
        """Start a new session: the receivers of the kept frames are gone."""
        self._release(self._size, self._cost)
        self.last = self._parts = 0
        self._kept.clear()
        self.queues.clear()
        self.outbox.clear()

    def _release(self, size: int, cost: int) -> None:
        self._size -= size
        self._cost -= cost
        if self._budget is not None:
            self._budget.release(cost)
