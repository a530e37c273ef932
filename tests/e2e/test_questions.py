"""A question of one browser whose answer reaches the next browser: only the page is the same."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser

from tests.e2e.test_python import IN_WORKER, SHOWCASE
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.running_relay import ACCEPT, modern

ABLE: dict[str, Any] = {
    "_meta": {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}, "sampling": {}, "roots": {}}}
}
ALICE = {"action": "accept", "content": {"name": "Alice"}}


@asynccontextmanager
async def visitor(browser: Browser, settings: ModuleType, site: Site) -> AsyncIterator[None]:
    context = await browser.new_context()
    page = await context.new_page()
    await page.goto(site.origin)
    ready = """() => globalThis.connection?.state.state === "connected"
        && connection.catalogue?.tools.some(({ name }) => name === "announce")"""
    await page.wait_for_function(ready, timeout=settings.BOOT_TIMEOUT_MS)
    yield
    await context.close()


@pytest.mark.requirement("modern-input-required")
async def test_an_answer_comes_to_a_browser_that_did_not_ask(
    browser: Browser, settings: ModuleType, tmp_path: Path
) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    shutil.copy(SHOWCASE, folder)
    with Site(folder) as site:
        async with Demo(tmp_path / "home", "show", "--allow-origin", site.origin, verb="serve") as relay:
            here = f"http://127.0.0.1:{relay.port}"
            (folder / "index.html").write_text(IN_WORKER.replace("RELAY", here).replace("TOKEN", relay.token))
            (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
            headers = {"Authorization": f"Bearer {relay.token}", "Accept": ACCEPT}
            async with httpx2.AsyncClient(base_url=here, headers=headers, trust_env=False, timeout=60) as http:

                async def call(name: str, **more: Any) -> dict[str, Any]:
                    answer = await http.post("/show", **modern("tools/call", {"name": name, **ABLE, **more}))
                    said: dict[str, Any] = answer.json()
                    return said

                async def retry(name: str, first: dict[str, Any]) -> dict[str, Any]:
                    answers = dict.fromkeys(first["inputRequests"], ALICE)
                    return await call(name, inputResponses=answers, requestState=first["requestState"])

                async with visitor(browser, settings, site):
                    asked = {name: (await call(name))["result"] for name in ("interview", "patient")}
                async with visitor(browser, settings, site):
                    kept = await retry("patient", asked["patient"])
                    lost = await retry("interview", asked["interview"])
    assert kept["result"]["content"][0]["text"] == "Alice 1"
    assert (lost["error"]["code"], lost["error"]["data"]["reason"]) == (-31011, "browser_gone")
