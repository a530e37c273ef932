"""The example spreadsheet: a person types into cells, an agent calls tools, and both have one sheet and one history."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.test_examples import Visitor, allowed
from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.example_page import ExamplePage


@pytest.fixture(scope="module")
async def visitor(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Visitor]:
    async with Demo(tmp_path_factory.mktemp("home")) as relay:
        context = await browser.new_context()
        context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
        await (await context.new_page()).goto((await relay.pair()).replace("/-/demo/", "/-/demo/examples/todo/"))
        visitor = Visitor(relay, context, settings.BOOT_TIMEOUT_MS)
        yield visitor
        assert visitor.errors == []
        await context.close()


async def type_into(page: Page, cell: str, typed: str) -> None:
    field = page.get_by_label(cell, exact=True)
    await field.click()
    await field.fill(typed)
    await field.press("Enter")


def values(result: Any) -> dict[str, str]:
    rows = result.structured_content
    return {row["address"]: row["value"] for row in (rows if isinstance(rows, list) else rows["result"])}


async def test_a_person_and_an_agent_edit_one_sheet(visitor: Visitor) -> None:
    page = await visitor.open("sheet")
    left = page.get_by_label("D8", exact=True)
    await expect(left).to_have_value("-9")
    await type_into(page, "B4", "25")
    await expect(left).to_have_value("9")
    await expect(page.get_by_label("B5", exact=True)).to_be_focused()  # Enter goes down
    async with visitor.client("sheet", "write_cells") as client:
        assert values(await client.call_tool("read_sheet", {}))["D8"] == "9"
        await client.call_tool("write_cells", {"changes": {"A9": "Coffee", "D9": "=D8/2"}})
        coffee = page.get_by_label("D9", exact=True)
        await expect(coffee).to_have_value("4.50")
        await expect(page.locator("td.is-new")).to_have_count(2)  # marked, as an agent has changed them
        found = (await client.call_tool("seek", {"cell": "D8", "goal": 0, "change": "B3"})).structured_content
        assert found is not None and found["value"] == "98"
        await expect(left).to_have_value("0")

        # The agent changes the cell that the person has only clicked.
        hotel = page.get_by_label("B3", exact=True)
        await hotel.click()
        await client.call_tool("write_cells", {"changes": {"b3": "90"}})
        await page.get_by_label("C3", exact=True).click()
        await expect(hotel).to_have_value("90")
        await page.get_by_role("button", name="Undo").click()

        # One history: the person takes back what the agent did, and the agent what the person did.
        await page.get_by_role("button", name="Undo").click()
        await expect(left).to_have_value("9")
        await type_into(page, "A1", "What")
        assert text(await client.call_tool("undo", {})) == "Undone."
        await expect(page.get_by_label("A1", exact=True)).to_have_value("Item")

        assert text(await allowed(page, client.call_tool("clear_sheet", {}))) == "The sheet is empty."
        await expect(left).to_have_value("")
    await page.get_by_role("button", name="Begin again").click()
    await expect(left).to_have_value("-9")
    await page.close()


async def test_mistakes_are_explained_in_words(visitor: Visitor) -> None:
    page = await visitor.open("sheet")
    await type_into(page, "F1", "=F1+1")
    wrong = page.get_by_label("F1", exact=True)
    await expect(wrong).to_have_value("#error")
    await expect(wrong).to_have_attribute("title", "F1 depends on itself.")
    async with visitor.client("sheet", "write_cells") as client:
        outside = await client.call_tool("write_cells", {"changes": {"Z9": "1"}})
        assert outside.is_error and "The cells are A1 to F12" in text(outside)
        odd = await client.call_tool("write_cells", {"changes": {"F2": "=__import__('os')"}})
        assert "A formula has cells" in values(odd)["F2"]
        nowhere = await client.call_tool("seek", {"cell": "A1", "goal": 1, "change": "B3"})
        assert nowhere.is_error and "is not a number" in text(nowhere)
    await page.get_by_role("button", name="Begin again").click()
    await page.close()


async def test_the_sheet_is_there_after_a_reload_and_in_other_tabs(visitor: Visitor) -> None:
    page, other = await visitor.open("sheet"), await visitor.open("sheet")
    await type_into(page, "A10", "Kept")
    await expect(other.get_by_label("A10", exact=True)).to_have_value("Kept")
    await page.reload()
    await expect(page.get_by_label("A10", exact=True)).to_have_value("Kept")
    example = ExamplePage(other)
    assert '"Kept"' in await example.run("read_sheet")
    await other.close()
    await page.close()
