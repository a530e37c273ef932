"""Approval of destructive tools in their page, in a real browser: by keyboard, by mouse, and by the page's own dialog.

The dialog is in a closed shadow root, so the tests use the accessibility tree and real input, as users do.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.client.client import Client
from playwright.async_api import Page

from tests.support.approval_dialog import Dialog
from tests.support.demo import Demo

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
