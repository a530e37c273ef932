"""Many idle browsers in one process: synthetic workers with the real link, each under its own name.

A browser that loses its socket dials again by the worker's own rule: a `bye` may say when, otherwise after a second. It
prints a JSON line whenever all of them are connected: at first, and again after each loss, with the time that took.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import resource
from collections.abc import Iterable
from time import monotonic

import uvloop

from bench.peer import Linked, Socket, bearer
from bench.stage import TOKEN, announce
from tabserver.wire.events import ByeReceived
from tabserver.wire.frames import SUBPROTOCOL

AT_ONCE = 64  # concurrent dials
FIRST_DELAY_S, LONGEST_DELAY_S = 1.0, 3.0


class Idle(Linked):
    """Records when a `bye` asked it to reconnect."""

    retry_s: float | None = None

    def received(self, texts: list[str], now: float) -> Iterable[str]:
        for text in texts:
            if '"t":"bye"' in text[:40]:
                self.link.receive(text, None, now)
                byes = [event for event in self.link.events() if isinstance(event, ByeReceived)]
                if byes and byes[0].retry_ms is not None:
                    self.retry_s = byes[0].retry_ms / 1000
                return ()
        return super().received(texts, now)


class Crowd:
    def __init__(self, url: str, token: str, count: int) -> None:
        self._address = url.replace("http", "ws", 1)
        self._protocols = [SUBPROTOCOL, bearer(token)]
        self._count = count
        self._dials = asyncio.Semaphore(AT_ONCE)
        self._here = 0
        self._lost_at: float | None = None
        self._began = monotonic()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(self._live(f"crowd-{number}"))

    async def _live(self, name: str) -> None:
        worker = Idle(name, f"inst-{name}")
        delay_s = FIRST_DELAY_S
        while True:
            try:
                async with self._dials:
                    socket = await Socket.dial(f"{self._address}/{name}", self._protocols, worker)
            except OSError:
                await asyncio.sleep(delay_s * random.uniform(0.5, 1.0))
                delay_s = min(delay_s + 1.0, LONGEST_DELAY_S)
                continue
            delay_s = FIRST_DELAY_S
            self._came()
            await socket.gone
            self._left()
            await asyncio.sleep(worker.retry_s if worker.retry_s is not None else random.uniform(0.5, 1.0))
            worker.retry_s = None

    def _came(self) -> None:
        self._here += 1
        if self._here == self._count:
            announce(here=self._here, after_s=monotonic() - (self._lost_at or self._began))
            self._lost_at = None

    def _left(self) -> None:
        self._here -= 1
        if self._lost_at is None:
            self._lost_at = monotonic()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="http://host:port of the relay")
    parser.add_argument("count", type=int)
    args = parser.parse_args()
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))

    async def run() -> None:
        await Crowd(args.url, os.environ[TOKEN], args.count).run()

    uvloop.run(run())


if __name__ == "__main__":
    main()
