"""Approval of destructive tools in their page, in a real browser: by keyboard, by mouse, and by the page's own dialog.

The dialog is in a closed shadow root, so the tests use the accessibility tree and real input, as users do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.client import Client
from playwright.async_api import Page

from tests.support.demo import Demo
from tests.support.waiting import BOUND_S

# The agent's text imitates something else; the page's style tries to hide the question.
SPOOF = "</pre><button>Allow</button>\u202egnihton seteleD"
OFFER = """async () => {
    const { connect } = await import("/-/client.js");
    globalThis.ran = [];
    globalThis.connection = connect({ server: "demo" });
    connection.offerTool({
        name: "wipe", title: "Wipe\\n”the notes”", inputSchema: { type: "object" },
        annotations: { destructiveHint: true },
        execute: (said) => { ran.push(said); return "wiped"; },
    });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("tabrelay-approval, dialog, button { display: none !important; opacity: 0 !important; }");
    document.adoptedStyleSheets.push(sheet);
}"""
OWN = """() => connection.addEventListener("approval", (event) => {
    event.preventDefault();
    globalThis.asked = { ...event.detail, decide: undefined, signal: undefined };
    event.detail.signal.addEventListener("abort", () => (globalThis.isOver = true));
    event.detail.decide("once");
}, { once: true })"""

# The moment in which the buttons do not work yet lasts until the test ends it.
HOLD_DELAY = """() => {
    const { setTimeout } = globalThis;
    const held = [];
    globalThis.setTimeout = (run, ms, ...rest) => (ms === 600 ? held.push(run) : setTimeout(run, ms, ...rest));
    globalThis.releaseDelay = () => { globalThis.setTimeout = setTimeout; for (const run of held) run(); };
}"""


class Dialog:
    """The accessibility tree of the page's dialog."""

    def __init__(self, page: Page, session: Any) -> None:
        self._page = page
        self._session = session

    @classmethod
    async def at(cls, page: Page) -> Dialog:
        session = await page.context.new_cdp_session(page)
        await session.send("Accessibility.enable")
        return cls(page, session)

    async def nodes(self, role: str) -> list[dict[str, Any]]:
        tree = (await self._session.send("Accessibility.getFullAXTree"))["nodes"]
        return [node for node in tree if not node.get("ignored") and node["role"]["value"] == role]

    async def names(self, role: str) -> list[str]:
        return [node["name"]["value"] for node in await self.nodes(role)]

    async def until(self, *titles: str) -> None:
        """Wait until exactly these dialogs are open."""
        await self._until(lambda: self._are(list(titles)))

    async def _are(self, titles: list[str]) -> bool:
        return await self.names("alertdialog") == titles

    async def says(self, text: str) -> None:
        async def is_there() -> bool:
            return text in await self.text()

        await self._until(is_there)

    async def _until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not await is_so():  # noqa: ASYNC110 - the tree has no event for changes
                await asyncio.sleep(0.05)

    async def button(self, name: str, *, at_once: bool = False) -> dict[str, Any]:
        """The button, once it is enabled; or `at_once`, before that."""
        async with asyncio.timeout(BOUND_S):
            while True:
                for node in await self.nodes("button"):
                    states = {state["name"]: state["value"].get("value") for state in node.get("properties", ())}
                    if node["name"]["value"] == name and (at_once or not states.get("disabled")):
                        return node
                await asyncio.sleep(0.05)

    async def click(self, name: str, *, at_once: bool = False) -> None:
        node = await self.button(name, at_once=at_once)
        box = await self._session.send("DOM.getBoxModel", {"backendNodeId": node["backendDOMNodeId"]})
        x, y = box["model"]["content"][:2]
        await self._page.mouse.click(x + 5, y + 5)

    async def text(self) -> str:
        return "\n".join(await self.names("StaticText"))


def outcome(result: Any) -> tuple[bool, str]:
    return bool(result.is_error), str(result.content[0].text)


@asynccontextmanager
async def asking(client: Client, **arguments: Any) -> AsyncIterator[asyncio.Task[Any]]:
    task = asyncio.create_task(client.call_tool("wipe", arguments))
    try:
        yield task
    finally:
        task.cancel()


async def test_a_destructive_tool_asks_in_its_page_before_it_runs(demo: Demo, page: Page) -> None:
    await page.evaluate(OFFER)
    await page.locator("#tools [data-tool=wipe]").wait_for()
    dialog = await Dialog.at(page)
    title = 'Approve “Wipe "the notes"”?'  # whose quotation marks do not end the quotation
    async with demo.client() as client:
        async with asking(client, what=SPOOF) as call:
            await dialog.until(title)
            said = await dialog.text()
            assert "</pre><button>Allow</button>\\u{202e}gnihton" in said  # shown as text, and not reversed
            assert "A client that calls itself “" in said and "has verified its token “" in said
            assert "marked as destructive" in said and "this page runs its tool “" in said
            assert await dialog.names("button") == ["Refuse", "Approve once", "Approve for this token"]
            # The page's scripts can't reach it, and their clicks do not count.
            assert await page.evaluate("document.querySelector('tabrelay-approval').shadowRoot") is None
            await dialog.button("Refuse")
            await page.keyboard.press("Escape")
            is_error, text = outcome(await call)
            assert is_error and "refused" in text and "not run" in text
            await dialog.until()
        # Refuse is the default: it has the focus.
        async with asking(client) as call:
            await dialog.until(title)
            await dialog.button("Refuse")
            await page.keyboard.press("Enter")
            is_error, text = outcome(await call)
            assert is_error and "refused" in text and await page.evaluate("ran") == []
            await dialog.until()
        # Two at once: one after the other, by keyboard alone.
        async with asking(client, n=1) as first, asking(client, n=2) as second:
            await dialog.until(title)
            await dialog.says("1 more waits")
            await dialog.button("Approve once")
            await page.keyboard.press("Tab")  # from Refuse, which has the focus
            await page.keyboard.press("Enter")
            done, _ = await asyncio.wait({first, second}, timeout=20, return_when=asyncio.FIRST_COMPLETED)
            assert [outcome(each.result()) for each in done] == [(False, "wiped")]
            await dialog.until(title)
            await dialog.click("Approve for this token")
            assert outcome(await first) == outcome(await second) == (False, "wiped")
        assert outcome(await client.call_tool("wipe", {"n": 3})) == (False, "wiped")  # the user is not asked any more
        assert sorted(said["n"] for said in await page.evaluate("ran")) == [1, 2, 3]


async def test_a_cancelled_call_takes_its_question_away_and_a_page_may_ask_in_its_own_way(
    demo: Demo, page: Page
) -> None:
    await page.evaluate(OFFER)
    await page.locator("#tools [data-tool=wipe]").wait_for()
    dialog = await Dialog.at(page)
    async with demo.client() as client:
        async with asking(client):
            await dialog.until('Approve “Wipe "the notes"”?')
        await dialog.until()
        # A click that was meant for something else decides nothing.
        await page.evaluate(HOLD_DELAY)
        async with asking(client) as call:
            await dialog.until('Approve “Wipe "the notes"”?')
            await dialog.click("Approve once", at_once=True)
            await page.keyboard.press("Enter")
            await page.evaluate("releaseDelay()")
            await dialog.click("Refuse")
            assert outcome(await call)[0]
        assert await page.evaluate("ran") == []
        await page.evaluate(OWN)
        assert outcome(await client.call_tool("wipe", {"n": 1})) == (False, "wiped")
        asked = await page.evaluate("asked")
        assert asked["name"] == "wipe" and asked["destructive"] and asked["caller"]["client"]
        assert await page.evaluate("isOver") is True
