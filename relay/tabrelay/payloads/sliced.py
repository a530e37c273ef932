"""A long message that is kept in the slices in which it came: to put it together is to copy it, and everybody else
would wait for that meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabrelay.payloads.json_skeleton import JsonSkeleton


class SlicedPayload:
    """UTF-8. `gist`: what is left of it without its long strings; None if it is no JSON or heavy. `is_heavy`: it has
    more values than the relay parses."""

    __slots__ = ("_size", "_slices", "is_heavy", "skeleton", "summary")

    def __init__(self, slices: Sequence[bytes], skeleton: str | None, *, is_heavy: bool = False) -> None:
        self._slices = slices
        self.is_heavy = is_heavy
        self.summary = ""  # a short answer that ends a call in the same way, for those who count and log calls
        self._size = sum(map(len, slices))
        self.skeleton = skeleton

    def __len__(self) -> int:
        """In bytes."""
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._slices)

    def isascii(self) -> bool:
        """Does each of what `len` counts take one byte of memory? As of a text without other letters."""
        return True

    def decode(self) -> str:
        """As one text."""
        return b"".join(self._slices).decode()


Body = bytes | SlicedPayload
Payload = str | SlicedPayload


def text_of(payload: Payload) -> str:
    return payload if isinstance(payload, str) else payload.decode()


class _SliceAssembly:
    """One message on its way."""

    __slots__ = ("_skeleton", "_slices", "cost")

    def __init__(self, most: int) -> None:
        self.cost = 0
        self._skeleton = JsonSkeleton(most)
        self._slices: list[bytes] = []

    def add(self, slice: Payload) -> None:
        text = text_of(slice)
        before = self._skeleton.cost
        self._skeleton.add(text)
        data = text.encode()  # which the gist had to do for what is not ASCII: now it is a copy
        self._slices.append(data)
        # defence: what is kept of a long message beside its slices
        self.cost += len(data) + self._skeleton.cost - before

    def whole(self) -> Payload:
        return SlicedPayload(self._slices, self._skeleton.text(), is_heavy=self._skeleton.is_heavy)


class SlicedCodec:
    """How the relay's links handle payloads: as text, but what comes in slices stays in them."""

    def __init__(self, max_values: int) -> None:
        self._max_values = max_values

    def size(self, payload: Payload) -> int:
        return len(payload)

    def weigh(self, payload: Payload) -> tuple[int, int]:
        # One letter outside of ASCII can make Python give four bytes to each of the others.
        return len(payload), 1 if payload.isascii() else 4

    def cut(self, payload: Payload, start: int, end: int) -> Payload:
        return text_of(payload)[start:end]

    def gather(self) -> _SliceAssembly:
        return _SliceAssembly(self._max_values)
