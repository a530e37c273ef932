"""The README's own examples, in a page on another origin: what a web developer copies must work."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from types import ModuleType

from playwright.async_api import BrowserContext

from tabrelay.cli.main import main
from tests.support.demo import Demo
from tests.support.documented_pages import fetch_files
from tests.support.other_origin import Site

ROOT = Path(__file__).parents[2]

# Resolves when the hub lists all of the tools named, of any tab.
OFFERED = """async ([client, ...names]) => {
    const { connect } = await import(client);
    const connection = connect({ server: "notes" });
    const next = (kind) => new Promise((resolve) => connection.addEventListener(kind, resolve, { once: true }));
    const offered = (name) => connection.catalogue?.tools.some((tool) => tool.name === name);
    while (!names.every(offered)) await next("catalogue");
    while (connection.state.state !== "connected") await next("state");
}"""


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


async def test_a_page_on_another_origin_offers_tools_in_javascript_and_python(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    [html] = blocks("html")
    [python] = blocks("python")
    site = Site(tmp_path / "app")
    site.folder.mkdir()
    async with Demo(tmp_path / "home", "notes", verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        filled = html.replace('server: "notes"', 'server: "notes", modules: ["/tools.py"]')
        (site.folder / "index.html").write_text(f"<!doctype html><p id=note>Buy milk.</p>{filled}")
        await fetch_files(site.folder, relay)
        (site.folder / "tools.py").write_text(python)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            code = await page.locator("tabrelay-panel .code").inner_text()
            assert await asyncio.to_thread(main, ["pairs", "approve", code, "--home", str(tmp_path / "home")]) == 0
            await page.evaluate(OFFERED, [f"{here}/-/client.js", "current_note", "word_count"])
            async with relay.client() as client:
                note = await client.call_tool("current_note", {})
                assert note.content[0].text == "Buy milk."  # type: ignore[union-attr]
                words = await client.call_tool("word_count", {"text": "To be or not to be", "unique": True})
                assert words.structured_content == 4
