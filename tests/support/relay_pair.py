"""Two nodes in one process that share a state directory and a bus, and low-level clients for them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import httpx2
import pytest

from tests.support.link_worker import SyntheticWorker
from tests.support.memory_bus import MemoryBroker, MemoryBus
from tests.support.running_relay import RunningRelay, events
from tests.support.waiting import until


class Pair:
    """Nodes that share a state directory and a bus."""

    def __init__(self, a: RunningRelay, b: RunningRelay, hub: MemoryBroker) -> None:
        self.a = a
        self.b = b
        self.hub = hub

    def worker(self, relay: RunningRelay, server: str, **more: Any) -> SyntheticWorker:
        return SyntheticWorker(relay.url, relay.token, server, **more)


def request(method: str, params: dict[str, Any] | None = None, *, id: int = 7) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}


def answer_of(response: httpx2.Response) -> dict[str, Any]:
    """The answer to a call: JSON, or the last message of its stream."""
    if "event-stream" in response.headers["content-type"]:
        message: dict[str, Any] = json.loads(events(response.text)[-1])
    else:
        message = response.json()
    return message


def ending(response: httpx2.Response) -> tuple[str, str]:
    """The error of a failed call: its reason, and whether the call was delivered."""
    error = answer_of(response)["error"]["data"]
    return error["reason"], error["delivered"]


class Opener(Protocol):
    """Opens sessions on a relay in this process or in another."""

    http: httpx2.AsyncClient


async def open_session(relay: Opener, server: str, capabilities: dict[str, Any] | None = None) -> dict[str, str]:
    """The headers of a new session whose client has these capabilities."""
    params = {
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities or {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    response = await relay.http.post(f"/{server}", json=request("initialize", params))
    headers = {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    await relay.http.post(f"/{server}", json=note, headers=headers)
    return headers


class Stream:
    """One event stream of a relay, read as it arrives: its messages, and the id of the last event."""

    def __init__(self, relay: Opener, method: str, server: str, **request: Any) -> None:
        self._relay = relay
        self._how = (method, f"/{server}", request)
        self.status: int | None = None
        self.error: dict[str, Any] = {}
        self.said: list[dict[str, Any]] = []
        self.ids: list[str] = []
        self.comments = 0
        self.is_over = False
        self._task = asyncio.create_task(self._read())

    async def _read(self) -> None:
        method, path, request = self._how
        async with self._relay.http.stream(method, path, **request) as response:
            self.status = response.status_code
            if "event-stream" not in response.headers.get("content-type", ""):
                message = json.loads(await response.aread())
                self.error = message.get("error", {})
                self.said.append(message)
            else:
                async for line in response.aiter_lines():
                    if line.startswith("id: "):
                        self.ids.append(line.removeprefix("id: "))
                    self.comments += line.startswith(":")
                    self.said += [json.loads(data) for data in events(line)]
        self.is_over = True

    def methods(self) -> list[str]:
        return [message["method"] for message in self.said if "method" in message]

    async def question(self, method: str = "elicitation/create") -> dict[str, Any]:
        await until(lambda: method in self.methods())
        [question] = [message for message in self.said if message.get("method") == method]
        return question

    async def end(self, timeout_s: float = 30) -> dict[str, Any]:
        """The last message, if any, once the stream has ended."""
        async with asyncio.timeout(timeout_s):
            await self._task
        return self.said[-1] if self.said else {}

    async def leave(self) -> None:
        """Drop the connection, as a failing network does."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task


@asynccontextmanager
async def meeting(tmp_path: Path, **settings: Any) -> AsyncIterator[Pair]:
    """Wait until two relays know each other."""
    hub = MemoryBroker()
    async with (
        RunningRelay(tmp_path, bus=MemoryBus(hub), **settings) as a,
        RunningRelay(tmp_path, bus=MemoryBus(hub), **settings) as b,
    ):
        await a.knows(nodes=2)
        await b.knows(nodes=2)
        yield Pair(a, b, hub)


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[Pair]:
    async with meeting(tmp_path, instances=("shared",), away_wait_s=5.0, call_deadline_s=15.0) as pair:
        yield pair
