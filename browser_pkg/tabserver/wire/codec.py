"""How the link handles payloads that it does not read: their size, slices, and putting slices together again."""

from __future__ import annotations

from typing import Protocol, TypeVar

P = TypeVar("P")


class Gathering(Protocol[P]):
    """The slices of one payload, until all have come. `cost`: bytes of memory that they take."""

    cost: int

    def add(self, slice: P) -> None: ...

    def whole(self) -> P:
        """All of it; nothing is added after that."""


class Codec(Protocol[P]):
    """Operations on a payload. A shell that carries something else than text gives its own."""

    def size(self, payload: P) -> int:
        """What limits count: characters, for text."""

    def weigh(self, payload: P) -> tuple[int, int]:
        """The same, and how many bytes of memory one of these may take."""

    def cut(self, payload: P, start: int, end: int) -> P: ...

    def gather(self) -> Gathering[P]: ...


class _Texts:
    """Put together at the end."""

    def __init__(self) -> None:
        self.cost = 0
        self._slices: list[str] = []

    def add(self, slice: str) -> None:
        self.cost += len(slice) if slice.isascii() else 4 * len(slice)
        self._slices.append(slice)

    def whole(self) -> str:
        return "".join(self._slices)


class TextCodec:
    """Payloads as str. Sizes are characters: up to four bytes each on the wire, which the frame limit allows for."""

    def size(self, payload: str) -> int:
        return len(payload)

    def weigh(self, payload: str) -> tuple[int, int]:
        # One letter outside of ASCII can make Python give four bytes to each of the others.
        # defence: bytes of wide letters
        return len(payload), 1 if payload.isascii() else 4

    def cut(self, payload: str, start: int, end: int) -> str:
        return payload[start:end]

    def gather(self) -> _Texts:
        return _Texts()
