"""The dialog that asks the user about a tool call, as a user finds it: by the accessibility tree and with real input.

The dialog is in a closed shadow root, so scripts and locators do not reach it. It makes no decisions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from playwright.async_api import Page

from tests.support.waiting import BOUND_S


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
