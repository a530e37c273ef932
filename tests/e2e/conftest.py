"""Fixtures of the browser tests: a real Chromium, the real command line, real MCP clients. Settings come from
`playwright.config.py`."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright, expect
from playwright.async_api import Error as PlaywrightError

from tests.support.demo import Demo
from tests.support.playwright_settings import ROOT, load_settings
from tests.support.worker_modes import carry, chosen_modes


@pytest.fixture(scope="session")
def settings() -> ModuleType:
    return load_settings()


@pytest.fixture(scope="session", autouse=True)
def patience(settings: ModuleType) -> None:
    """Waits for conditions of a page have the same timeout as clicks."""
    expect.set_options(timeout=settings.ACTION_TIMEOUT_MS)


@pytest.fixture(scope="session")
def snapshot() -> None:
    """The memory image that workers start from, made of the present files. Without it every boot takes seconds."""
    subprocess.run([sys.executable, ROOT / ".ci" / "setup.py", "snapshot"], check=True)


@pytest.fixture(scope="session")
async def browser(settings: ModuleType, snapshot: None) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**settings.quick_boot_options())
        yield browser
        await browser.close()


@pytest.fixture
def mode(request: pytest.FixtureRequest) -> str:
    """The worker's mode: "shared", or "elected" as in browsers without shared workers (`support.worker_modes`)."""
    return str(getattr(request, "param", chosen_mode()))


@pytest.fixture(scope="module", params=chosen_modes())
def place(request: pytest.FixtureRequest) -> str:
    """The worker's mode, for modules whose tests must hold in both modes and share a browser profile."""
    return str(request.param)


def chosen_mode() -> str:
    """The mode of tests that run in one mode."""
    return os.environ.get("TABRELAY_MODE", "shared")


@asynccontextmanager
async def new_profile(browser: Browser, settings: ModuleType, mode: str) -> AsyncIterator[BrowserContext]:
    """An empty browser profile whose worker runs in this mode."""
    context = await browser.new_context()
    await carry(context, mode)
    context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
    context.set_default_navigation_timeout(settings.NAVIGATION_TIMEOUT_MS)
    yield context
    await context.close()


@pytest.fixture
async def context(browser: Browser, settings: ModuleType, mode: str) -> AsyncIterator[BrowserContext]:
    """A separate browser profile: no worker and no storage is shared with another test."""
    async with new_profile(browser, settings, mode) as context:
        yield context


@pytest.fixture
async def profile(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A separate profile for pages of an app, with the browser's own timeouts."""
    context = await browser.new_context()
    yield context
    await context.close()


# What a page stores, as [place, name, value].
KEPT = """() => [
  ...Object.entries(localStorage).map(([name, value]) => ["localStorage", name, value]),
  ...Object.entries(sessionStorage).map(([name, value]) => ["sessionStorage", name, value]),
  ["cookie", "", document.cookie],
]"""


async def keeps_no_token(page: Page) -> None:
    """After every test: a page stores keys that can't be exported, and no secret."""
    kept = []
    with suppress(PlaywrightError, TimeoutError):  # it may be frozen, or closed
        async with asyncio.timeout(2):
            kept = await page.evaluate(KEPT)
    for place, name, value in kept:
        assert "tr_" not in value and not value.startswith("raw "), (place, name)
        assert place != "cookie" or not value, value


@pytest.fixture
async def rival(browser: Browser, settings: ModuleType) -> AsyncIterator[BrowserContext]:
    """A second profile, which is another browser to the web: no storage and no worker is shared."""
    context = await browser.new_context()
    context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
    yield context
    await context.close()


@pytest.fixture
async def demo(tmp_path: Path) -> AsyncIterator[Demo]:
    """`tabrelay demo` as a user starts it, with its own state directory."""
    async with Demo(tmp_path / "home") as demo:
        yield demo


@pytest.fixture
async def page(context: BrowserContext, demo: Demo, settings: ModuleType) -> AsyncIterator[Page]:
    """The demo page, paired and connected, with all of its tools."""
    page = await context.new_page()
    await demo.open(page, settings.BOOT_TIMEOUT_MS)
    yield page
    await keeps_no_token(page)
