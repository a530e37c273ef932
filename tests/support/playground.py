"""The playground's page, as a visitor uses it."""

from __future__ import annotations

import json
from typing import Any

from playwright.async_api import FrameLocator, Page, expect


class Playground:
    """The editor, its buttons, and what the page shows."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.fault = page.locator("#fault")
        self.said = page.locator("#said")
        self.editor = page.locator("#editor .cm-content")

    @property
    def output(self) -> FrameLocator:
        """The frame that is visible."""
        return self.page.frame_locator("#frames iframe:not(.is-waiting)")

    async def write(self, language: str, source: str) -> None:
        """As a paste does: the editor's own indentation does not apply."""
        await self.page.locator("#language").select_option(language)
        await self.editor.click()
        await self.page.keyboard.press("ControlOrMeta+a")
        await self.page.keyboard.press("Delete")
        await self.page.keyboard.insert_text(source)

    async def start_from(self, name: str) -> None:
        await self.page.locator("#starting-point").select_option("")
        await self.page.locator("#starting-point").select_option(name)
        await self.page.locator(f"#editor[data-loaded={name}]").wait_for()

    async def run(self, *, fails: bool = False) -> None:
        """Until the program has run, or its error is shown."""
        before = int(await self._runs())
        await self.page.locator("#run").click()
        await self._ended(before, fails)

    async def run_by_key(self) -> None:
        before = int(await self._runs())
        await self.editor.press("Control+Enter")
        await self._ended(before, False)

    async def _runs(self) -> str:
        return await self.page.locator("#run").get_attribute("data-runs") or "0"

    async def _ended(self, before: int, fails: bool) -> None:
        await expect(self.page.locator("#run")).to_have_attribute("data-runs", str(before + 1))
        text = await self.fault.inner_text() if await self.fault.is_visible() else ""
        assert bool(text) == fails, text

    async def shown(self, tool: str) -> dict[str, Any]:
        """The definition of a tool that the page shows, when it comes from the relay."""
        row = self.page.locator(f"#tools [data-tool={tool}][data-from=relay]")
        found: dict[str, Any] = json.loads(await row.locator(".code code").text_content() or "")
        return found

    async def marked_line(self) -> int:
        """The line that has an error mark."""
        await self.page.locator("#editor .cm-lint-marker-error").wait_for()
        top = "element => Math.round(element.getBoundingClientRect().top)"
        mark = await self.page.locator("#editor .cm-lint-marker-error").evaluate(top)
        for number in await self.page.locator("#editor .cm-lineNumbers .cm-gutterElement").all():
            box = await number.bounding_box()
            if box and box["y"] - 2 <= mark <= box["y"] + box["height"] and (await number.inner_text()).isdigit():
                return int(await number.inner_text())
        raise AssertionError("no line is marked")
