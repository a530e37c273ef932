"""The console in a browser that is paired with a relay, with servers of CPython behind the relay and real clients."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Browser, Locator, Page, expect

from tabserver.handlers.content import Image
from tabserver.handlers.context import Context
from tabserver.handlers.toolbox import Toolbox, prompt, resource, tool
from tests.support.cpython_worker import CPythonWorker
from tests.support.running_relay import RunningRelay

MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script>'


def square() -> bytes:
    """A red PNG of one pixel."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 2, 0, 0, 0)
    picture = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\xff\0\0")) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + picture


@dataclass
class Confirmation:
    reason: str


class Notes:
    """Tools of the server `notes`. `runs`: the arguments of `echo`, in order; `go`: lets `waiting` end."""

    def __init__(self) -> None:
        self.box = Toolbox()
        self.runs: list[str] = []
        self.go = asyncio.Event()
        self._offer(self.box)

    def _offer(self, box: Toolbox) -> None:
        @tool(toolbox=box)
        def echo(text: str, password: str = "") -> str:
            """Return the text."""
            self.runs.append(text)
            return text

        @tool(toolbox=box)
        def broken() -> str:
            """Fail."""
            raise ValueError("it is broken")

        @tool(toolbox=box)
        def page() -> str:
            """Return HTML."""
            return MARKUP

        @tool(toolbox=box)
        def look() -> Image:
            """Return an image."""
            return Image(square(), "image/png")

        @tool(toolbox=box)
        async def counting(ctx: Context) -> str:
            """Report progress and log a line."""
            ctx.progress(1, 2, "half")
            ctx.log("info", "counted")
            return "done"

        @tool(toolbox=box)
        async def booking(ctx: Context, room: str) -> str:
            """Ask before a room is booked."""
            answer = await ctx.elicit(f"Really book {room}?", Confirmation)
            return f"Booked {room}." if answer.accepted else "Left as it was."

        @resource("notes://{title}", toolbox=box, complete={"title": ["milk", "bread"]})
        def note(title: str) -> str:
            """A note."""
            return f"The note {title}."

        @prompt(toolbox=box)
        def review(code: str) -> str:
            """Review a piece of code."""
            return f"Review {code}."

        @tool(toolbox=box)
        async def waiting() -> str:
            """Wait until the test lets it go."""
            await self.go.wait()
            return "gone"


@asynccontextmanager
async def client_of(relay: RunningRelay, name: str, mode: str = "auto", **more: Any) -> AsyncIterator[Client]:
    """The official SDK's client of `notes`."""
    headers = {"Authorization": f"Bearer {relay.token}"}
    async with (
        httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
        Client(
            streamable_http_client(f"{relay.url}/notes", http_client=http),
            mode=mode,
            client_info=types.Implementation(name=name, version="1.2"),
            **more,
        ) as client,
    ):
        yield client


class ConsolePage:
    """Start it with `async with`."""

    def __init__(self, home: Path, browser: Browser, settings: ModuleType, **relay_settings: Any) -> None:
        self._browser, self._settings = browser, settings
        self.relay = RunningRelay(home, **relay_settings)
        self.notes = Notes()
        self._stack = AsyncExitStack()
        self.page: Page
        self.errors: list[str] = []

    async def __aenter__(self) -> ConsolePage:
        relay = await self._stack.enter_async_context(self.relay)
        await self._stack.enter_async_context(CPythonWorker(relay.url, relay.token, "notes", self.notes.box))
        await relay.has_read("notes")
        context = await self._browser.new_context(viewport={"width": 1440, "height": 900}, accept_downloads=True)
        self._stack.push_async_callback(context.close)
        context.set_default_timeout(self._settings.ACTION_TIMEOUT_MS)
        context.set_default_navigation_timeout(self._settings.NAVIGATION_TIMEOUT_MS)
        self.page = await context.new_page()
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        fragment = (await relay.http.post("/-/codes")).json()["url"].partition("#")[2]
        await self.page.goto(f"{relay.url}/#{fragment}")
        await self.live()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()
        if exc[0] is None:
            assert self.errors == []

    async def live(self) -> None:
        await self.page.locator("#relay[data-state=running]").wait_for()
        await self.page.locator("#feed[data-feed=live]").wait_for()

    async def open(self, query: str = "") -> None:
        """Load the console anew, at an address with this query."""
        await self.page.goto(f"{self.relay.url}/{query}")
        await self.live()

    async def filter(self, text: str) -> None:
        await self.page.get_by_test_id("filter").fill(text)
        await expect(self.page.locator("#calls-list")).to_have_attribute("data-filter", text)

    def line(self, name: str, **data: str) -> Locator:
        """Lines of calls with this name, and `data-…` attributes."""
        more = "".join(f"[data-{key}='{value}']" for key, value in data.items())
        return self.page.locator(f"#calls-list .rows [data-call='{name}']{more}")

    async def open_call(self, name: str, filter: str) -> None:
        """Open the only call with this name that the filter keeps."""
        await self.filter(filter)
        await expect(self.line(name)).to_have_count(1)
        await self.line(name).click()

    @property
    def drawer(self) -> Locator:
        return self.page.get_by_test_id("drawer")

    def client(self, name: str = "tester", mode: str = "auto", **more: Any) -> AbstractAsyncContextManager[Client]:
        return client_of(self.relay, name, mode, **more)
