"""The documentation in Chromium: ten questions find the right page, with the relay as the only host."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import Browser, Page, expect

from tests.e2e.conftest import new_profile
from tests.support.docs_questions import TYPED, is_answered
from tests.support.paths import ROOT
from tests.support.running_relay import RunningRelay

BASE = "/-/docs/"


@pytest.fixture(scope="module")
def site() -> None:
    """The documentation of the present files, in build/docs."""
    subprocess.run([sys.executable, ROOT / ".ci" / "setup.py", "docs"], check=True)


@pytest.fixture(scope="module")
async def page(
    site: None, browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Page]:
    """The first page of the documentation. Requests to other hosts fail, as without a network."""
    async with (
        RunningRelay(tmp_path_factory.mktemp("home")) as relay,
        new_profile(browser, settings, "shared") as context,
    ):
        await context.route(lambda url: not url.startswith(relay.url), lambda route: route.abort())
        page = await context.new_page()
        await page.goto(relay.url + BASE)
        yield page


@pytest.mark.parametrize("question", TYPED)
async def test_a_question_finds_the_right_page(page: Page, question: str) -> None:
    found = page.locator("#docs-results a")
    await page.locator("#docs-search").fill("")
    await expect(found.first).to_be_hidden()
    await page.locator("#docs-search").fill(question)
    await expect(found.first).to_be_visible()
    addresses = [link.partition(BASE)[2] for link in await found.evaluate_all("all => all.map((each) => each.href)")]
    assert is_answered(question, addresses), addresses


async def test_a_result_leads_to_its_section(page: Page) -> None:
    await page.locator("#docs-search").fill("TR302")
    await page.get_by_role("option", name="TR302").first.click()
    await expect(page.locator("#tr302")).to_be_in_viewport()
