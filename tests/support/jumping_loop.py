"""An event loop whose clock can jump, as after a stall: all due timers are then late and fire at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class JumpingLoop(asyncio.SelectorEventLoop):
    """Sockets and tasks are real; only the clock is ahead by the sum of its jumps. Due timers run before sockets are
    read, as in an event loop that was blocked."""

    def __init__(self) -> None:
        super().__init__()
        self._jumped_s = 0.0

    def time(self) -> float:
        return super().time() + self._jumped_s

    def _process_events(self, event_list: Any) -> None:
        if event_list:
            self.call_soon(super()._process_events, event_list)  # type: ignore[misc]

    def jump(self, seconds: float) -> None:
        self._jumped_s += seconds


def run_jumping(scenario: Callable[[JumpingLoop], Coroutine[Any, Any, T]]) -> T:
    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, JumpingLoop)
        return await scenario(loop)

    with asyncio.Runner(loop_factory=JumpingLoop) as runner:
        return runner.run(main())
