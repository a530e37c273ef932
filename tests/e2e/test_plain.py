"""Plain pages in a real Chromium: one with the official TypeScript SDK v1, one without an SDK and subprotocol.

Neither has code of Tabrelay; the official Python SDK calls both, in both eras.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
from mcp import types
from mcp.shared.exceptions import MCPError
from playwright.async_api import BrowserContext, Page

from tests.support.demo import Demo
from tests.support.npm_bundle import bundle
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S, pause

ERAS = ["auto", "legacy"]


@dataclass
class Plain:
    """A plain page in a tab, on its own origin."""

    relay: Demo
    page: Page
    url: str

    async def open(self) -> None:
        await self.page.goto(self.url)
        await self.initialized()

    async def initialized(self, times: int = 1) -> None:
        await self.page.wait_for_function("times => window.seen?.connected >= times", arg=times)

    async def seen(self, what: str) -> Any:
        return await self.page.evaluate("what => window.seen[what]", what)

    async def until(self, what: str, value: list[str]) -> None:
        same = "([what, value]) => JSON.stringify(window.seen[what]) === JSON.stringify(value)"
        await self.page.wait_for_function(same, arg=[what, value])

    async def online(self, state: str) -> None:
        async with asyncio.timeout(BOUND_S):
            while (await self.relay.status())["servers"][0]["state"] != state:
                await pause()


@dataclass
class Place:
    """The site of one kind of page, and the relay that is open to it."""

    relay: Demo
    url: str


@pytest.fixture(scope="module", params=["sdk", "bare"])
async def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    kind: str = request.param
    site = Site(tmp_path_factory.mktemp("app"))
    await bundle(f"{kind}.js", site.folder)
    (site.folder / "index.html").write_text(f'<!doctype html><script type="module" src="{kind}.js"></script>')
    flags = ("--plain", "notes", "--allow-origin", site.origin)
    async with Demo(tmp_path_factory.mktemp("home"), *flags, verb="serve", away_wait_s=1) as relay:
        with site:
            yield Place(relay, f"{site.origin}/?relay=ws://127.0.0.1:{relay.port}/notes")


@pytest.fixture
async def plain(place: Place, context: BrowserContext) -> Plain:
    plain = Plain(place.relay, await context.new_page(), place.url)
    await plain.open()
    return plain


def text(result: types.CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize("era", ERAS)
async def test_its_tools_are_listed_and_called_with_progress(plain: Plain, era: str) -> None:
    received: list[tuple[float, float | None]] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append((progress, total))

    async with plain.relay.client(era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["add", "count", "wait", "greet"]
        assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert text(await client.call_tool("count", {"to": 3}, progress_callback=on_progress)) == "3"
    assert received == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize("era", ERAS)
async def test_clients_at_the_same_time_get_their_own_answers(plain: Plain, era: str) -> None:
    async with plain.relay.client(era) as one, plain.relay.client(era) as two:
        calls = [client.call_tool("add", {"a": n, "b": 0}) for n in range(10) for client in (one, two)]
        answers = [text(result) for result in await asyncio.gather(*calls)]
        assert answers == [str(n) for n in range(10) for _ in range(2)]


@pytest.mark.parametrize("era", ERAS)
async def test_a_cancelled_call_stops_in_the_page(plain: Plain, era: str) -> None:
    async with plain.relay.client(era) as client:
        running = asyncio.create_task(client.call_tool("wait", {}))
        await plain.until("calls", ["wait"])
        running.cancel()
        await plain.until("cancelled", ["wait"])
        assert text(await client.call_tool("add", {"a": 1, "b": 1})) == "2"


@pytest.mark.parametrize("era", ERAS)
async def test_the_person_at_the_client_is_asked(plain: Plain, era: str) -> None:
    asked: list[str] = []

    async def answer(context: Any, params: types.ElicitRequestParams) -> types.ElicitResult:
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"name": "Ada"})

    async with plain.relay.client(era, elicitation_callback=answer) as client:
        assert text(await client.call_tool("greet", {})) == "Hello Ada"
    assert asked == ["What is your name?"]
    assert await plain.seen("calls") == ["greet"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_reloaded_page_serves_the_same_client_and_lost_calls_fail_with_the_reason(
    plain: Plain, era: str
) -> None:
    async with plain.relay.client(era) as client:
        running = asyncio.create_task(client.call_tool("wait", {}))
        await plain.until("calls", ["wait"])
        await plain.page.reload()
        with pytest.raises(MCPError) as lost:
            await running
        assert (lost.value.error.code, lost.value.error.data["reason"]) == (-31011, "browser_gone")
        await plain.initialized()
        assert text(await client.call_tool("add", {"a": 4, "b": 4})) == "8"


@pytest.mark.parametrize("era", ERAS)
async def test_while_the_page_is_away_tools_are_listed_and_calls_say_what_to_do(plain: Plain, era: str) -> None:
    async with plain.relay.client(era) as client:
        async with asyncio.timeout(BOUND_S):
            while not (await plain.relay.status())["servers"][0]["tools"]:
                await pause()
        await plain.page.close()
        await plain.online("offline")
        assert len((await client.list_tools()).tools) == 4
        with pytest.raises(MCPError, match=r"Open its page \(last seen") as away:
            await client.call_tool("add", {"a": 1, "b": 1})
        assert (away.value.error.code, away.value.error.data["delivered"]) == (-31010, "no")


async def test_a_second_tab_takes_over_and_the_first_is_kept_for_later(plain: Plain, context: BrowserContext) -> None:
    second = Plain(plain.relay, await context.new_page(), plain.url)
    await second.open()
    async with plain.relay.client() as client:
        await client.call_tool("add", {"a": 1, "b": 1})
        assert (await plain.seen("calls"), await second.seen("calls")) == ([], ["add"])
        await second.page.close()
        async with asyncio.timeout(BOUND_S):
            while await plain.seen("calls") == []:
                with suppress(MCPError):  # it was still connecting to the closed tab
                    await client.call_tool("add", {"a": 1, "b": 1})
        assert await plain.seen("connected") == 1


async def test_it_serves_again_after_the_relay_has_restarted(plain: Plain) -> None:
    dials_again = await plain.page.evaluate("window.seen.dials !== undefined")
    await plain.relay.stop()
    await plain.relay.start()
    if dials_again:
        await plain.initialized(2)
        assert await plain.seen("extras") == []
    else:  # the SDK does not: its page is reloaded
        await plain.open()
    async with plain.relay.client() as client:
        assert text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"
