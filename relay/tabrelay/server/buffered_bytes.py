"""What many hold together, to the byte and without adding it up each time, and who has held much for longest; pure."""

from __future__ import annotations

from typing import Generic, TypeVar

Holder = TypeVar("Holder")


class BufferedBytes(Generic[Holder]):
    def __init__(self) -> None:
        self.total = 0
        self._held: dict[Holder, int] = {}
        self._large: dict[Holder, None] = {}  # in the order in which it became much

    def set(self, holder: Holder, held: int, *, is_large: bool) -> None:
        """`is_much`: this one may be asked to go. Whoever is said to have little again is young when it has much."""
        self.total += held - self._held.get(holder, 0)
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
        if not is_large:
            self._large.pop(holder, None)
        elif holder not in self._large:
            self._large[holder] = None

    def remove(self, holder: Holder) -> None:
        self.total -= self._held.pop(holder, 0)
        self._large.pop(holder, None)

    @property
    def oldest(self) -> Holder | None:
        return next(iter(self._large), None)
