"""Sliced payload: a long message that stays in the slices in which it arrived.

Joining the slices would copy the message and block the event loop. A skeleton is built as they arrive, for checks. Does
not parse and does not check the message.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabrelay.payloads.json_skeleton import JsonSkeleton


class SlicedPayload:
    """A message in UTF-8. `skeleton`: without its long strings; None if it is not JSON, or heavy. `is_heavy`: it has
    more values than the relay parses."""

    __slots__ = ("_size", "_slices", "is_heavy", "skeleton", "summary")

    def __init__(self, slices: Sequence[bytes], skeleton: str | None, *, is_heavy: bool = False) -> None:
        self._slices = slices
        self.is_heavy = is_heavy
        self.summary = ""  # a short reply with the same outcome, for metrics and the call log
        self._size = sum(map(len, slices))
        self.skeleton = skeleton

    def __len__(self) -> int:
        """Size in bytes."""
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._slices)

    def isascii(self) -> bool:
        """Does each unit of `len` take one byte of memory? True, since they are bytes; as for an ASCII string."""
        return True

    def decode(self) -> str:
        """The whole message as one string."""
        return b"".join(self._slices).decode()


Body = bytes | SlicedPayload
Payload = str | SlicedPayload


def text_of(payload: Payload) -> str:
    return payload if isinstance(payload, str) else payload.decode()


def memory_of(payload: Payload) -> int:
    """Bytes of memory: one character outside of ASCII can make Python use four bytes for each of them."""
    return len(payload) if payload.isascii() else 4 * len(payload)


class _SliceAssembly:
    """One message of which not all slices have arrived."""

    __slots__ = ("_skeleton", "_slices", "cost")

    def __init__(self, most: int) -> None:
        self.cost = 0
        self._skeleton = JsonSkeleton(most)
        self._slices: list[bytes] = []

    def add(self, slice: Payload) -> None:
        text = text_of(slice)
        before = self._skeleton.cost
        self._skeleton.add(text)
        data = text.encode()  # only a copy: the skeleton has encoded text that is not ASCII
        self._slices.append(data)
        # defence: what is kept of a long message beside its slices
        self.cost += len(data) + self._skeleton.cost - before

    def whole(self) -> Payload:
        return SlicedPayload(self._slices, self._skeleton.text(), is_heavy=self._skeleton.is_heavy)


class SlicedCodec:
    """Payload codec of the relay's links: text, or slices if the payload arrived in slices."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values

    def size(self, payload: Payload) -> int:
        return len(payload)

    def weigh(self, payload: Payload) -> tuple[int, int]:
        # One character outside of ASCII can make Python use four bytes for each of the others.
        return len(payload), 1 if payload.isascii() else 4

    def cut(self, payload: Payload, start: int, end: int) -> Payload:
        return text_of(payload)[start:end]

    def gather(self) -> _SliceAssembly:
        return _SliceAssembly(self._max_values)
