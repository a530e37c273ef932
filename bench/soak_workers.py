"""CPython workers of the soak test, in a separate process so that their memory is measured apart from the callers'.

Each worker runs the browser package's real transport, hub and MCP core, loses its socket every few seconds and dials
again. For each line of input the process answers with one JSON line of counts; the line `rest` stops the cuts, the line
`cut` resumes them. It keeps no record that grows with the number of calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from collections import Counter, OrderedDict
from contextlib import AsyncExitStack, suppress
from typing import Any, Final

from bench.stage import TOKEN, announce
from tabserver.handlers.toolbox import Toolbox, tool
from tests.support.cpython_worker import CPythonWorker

CUT_EVERY_S: Final = (2.0, 20.0)
KEYS_KEPT: Final = 5_000


class Runs:
    """How often each call ran, of the last few thousand calls."""

    def __init__(self) -> None:
        self._keys: OrderedDict[str, int] = OrderedDict()
        self.total = 0
        self.twice = 0

    def count(self, key: str) -> None:
        self.total += 1
        self._keys[key] = self._keys.get(key, 0) + 1
        self.twice += self._keys[key] > 1
        if len(self._keys) > KEYS_KEPT:
            self._keys.popitem(last=False)


def new_toolbox(runs: Runs) -> Toolbox:
    toolbox = Toolbox()

    @tool(toolbox=toolbox)
    async def work(key: str, ms: int = 0, size: int = 0) -> str:
        """Wait, then return the key followed by this many characters."""
        runs.count(key)
        await asyncio.sleep(ms / 1000)
        return key + "x" * size

    return toolbox


class WorkerGroup:
    """All workers of this process."""

    def __init__(self, addresses: list[tuple[str, str]], seed: str) -> None:
        """`addresses`: the relay's URL and the server's name for each worker."""
        token = os.environ[TOKEN].split()
        self._runs = Runs()
        self._chance = random.Random(seed)
        self._counts: Counter[str] = Counter()
        toolbox = new_toolbox(self._runs)
        secrets = dict(zip(dict.fromkeys(url for url, _ in addresses), token, strict=True))
        self._workers = [CPythonWorker(url, secrets[url], name, toolbox) for url, name in addresses]
        self._is_cutting = True

    async def run(self) -> None:
        async with AsyncExitStack() as stack:
            for worker in self._workers:
                await stack.enter_async_context(worker)
            announce(ready=True)
            async with asyncio.TaskGroup() as tasks:
                cutters = [tasks.create_task(self._cut(worker)) for worker in self._workers]
                await self._answer()
                for cutter in cutters:
                    cutter.cancel()

    async def _cut(self, worker: CPythonWorker) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*CUT_EVERY_S))
            # Both are records for tests and would grow for as long as the soak runs.
            worker.states.clear()
            self._counts.update(type(error).__name__ for error in worker.errors)
            worker.errors.clear()
            if self._is_cutting and worker.transport.is_connected:
                self._counts["cuts"] += 1
                worker.dialer.cut()

    async def _answer(self) -> None:
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            if command := line.strip():
                self._is_cutting = command == "cut"
            connected = sum(worker.transport.is_connected for worker in self._workers)
            tasks = len(asyncio.all_tasks())
            counts: dict[str, Any] = {"connected": connected, "tasks": tasks, "counts": dict(self._counts)}
            announce(**counts, ran=self._runs.total, twice=self._runs.twice)


async def main(addresses: str, seed: str) -> None:
    await WorkerGroup([(url, name) for url, name in json.loads(addresses)], seed).run()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(*sys.argv[1:]))
