"""The README's examples, in a page on another origin, and its commands in order."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from pathlib import Path
from types import ModuleType

from playwright.async_api import BrowserContext

from tabrelay.cli.main import main
from tests.support.demo import Demo
from tests.support.documented_pages import fetch_files
from tests.support.other_origin import Site
from tests.support.typed_commands import TypedCommands
from tests.support.waiting import until

ROOT = Path(__file__).parents[2]

# Resolves when the hub lists all of these tools, of any tab.
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
        (site.folder / "index.html").write_text(f"<!doctype html><p id=note>Buy milk.</p>{html}")
        await fetch_files(site.folder, relay)
        (site.folder / "tools.py").write_text(python)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            code = await page.locator("tabrelay-panel .pairing-code").inner_text()
            assert await asyncio.to_thread(main, ["pairs", "approve", code, "--home", str(tmp_path / "home")]) == 0
            await page.evaluate(OFFERED, [f"{here}/-/client.js", "current_note", "word_count"])
            async with relay.client() as client:
                note = await client.call_tool("current_note", {})
                assert note.content[0].text == "Buy milk."  # type: ignore[union-attr]
                words = await client.call_tool("word_count", {"text": "To be or not to be", "unique": True})
                assert words.structured_content == {"result": 4}


# -- the lines of the README, in order ---------------------------------------------------------------------------------

# `make demo` is the set-up of this test, and the relay.


def lines() -> list[str]:
    """The commands of the README's shell blocks, without comments. A line that ends in a backslash continues."""
    text = "\n".join(blocks("sh")).replace("\\\n", " ")
    found = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in found if line]


def reader_in(folder: Path) -> TypedCommands:
    """A user with an empty home directory who types the README's lines, in a folder like a checkout."""
    reader = TypedCommands(folder / "home", folder / "checkout")
    (reader.folder / ".venv").mkdir()
    (reader.folder / ".venv" / "bin").symlink_to(Path(sys.executable).parent)
    reader.add_program("make", f"exec {reader.folder}/.venv/bin/tabrelay demo --no-open")
    return reader


async def test_the_lines_of_the_readme_work_in_order_in_an_empty_home(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    reader = reader_in(tmp_path)
    typed: list[str] = []
    try:
        for line in lines():
            said = await reader.type(line)
            typed.append(line)
            if line == "make demo":
                [url] = re.findall(r"Page +(\S+)", said)
                page = await context.new_page()
                await page.goto(url)
                await offered(reader, "demo", "add")
            elif line == "tabrelay call demo add a=2 b=3":
                assert said == "5\n"
            elif line.startswith("tabrelay install"):
                client, server = line.split()[2:]
                assert client == "claude-code"
                entry = json.loads((reader.home / ".claude.json").read_text())["mcpServers"][server]
                shown = await reader.type(" ".join([entry["command"], *entry["args"], "--check"]))
                assert "It works." in shown
            elif line == "tabrelay dev notes":
                # The demo has the first port, so this relay takes the next ones.
                [url] = re.findall(r"Page +(\S+)", said)
                assert url != f"http://127.0.0.1:{reader.port}/"
                page = await context.new_page()
                await page.goto(url)
                await offered(reader, "notes", "word_count")
                assert await reader.type("tabrelay call notes word_count text=one") == "1\n"
                assert "All is well." in await reader.type("tabrelay doctor")
        assert [" ".join(line.split()[:2]) for line in typed] == [
            "make demo",
            'export PATH="$PWD/.venv/bin:$PATH"',
            "tabrelay call",
            "tabrelay install",
            "tabrelay init",
            "tabrelay dev",
        ]
    finally:
        await context.close()
        await reader.stop()
    reader.tap.finish()


async def offered(reader: TypedCommands, server: str, tool: str) -> None:
    """Wait until the relay lists the page's tool."""

    async def is_there() -> bool:
        rows = json.loads(await reader.type(f".venv/bin/tabrelay tools {server} --json"))
        return tool in [row["name"] for row in rows]

    await until(is_there)
