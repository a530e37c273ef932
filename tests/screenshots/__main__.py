"""`python -m tests.screenshots [NAME …]`: pictures of every page and state, in three widths, light and dark.

They are written to build/screenshots as NAME-WIDTH-SCHEME.png. A full-page picture shows what a visitor can scroll to.
The command ends with the names of pages that are wider than the window.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

from tests.screenshots.stage import Stage
from tests.screenshots.states import STATES
from tests.support.playwright_settings import ROOT, load_settings

OUT = ROOT / "build" / "screenshots"
WIDTHS = {1440: 900, 1024: 768, 390: 844}
SCHEMES = ("light", "dark")


async def photograph(page: Page, name: str) -> list[str]:
    """Writes the pictures. Returns the widths at which the page scrolls sideways."""
    too_wide = []
    for width, height in WIDTHS.items():
        await page.set_viewport_size({"width": width, "height": height})
        if await page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            too_wide.append(f"{name} is wider than {width} px")
        for scheme in SCHEMES:
            await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
            is_modal = await page.locator("tabrelay-approval, tabrelay-panel").count() > 0
            await page.screenshot(path=OUT / f"{name}-{width}-{scheme}.png", full_page=not is_modal, caret="initial")
    return too_wide


async def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.screenshots", description=__doc__)
    parser.add_argument("names", nargs="*", help="states (all): " + ", ".join(state.name for state in STATES))
    names = parser.parse_args().names
    OUT.mkdir(parents=True, exist_ok=True)
    settings = load_settings()
    faults = []
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(**settings.launch_options())
            async with Stage(Path(folder) / "stage", browser, settings) as stage:
                for state in STATES:
                    if names and state.name not in names:
                        continue
                    async with stage.state():
                        faults += await photograph(await state.show(stage), state.name)
                    print(state.name, flush=True)
            await browser.close()
    print(f"The pictures are in {OUT.relative_to(ROOT)}.", *faults, sep="\n")


asyncio.run(main())
