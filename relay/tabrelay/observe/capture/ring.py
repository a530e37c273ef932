"""Ring of captured calls: the newest ones, bounded in number and in bytes.

The oldest are removed first, whether they have ended or not; a removed call goes on unobserved. Lookup is by id, order
is that of the start. Nothing here survives the process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from tabrelay.observe.capture.captured_call import CapturedCall


class CaptureRing:
    """`most_bytes`, `most_calls`: the bounds."""

    def __init__(self, most_bytes: int, most_calls: int) -> None:
        self._most_bytes, self._most_calls = most_bytes, most_calls
        self._calls: OrderedDict[str, CapturedCall] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: CapturedCall) -> None:
        self._calls[call.id] = call
        self.grown(call.cost)

    def grown(self, size: int) -> None:
        """Calls of the ring have grown by this much."""
        self.size += size
        # defence: memory of captured calls
        while self._calls and (self.size > self._most_bytes or len(self._calls) > self._most_calls):
            _, oldest = self._calls.popitem(last=False)
            self.size -= oldest.cost
            oldest.forget()

    def find(self, id: str) -> CapturedCall | None:
        return self._calls.get(id)

    def newest(self, before: int | None = None) -> Iterator[CapturedCall]:
        """The newest first; `before`: those with a smaller number."""
        for call in reversed(self._calls.values()):
            if before is None or call.seq < before:
                yield call

    def clear(self) -> None:
        for call in self._calls.values():
            call.forget()
        self._calls.clear()
        self.size = 0
