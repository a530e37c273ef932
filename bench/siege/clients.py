"""Attacks with a token to call: too many requests, sessions, streams and calls, and JSON of many values."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterable
from itertools import count
from time import monotonic
from typing import Any

import httpx2

from bench.peer import Linked, Socket, bearer
from bench.siege.target import META, SMALL_WINDOW, VERSION, Target, crowd
from tabrelay.config.settings import Settings
from tabserver.wire.errors import BufferFull
from tabserver.wire.events import Received
from tabserver.wire.frames import SUBPROTOCOL, Kind

LIMITS = Settings()
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x" * 1000, "version": "1"}},
}


async def many(target: Target, ask: Callable[[httpx2.AsyncClient], Any], until: float, at_once: int) -> None:
    """The same repeatedly, with this many at a time."""

    async def go_on(http: httpx2.AsyncClient) -> None:
        while monotonic() < until:
            with contextlib.suppress(httpx2.HTTPError):
                await ask(http)

    limits = httpx2.Limits(max_connections=at_once)
    async with httpx2.AsyncClient(
        base_url=target.url, headers=target.headers, trust_env=False, limits=limits, timeout=2.0
    ) as http:
        await asyncio.gather(*(go_on(http) for _ in range(at_once)))


async def requests(target: Target, until: float) -> None:
    """As many as possible, with one token."""
    await many(target, lambda http: http.get("/-/status"), until, 32)


async def sessions(target: Target, until: float) -> None:
    """Sessions that no client ever uses."""
    await many(target, lambda http: http.post("/bench", json=INITIALIZE), until, 16)


async def deep_json(target: Target, until: float) -> None:
    body = b"[" * (LIMITS.max_body // 2)
    while monotonic() < until:
        async with crowd(target, 20, target.post(body)):
            await asyncio.sleep(0.2)


class Mute(Linked):
    """A browser that lists its tools and answers no call."""

    def _due_now(self, requests: list[Received[str]], now: float) -> list[Received[str]]:
        return [event for event in requests if '"tools/call"' not in event.payload and "/listen" not in event.payload]


async def behind(target: Target, speaker: Linked, server: str = "bench") -> Socket:
    address = f"ws://{target.host}:{target.port}/{server}"
    return await Socket.dial(address, [SUBPROTOCOL, bearer(target.token)], speaker)


async def _hang(target: Target, first: bytes, at_once: int, until: float) -> None:
    """Requests that stay open, and new ones for those that were refused."""
    socket = await behind(target, Mute("bench", "mute"))
    while monotonic() < until:
        async with crowd(target, at_once, first, window=SMALL_WINDOW):
            await asyncio.sleep(min(2.0, max(0.0, until - monotonic())))
    socket.cut()


async def in_flight(target: Target, until: float) -> None:
    """Calls of some size that are never answered."""
    await _hang(target, target.call({"text": "x" * 1_000_000}), 300, until)


async def many_values(target: Target, until: float) -> None:
    """Calls that are never answered, of values that need much more memory than their text."""
    values = ",".join(['{"a":1}'] * 500_000)
    params = f'{{"_meta":{json.dumps(META)},"name":"echo","arguments":{{"rows":[{values}]}}}}'
    body = f'{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{params}}}'.encode()
    first = target.post(body, Mcp_Method="tools/call", Mcp_Name="echo", Mcp_Protocol_Version=VERSION)
    await _hang(target, first, 80, until)


async def listeners(target: Target, until: float) -> None:
    """Clients that subscribe to changes and stay connected."""
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": [f"a:{n}" for n in range(1000)]}}
    await _hang(target, target.call(wanted, method="subscriptions/listen"), 900, until)


async def subscriptions(target: Target, until: float) -> None:
    """One session that subscribes to new resources all the time."""
    socket = await behind(target, Linked("bench", "agreeable"))
    numbers = count()
    async with httpx2.AsyncClient(base_url=target.url, headers=target.headers, trust_env=False) as http:
        session = (await http.post("/bench", json=INITIALIZE)).headers["mcp-session-id"]

    def subscribe(http: httpx2.AsyncClient) -> Any:
        params = {"uri": f"x:{next(numbers)}" + "x" * 60_000}
        body = {"jsonrpc": "2.0", "id": next(numbers), "method": "resources/subscribe", "params": params}
        return http.post("/bench", json=body, headers={"Mcp-Session-Id": session})

    await many(target, subscribe, until, 8)
    socket.cut()


class Talker(Linked):
    """A browser that sends notifications as long as it has a call, on its streams and beside them, and never answers
    one."""

    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x" * 200_000}})

    def __init__(self, server: str) -> None:
        super().__init__(server, "talker")
        self._calls: list[Received[str]] = []
        self.sessions: set[str] = set()

    def _due_now(self, requests: list[Received[str]], now: float) -> list[Received[str]]:
        mine = [event for event in requests if '"tools/call"' in event.payload]
        self._calls += mine
        self.sessions.update(event.channel for event in requests if event.caller is None)
        return [event for event in requests if event not in mine]

    def due(self) -> float | None:
        due = super().due()
        soon = asyncio.get_running_loop().time() + 0.005
        return soon if due is None else min(due, soon)

    def fired(self, now: float) -> Iterable[str]:
        try:
            for event in self._calls:
                self.link.send(event.channel, Kind.NOTE, self.note, now, related=event.id)
            for channel in self.sessions:
                self.link.send(channel, Kind.NOTE, self.note, now)
        except BufferFull:
            pass
        return super().fired(now)


async def unread_streams(target: Target, until: float) -> None:
    """Calls whose notifications are never read."""
    names = [f"talker-{number}" for number in range(4)]
    sockets = [await behind(target, Talker(name), name) for name in names]
    async with contextlib.AsyncExitStack() as stack:
        for name in names:
            await stack.enter_async_context(crowd(target, 60, target.call({}, name), window=SMALL_WINDOW))
        await asyncio.sleep(max(0.0, until - monotonic()))
    for socket in sockets:
        socket.cut()


async def unread_sessions(target: Target, until: float) -> None:
    """Sessions whose GET stream is open, and never read."""
    socket = await behind(target, Talker("talker"), "talker")
    async with httpx2.AsyncClient(base_url=target.url, headers=target.headers, trust_env=False) as http:
        ids = [(await http.post("/talker", json=INITIALIZE)).headers["mcp-session-id"] for _ in range(60)]
    async with contextlib.AsyncExitStack() as stack:
        for id in ids:
            first = target.head("/talker", "GET", Accept="text/event-stream", Mcp_Session_Id=id) + b"\r\n"
            await stack.enter_async_context(crowd(target, 1, first, window=SMALL_WINDOW))
        await asyncio.sleep(max(0.0, until - monotonic()))
    socket.cut()


async def unread_answers(target: Target, until: float) -> None:
    """Results of the largest allowed size, which no client reads."""
    socket = await behind(target, Linked("bench", "generous"))
    while monotonic() < until:
        async with crowd(target, 100, target.call({"bytes": 15_000_000}), window=SMALL_WINDOW):
            await asyncio.sleep(min(2.5, max(0.0, until - monotonic())))
    socket.cut()
