"""The page of an example, as a visitor uses it: its tools with *Run*, *Connect a client*, and its source."""

from __future__ import annotations

from playwright.async_api import Locator, Page, expect


class ExamplePage:
    """The parts that every example has beside its app."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.recipes = page.locator("#recipes")
        self.source = page.locator(".source a")

    def tool(self, name: str) -> Locator:
        return self.page.locator(f"#tools [data-tool={name}]")

    async def start(self, tool: str, **values: str) -> None:
        """Fill in the form of a tool, and press *Run*."""
        form = self.tool(tool)
        for name, value in values.items():
            await form.locator(f"[name={name}]").fill(value)
        await form.get_by_role("button", name="Run").click()

    async def run(self, tool: str, **values: str) -> str:
        """The text of the result."""
        await self.start(tool, **values)
        return await self.result(tool)

    async def result(self, tool: str) -> str:
        await expect(self.tool(tool).locator("[role=status]")).to_contain_text("after")
        return await self.tool(tool).locator(".result").inner_text()
