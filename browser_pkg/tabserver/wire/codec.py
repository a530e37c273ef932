"""Payload codec of the link: size, memory cost, slicing and reassembly of payloads that the link does not read (F2).

A shell that carries other payloads than `str` implements `Codec`. Nothing here looks into a payload.
"""

from __future__ import annotations

from typing import Protocol, TypeVar

P = TypeVar("P")


class Gathering(Protocol[P]):
    """The slices of one payload until it is complete. `cost`: bytes of memory that they take."""

    cost: int

    def add(self, slice: P) -> None: ...

    def whole(self) -> P:
        """The complete payload. Nothing is added afterwards."""


class Codec(Protocol[P]):
    """Operations on a payload."""

    def size(self, payload: P) -> int:
        """The size that limits count: characters, for text."""

    def weigh(self, payload: P) -> tuple[int, int]:
        """The size, and how many bytes of memory each unit of it may take."""

    def cut(self, payload: P, start: int, end: int) -> P: ...

    def gather(self) -> Gathering[P]: ...


class _Texts:
    """Joined once, at the end."""

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
        # One character outside of ASCII can make Python use four bytes for each of the others.
        # defence: bytes of wide characters
        return len(payload), 1 if payload.isascii() else 4

    def cut(self, payload: str, start: int, end: int) -> str:
        return payload[start:end]

    def gather(self) -> _Texts:
        return _Texts()
