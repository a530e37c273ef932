"""The stdio bridge, in the test's event loop with a clock that the test controls, or as a real child process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tabrelay.bridge.bridge import Bridge
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import Credentials, Fixed
from tabrelay.bridge.http import HttpEndpoint
from tabrelay.bridge.outbound import Outbound, OutboundLimits
from tabrelay.bridge.target import UrlTarget
from tests.support.child_process import Program
from tests.support.waiting import BOUND_S

WAIT_S = BOUND_S
CLIENT = {"name": "test", "version": "1"}


class QuickClock(Clock):
    """A clock that does not wait: it records for how long it would have. The test sets `chance`."""

    def __init__(self, chance: float = 0.0) -> None:
        self.sleeps: list[float] = []
        self._chance = chance

    def now(self) -> float:
        return 1_800_000_000.0

    def chance(self) -> float:
        return self._chance

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        await asyncio.sleep(0)


class RecordingOutput:
    """Records lines one by one. It can fail, and it can stop accepting output."""

    def __init__(self) -> None:
        self.broken = asyncio.Event()
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def write(self, line: bytes) -> None:
        assert b"\n" not in line
        self.lines.put_nowait(line)


class BridgeClient:
    """The client's side of a bridge, for both kinds."""

    async def write(self, data: bytes) -> None:
        raise NotImplementedError

    async def line(self) -> bytes:
        raise NotImplementedError

    async def send(self, value: Any) -> None:
        await self.write(json.dumps(value).encode() + b"\n")

    async def next(self) -> Any:
        return json.loads(await self.line())

    async def ask(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """Send a request and return the next message."""
        await self.send(request(method, params, id))
        return await self.next()

    async def call(self, method: str, params: Any = None, id: Any = 1) -> Any:
        """Send a request and return its answer; other messages in between are skipped."""
        answer = await self.ask(method, params, id)
        while "method" in answer:
            answer = await self.next()
        return answer

    async def initialize(self, version: str = "2025-11-25") -> Any:
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": CLIENT}
        answer = await self.ask("initialize", params, 0)
        await self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer


def request(method: str, params: Any = None, id: Any = 1) -> dict[str, Any]:
    message = {"jsonrpc": "2.0", "id": id, "method": method}
    return message if params is None else {**message, "params": params}


class InProcessBridge(BridgeClient):
    """Start it with `async with`."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock | None = None,
        credentials: Credentials | None = None,
        headers: dict[str, str] | None = None,
        limits: OutboundLimits | None = None,
        has_listener: bool = False,
        is_serial: bool = False,
    ) -> None:
        self.clock = clock or QuickClock()
        self.output = RecordingOutput()
        limits = limits or OutboundLimits(timeout_ms=10_000)
        self.outbound = Outbound(HttpEndpoint(UrlTarget(url)), credentials or Fixed(None, "No."), headers or {}, limits)
        self.bridge = Bridge(
            self.outbound, self.output, has_server_stream=has_listener, is_serial=is_serial, clock=self.clock
        )
        self._input: asyncio.Queue[bytes] = asyncio.Queue()

    async def __aenter__(self) -> InProcessBridge:
        self.task = asyncio.create_task(self.bridge.run(self._chunks()))
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.close()
        async with asyncio.timeout(WAIT_S):
            await self.task
        await self.outbound.close()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while chunk := await self._input.get():
            yield chunk

    def close(self) -> None:
        self._input.put_nowait(b"")

    async def write(self, data: bytes) -> None:
        self._input.put_nowait(data)

    async def line(self) -> bytes:
        async with asyncio.timeout(WAIT_S):
            return await self.output.lines.get()

    @property
    def is_silent(self) -> bool:
        return self.output.lines.empty()


class BridgeProcess(Program, BridgeClient):
    """`tabrelay stdio` as a client starts it. Use `async with`: the process ends with the test."""

    def __init__(self, *arguments: str | Path, env: dict[str, str] | None = None) -> None:
        super().__init__("stdio", *arguments, env=env)

    async def write(self, data: bytes) -> None:
        self.stdin.write(data)
        await self.stdin.drain()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for a condition that has no event, by letting the loop's tasks run."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)
