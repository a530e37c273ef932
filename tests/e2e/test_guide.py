"""The examples of the guides, in an app on another origin: plain page, Python in worker and page, a typed bundle."""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext

from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.documented_pages import fetch_files
from tests.support.nodejs import MODULES, node
from tests.support.npm_bundle import esbuild
from tests.support.other_origin import Site

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
WRITTEN = "http://127.0.0.1:4747"
OFFERED = """name => globalThis.shown?.state.state === "connected"
    && shown.catalogue?.tools.some((tool) => tool.name === name)"""
# Gives the test access to the example's connection: a second connect() returns the same one.
LOOK = """<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.shown = connect({ server: "notes", relay: "RELAY", worker: "/tabrelay.js", token: "TOKEN" });
</script>"""


def block(guide: str, language: str) -> str:
    """The first code block of a guide in this language."""
    text = (GUIDES / f"{guide}.md").read_text(encoding="utf-8")
    found = re.search(rf"```{language}\n(.*?)```", text, re.DOTALL)
    assert found is not None
    return found[1]


class App:
    """A developer's folder, and the relay that it names."""

    def __init__(self, folder: Path, origin: str, relay: Demo) -> None:
        self.folder, self.origin, self.relay = folder, origin, relay
        self.here = f"http://127.0.0.1:{relay.port}"

    def fill(self, example: str, modules: str = "") -> str:
        """An example with this relay's address, and with a token instead of manual pairing."""
        given = f'worker: "/tabrelay.js", token: "{self.relay.token}"{modules}'
        filled = example.replace(WRITTEN, self.here).replace('worker: "/tabrelay.js"', given)
        return filled.replace('worker="/tabrelay.js"', f'worker="/tabrelay.js", token="{self.relay.token}"')

    def write(self, name: str, html: str) -> str:
        look = LOOK.replace("RELAY", self.here).replace("TOKEN", self.relay.token)
        (self.folder / name).write_text(f"{html}\n{look}")
        return f"{self.origin}/{name}"


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), "notes", "--allow-origin", site.origin, verb="serve") as relay:
        app = App(folder, site.origin, relay)
        await fetch_files(folder, relay)
        (folder / "tools.py").write_text(block("python", "python"))
        with site:
            yield app


@pytest.fixture
async def profile(browser: Browser) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    yield context
    await context.close()


async def test_the_plain_page_and_python_in_the_worker(app: App, profile: BrowserContext, settings: ModuleType) -> None:
    page = await profile.new_page()
    await page.goto(app.write("index.html", app.fill(block("pages", "html"), ', modules: ["/tools.py"]')))
    for name in ("write_note", "word_count"):
        await page.wait_for_function(OFFERED, arg=name, timeout=settings.BOOT_TIMEOUT_MS)
    async with app.relay.client() as client:
        assert text(await client.call_tool("write_note", {"text": "Buy bread."})) == "Written."
        assert await page.locator("#note").inner_text() == "Buy bread."
        [note] = (await client.read_resource("notes://current")).contents
        assert note.text == "Buy bread."  # type: ignore[union-attr]
        improved = (await client.get_prompt("improve", {"tone": "formal"})).messages[0].content
        assert improved.text == "Make this formal: Buy bread."  # type: ignore[union-attr]
        counted = await client.call_tool("word_count", {"text": "To be or not to be", "unique": True})
        assert counted.structured_content == {"result": 4}
        assert text(await client.call_tool("repeat", {"text": "ho", "times": 3})) == "ho ho ho"
        wrong = await client.call_tool("repeat", {"text": "ho", "times": 11})
        assert wrong.is_error and "arguments.times: expected at most 10" in text(wrong)


async def test_python_in_the_page(app: App, profile: BrowserContext, settings: ModuleType) -> None:
    page = await profile.new_page()
    html = "<!doctype html><title>By PyScript</title>" + app.fill(block("pyscript", "html"))
    await page.goto(app.write("python.html", html))
    await page.wait_for_function(OFFERED, arg="page_title", timeout=settings.BOOT_TIMEOUT_MS)
    async with app.relay.client() as client:
        assert text(await client.call_tool("page_title", {})) == "By PyScript"


async def test_python_in_the_page_by_micropython(app: App, profile: BrowserContext, settings: ModuleType) -> None:
    page = await profile.new_page()
    html = "<!doctype html><title>Small</title><body>" + app.fill(block("micropython", "html"))
    await page.goto(app.write("micropython.html", html))
    await page.wait_for_function(OFFERED, arg="write", timeout=settings.BOOT_TIMEOUT_MS)
    async with app.relay.client() as client:
        assert text(await client.call_tool("write", {"text": "ho ", "times": 3})) == "Written."
        assert "ho ho ho" in await page.locator("body").inner_text()


async def test_the_bundled_app_is_typed_and_runs(app: App, profile: BrowserContext, settings: ModuleType) -> None:
    project = app.folder / "project"
    installed = project / "node_modules" / "tabrelay"
    async with httpx2.AsyncClient(trust_env=False) as http:
        package = (await http.get(f"{app.here}/-/tabrelay.tgz")).content
    with tarfile.open(fileobj=io.BytesIO(package)) as archive:
        archive.extractall(project / "unpacked", filter="data")
    installed.parent.mkdir()
    (project / "unpacked" / "package").rename(installed)
    (project / "app.ts").write_text(app.fill(block("frameworks", "ts")))
    flags = ["--strict", "--noEmit", "--target", "es2024", "--lib", "es2024,dom", "--module", "esnext"]
    flags += ["--moduleResolution", "bundler", "--types", ""]
    typed = await node(MODULES / "typescript" / "bin" / "tsc", *flags, str(project / "app.ts"), timeout_s=60)
    assert typed.code == 0, typed.out
    (project / "wrong.ts").write_text('import { connect } from "tabrelay";\nconnect({ sever: "notes" });\n')
    wrong = await node(MODULES / "typescript" / "bin" / "tsc", *flags, str(project / "wrong.ts"), timeout_s=60)
    assert wrong.code != 0 and "sever" in wrong.out
    made = await asyncio.create_subprocess_exec(
        esbuild(), str(project / "app.ts"), "--bundle", "--format=esm", "--minify", f"--outfile={app.folder / 'app.js'}"
    )
    assert await made.wait() == 0
    page = await profile.new_page()
    await page.goto(app.write("bundled.html", '<!doctype html><script type="module" src="/app.js"></script>'))
    await page.wait_for_function(OFFERED, arg="add", timeout=settings.BOOT_TIMEOUT_MS)
    async with app.relay.client() as client:
        assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"


async def test_the_python_of_the_guide_passes_a_strict_type_check(app: App) -> None:
    checked = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-incremental",
            "--config-file",
            "",
            str(app.folder / "tools.py"),
        ),
        stdout=asyncio.subprocess.PIPE,
    )
    said, _ = await checked.communicate()
    assert checked.returncode == 0, said.decode()
