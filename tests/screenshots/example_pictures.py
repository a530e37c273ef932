"""`python -m tests.screenshots.example_pictures`: the pictures of the examples' index, light and dark.

They are written to web_demo/examples/pictures. A picture shows the app, without the parts that all examples have.
"""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from playwright.async_api import Page, async_playwright

from tests.screenshots.stage import Stage
from tests.screenshots.states import example, example_on_another_origin
from tests.support.playwright_settings import ROOT, load_settings

OUT = ROOT / "web_demo" / "examples" / "pictures"
NAMES = ("todo", "data", "webmcp", "ask", "poll")
APPS = {"sheet": example("sheet", "read_sheet"), **{name: example(name) for name in NAMES}}
WIDTH, HEIGHT = 720, 450
QUALITY = 82
# Below the header, from the app's first part on.
TOP = "document.querySelector('main > .card, main > .parts, main > h1')?.getBoundingClientRect().top + scrollY - 16"


async def photograph(page: Page, name: str) -> None:
    await page.set_viewport_size({"width": WIDTH, "height": 900})
    for scheme in ("light", "dark"):
        await page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", reduced_motion="reduce")
        top = await page.evaluate(TOP)
        clip = {"x": 0, "y": top, "width": WIDTH, "height": HEIGHT}
        path = OUT / f"{name}-{scheme}.jpg"
        await page.screenshot(path=path, type="jpeg", quality=QUALITY, full_page=True, clip=clip)  # type: ignore[arg-type]


async def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    settings = load_settings()
    with tempfile.TemporaryDirectory() as folder:
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(**settings.launch_options())
            async with Stage(Path(folder) / "stage", browser, settings) as stage:
                for name, show in {**APPS, "cross_origin": example_on_another_origin}.items():
                    async with stage.state():
                        await photograph(await show(stage), name)
                    print(name, flush=True)
            await browser.close()


asyncio.run(main())
