"""A relay of another version: pages and workers of the old one are notified, and the new worker replaces the old
one."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import ModuleType

import httpx2
from playwright.async_api import BrowserContext, Page, expect

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.playwright_settings import ROOT

APP = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "/client/client.js";
globalThis.connection = connect({ server: "notes", relay: "RELAY", worker: "/worker.js", token: "TOKEN" });
connection.offerTool({ name: "whoami", description: "Who is it?", execute: () => "an old client" });
</script>
"""
# The mark of an old copy of the client: its build, and that it accepts no messages as text.
OLD = [
    ("build.js", 'BUILD = ""', 'BUILD = "0123456789abcdef"'),
    ("client/connection.js", "readsText: true,", ""),
    ("client/connection.js", "readsRequests: true,", ""),
    ("client/worker_host.js", 'typeof data === "string" ? JSON.parse(data) : data', "data"),
]


def newer(folder: Path) -> Path:
    """This source tree with another client: the browser's Python is the same, so that it starts as fast."""
    for name in ("relay", "browser_pkg", "web_demo"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "build").symlink_to(ROOT / "build")
    client = folder / "browser_pkg" / "tabserver" / "js" / "client.js"
    client.write_text(client.read_text() + "// A newer version.\n")
    return folder


async def build_of(demo: Demo) -> str:
    async with httpx2.AsyncClient(trust_env=False) as http:
        return str((await http.get(f"http://127.0.0.1:{demo.port}/-/healthz")).json()["build"])


async def test_a_new_relay_brings_a_new_worker_and_retires_the_old_one(
    demo: Demo, page: Page, context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    old = await build_of(demo)
    demo.tree = newer(tmp_path / "tree")
    await demo.stop()
    await demo.start()
    assert await build_of(demo) != old
    # The page was not reloaded: its worker continues, and the page reports that there is a newer version.
    await page.locator("#state[data-state=connected][data-why=version]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
    await expect(page.locator("#state-action")).to_have_text("Reload")
    async with demo.client() as client:
        assert (await client.call_tool("add", {"a": 2, "b": 3})).structured_content == {"result": 5}

    newest = await context.new_page()
    await demo.open(newest, settings.BOOT_TIMEOUT_MS, url=f"http://127.0.0.1:{demo.port}/-/demo/")
    await page.locator("#state[data-state=stopped][data-why=version]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
    await expect(newest.locator("#state")).to_have_attribute("data-state", "connected")
    await newest.evaluate("document.title = 'newest'")
    async with demo.client() as client:
        info = (await client.call_tool("list_shapes", {})).structured_content
        assert info is not None and info["tab"] == "newest"

    # The old worker does not dial again, and its page uses the new one when it is reloaded.
    await page.locator("#state-action").click()
    await page.locator("#state[data-state=connected]:not([data-why=version])").wait_for(
        timeout=settings.BOOT_TIMEOUT_MS
    )
    await expect(newest.locator("#state")).to_have_attribute("data-state", "connected")


async def test_an_app_with_an_old_copy_of_the_client_works_and_shows_what_to_do(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    site = Site(tmp_path / "app")
    site.folder.mkdir()
    shutil.copytree(ROOT / "browser_pkg" / "tabserver" / "js", site.folder / "client")
    for name, new, old in OLD:
        file = site.folder / "client" / name
        assert new in file.read_text()
        file.write_text(file.read_text().replace(new, old))
    async with Demo(tmp_path / "home", "notes", "--allow-origin", site.origin, verb="serve") as relay:
        base = f"http://127.0.0.1:{relay.port}"
        (site.folder / "worker.js").write_text(f'import "{base}/-/worker.js";\n')
        (site.folder / "index.html").write_text(APP.replace("RELAY", base).replace("TOKEN", relay.token))
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            told = "globalThis.connection?.state.state === 'connected' && connection.state.why === 'version'"
            await page.wait_for_function(told, timeout=settings.BOOT_TIMEOUT_MS)
            assert f"npm install {base}/-/tabrelay.tgz" in await page.evaluate("connection.state.message")
            await page.wait_for_function("connection.catalogue?.tools.some(({ name }) => name === 'whoami')")
            async with relay.client() as agent:
                assert "an old client" in str((await agent.call_tool("whoami", {})).content)
