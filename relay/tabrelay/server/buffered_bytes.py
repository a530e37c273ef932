"""What many hold together, to the byte and without adding it up each time, and who has held much for longest; pure."""

from __future__ import annotations

from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class BufferedBytes(Generic[Holder]):
    def __init__(self) -> None:
        self.total = 0
        self._held: dict[Holder, int] = {}
        self._much: dict[Holder, None] = {}  # in the order in which it became much

    def set(self, holder: Holder, held: int, *, is_much: bool) -> None:
        """`is_much`: this one may be asked to go. Whoever is said to have little again is young when it has much."""
        self.total += held - self._held.get(holder, 0)
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
        if not is_much:
            self._much.pop(holder, None)
        elif holder not in self._much:
            self._much[holder] = None

    def forget(self, holder: Holder) -> None:
        self.total -= self._held.pop(holder, 0)
        self._much.pop(holder, None)

    @property
    def oldest(self) -> Holder | None:
        return next(iter(self._much), None)
