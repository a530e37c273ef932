"""Held timers: timers that fall due while a call is followed wait until the measurement is over.

Timers (acknowledgements, heartbeats, deadlines) are not part of a call's path, and on a busy machine some of them would
run during the call. Callbacks without a delay run as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

# The same for workers and pages; must be imported before anything else.
SCRIPT: Final = """
let isHolding = false;
const held = new Map();
const { setTimeout: later, clearTimeout: clear, setInterval: every } = globalThis;
globalThis.setTimeout = (run, ms = 0, ...given) => {
  if (!(ms > 0)) return later(run, ms, ...given);
  const id = later(() => isHolding ? held.set(id, () => run(...given)) : run(...given), ms);
  return id;
};
globalThis.clearTimeout = (id) => {
  held.delete(id);
  clear(id);
};
globalThis.setInterval = (run, ms, ...given) => every(() => isHolding || run(...given), ms);
globalThis.holdTimers = (isOn) => {
  isHolding = isOn;
  if (isOn) return;
  const due = [...held.values()];
  held.clear();
  for (const run of due) run();
};
// Resolves when everything that is due now has run.
globalThis.settled = async () => {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = resolve;
    port2.postMessage(0);
  });
};
"""


class HeldTimers:
    """Timers of an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._is_holding = False
        self._held: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
        self._call_at = loop.call_at

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Only timers that are set meanwhile can be held."""
        self._loop.call_at = self._replaced  # type: ignore[method-assign, assignment]
        try:
            yield
        finally:
            self._loop.call_at = self._call_at  # type: ignore[method-assign]
            self.release()

    def hold(self) -> None:
        self._is_holding = True

    def release(self) -> None:
        self._is_holding = False
        held, self._held = self._held, []
        for handle, run in held:
            if not handle.cancelled():
                self._loop.call_soon(run)

    @contextmanager
    def bound(self, seconds: float) -> Iterator[None]:
        """Cancel the current task after this time, also while timers are held."""
        task = asyncio.current_task()
        assert task is not None
        handle = self._call_at(self._loop.time() + seconds, task.cancel, "the call that is followed takes too long")
        try:
            yield
        finally:
            handle.cancel()

    def _replaced(self, when: float, callback: Any, *args: Any, context: Any = None) -> asyncio.TimerHandle:
        def run() -> None:
            if self._is_holding:
                self._held.append((handle, lambda: callback(*args)))
            else:
                callback(*args)

        handle = self._call_at(when, run, context=context)
        return handle
