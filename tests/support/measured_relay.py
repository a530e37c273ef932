"""A relay in a child process that measures how much CPU time each callback of its event loop takes.

The child runs the product on asyncio's own event loop, with the product's garbage collector settings. `Handle._run` is
wrapped: `time.thread_time()` counts the CPU time of the loop thread only, so other processes do not change the figures
much. As a program, this module is that child.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import threading
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

READY_S = 60.0
KEPT = 8


@dataclass(frozen=True, slots=True)
class Slow:
    """One callback: its CPU time, and the function or the coroutine that ran."""

    ms: float
    what: str


class MeasuredRelay:
    """The parent's side. `longest` returns the slowest callbacks since `reset`, slowest first."""

    def __init__(self, process: asyncio.subprocess.Process, url: str, token: str) -> None:
        self._process = process
        self.url = url
        self.token = token
        accept = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
        self.http = httpx2.AsyncClient(base_url=url, trust_env=False, timeout=60, headers=accept)

    async def reset(self) -> None:
        await self._ask()

    async def longest(self) -> list[Slow]:
        return [Slow(ms, what) for ms, what in await self._ask()]

    async def _ask(self) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(b"\n")
        async with asyncio.timeout(READY_S):
            return json.loads(await self._process.stdout.readline())

    async def close(self) -> None:
        await self.http.aclose()
        assert self._process.stdin is not None
        self._process.stdin.close()
        async with asyncio.timeout(READY_S):
            await self._process.wait()


@contextlib.asynccontextmanager
async def measured_relay(
    home: Path, specs: Sequence[Mapping[str, Any]] = (), **settings: Any
) -> AsyncIterator[MeasuredRelay]:
    """`settings` are the product's, by name; their values must be JSON. `specs`: upstream servers, each by the fields
    of its `HttpSpec` (with `url`) or `StdioSpec`."""
    given = json.dumps({"settings": settings, "specs": list(specs)})
    command = [sys.executable, "-m", "tests.support.measured_relay", str(home), given]
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(READY_S):
            said = json.loads(await process.stdout.readline())
        relay = MeasuredRelay(process, said["url"], said["token"])
        yield relay
        await relay.close()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


# -- the child ---------------------------------------------------------------------------------------------------------


class Callbacks:
    """The slowest callbacks since the last report."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # `take` may be called by a signal handler
        self._slowest: list[tuple[float, str]] = []
        self._bar = 0.0

    def wrap(self) -> None:
        handles: Any = asyncio.Handle
        run = handles._run
        now = time.thread_time

        def measured(handle: Any) -> None:
            callback, began = handle._callback, now()
            run(handle)
            took = now() - began
            if took > self._bar:
                self._add(took, _described(callback))

        handles._run = measured

    def _add(self, took: float, what: str) -> None:
        with self._lock:
            self._slowest = sorted([*self._slowest, (took, what)], reverse=True)[:KEPT]
            self._bar = self._slowest[-1][0] if len(self._slowest) == KEPT else 0.0

    def take(self) -> list[tuple[float, str]]:
        with self._lock:
            taken, self._slowest, self._bar = self._slowest, [], 0.0
        return [(round(took * 1000, 1), what) for took, what in taken]


def _described(callback: Any) -> str:
    owner = getattr(callback, "__self__", None)
    if isinstance(owner, asyncio.Task):
        return str(getattr(owner.get_coro(), "__qualname__", owner.get_coro()))
    return str(getattr(callback, "__qualname__", callback))


def _spec(fields: dict[str, Any]) -> Any:
    from tabrelay.config.specs import HttpSpec, StdioSpec

    given: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    return HttpSpec(**given) if "url" in given else StdioSpec(**given)


def main(home: Path, settings: dict[str, Any], specs: list[dict[str, Any]]) -> None:
    from tabrelay.admission.tokens import Tokens
    from tabrelay.assets.files import Assets
    from tabrelay.config.settings import Settings
    from tabrelay.routing.drain import Drain
    from tabrelay.server.app import create_app
    from tabrelay.server.runner import bind, listener_copies, tune_garbage_collector
    from tabrelay.server.uvicorn_adapter.configuration import configure
    from tabrelay.server.uvicorn_adapter.relay_server import RelayServer

    sock = bind("127.0.0.1", 0)
    port = sock.getsockname()[1]
    given: Any = {name: tuple(value) if isinstance(value, list) else value for name, value in settings.items()}
    chosen = Settings(home=home, port=port, **given)
    tokens = Tokens(home)
    callbacks = Callbacks()

    async def serve() -> None:
        app: Any = create_app(
            chosen,
            specs=[_spec(fields) for fields in specs],
            tokens=tokens,
            assets=Assets.find(),
            drain=Drain.for_settings(chosen),
        )
        loop = asyncio.get_running_loop()

        def ready() -> None:
            said = {"url": f"http://127.0.0.1:{port}", "token": tokens.master()}
            print(json.dumps(said), flush=True)
            threading.Thread(target=answer, daemon=True).start()

        def answer() -> None:
            for _ in sys.stdin:
                print(json.dumps(callbacks.take()), flush=True)
            loop.call_soon_threadsafe(stop)

        def stop() -> None:
            runner.should_exit = True

        runner = RelayServer(configure(app, chosen), ready)
        tune_garbage_collector()
        await runner._serve(listener_copies(sock))

    callbacks.wrap()
    asyncio.run(serve())


if __name__ == "__main__":
    main(Path(sys.argv[1]), **json.loads(sys.argv[2]))
