"""A console without a page: reads the relay's live stream of calls, and the rows and details of captured calls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx2

from tests.support.running_relay import RunningRelay
from tests.support.waiting import BOUND_S

Row = dict[str, Any]


class OpenConsole:
    """`rows`: the latest state of each row, by id; `events`: all events but rows; `arrived`: when a row first came."""

    def __init__(self, relay: RunningRelay) -> None:
        self.relay = relay
        self.hello: Row = {}
        self.rows: dict[str, Row] = {}
        self.states: dict[str, list[str]] = {}
        self.events: list[Row] = []
        self.arrived: dict[str, float] = {}
        self._changed = asyncio.Event()
        self.close: Callable[[], object] = lambda: None

    async def read(self, lines: AsyncIterator[str]) -> None:
        async for line in lines:
            if line.startswith("data: "):
                self._take(json.loads(line.removeprefix("data: ")))
                self._changed.set()

    def _take(self, event: Row) -> None:
        if event["type"] == "hello":
            self.hello = event
        elif event["type"] == "calls":
            for row in event["rows"]:
                self.arrived.setdefault(row["id"], time.time())
                self.rows[row["id"]] = row
                states = self.states.setdefault(row["id"], [])
                if states[-1:] != [row["state"]]:
                    states.append(row["state"])
        else:
            self.events.append(event)

    async def until(self, condition: Callable[[], Any]) -> Any:
        async with asyncio.timeout(BOUND_S):
            while not (found := condition()):
                self._changed.clear()
                await self._changed.wait()
        return found

    def find(self, **wanted: Any) -> Row | None:
        """The latest row with these members."""
        found = (row for row in reversed(self.rows.values()) if all(row[key] == wanted[key] for key in wanted))
        return next(found, None)

    async def row(self, **wanted: Any) -> Row:
        """Wait for a row with these members."""
        found: Row = await self.until(lambda: self.find(**wanted))
        return found

    async def detail(self, **wanted: Any) -> Row:
        row = await self.row(**wanted)
        response = await self.relay.http.get(f"/-/console/calls/{row['id']}")
        assert response.status_code == 200, response.text
        found: Row = response.json()
        return found


@asynccontextmanager
async def open_console(relay: RunningRelay, query: str = "", token: str = "") -> AsyncIterator[OpenConsole]:
    console = OpenConsole(relay)
    headers = {"Authorization": f"Bearer {token or relay.token}"}
    timeout = httpx2.Timeout(BOUND_S, read=None)
    async with (
        httpx2.AsyncClient(base_url=relay.url, trust_env=False, headers=headers, timeout=timeout) as http,
        http.stream("GET", f"/-/console/events{query}") as response,
    ):
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        reading = asyncio.create_task(console.read(response.aiter_lines()))
        console.close = reading.cancel
        try:
            await console.until(lambda: console.hello)
            yield console
        finally:
            reading.cancel()
            with suppress(asyncio.CancelledError):
                await reading
