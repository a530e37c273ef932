"""A program that takes the relay's port while the relay is down, against pages and workers in a real Chromium."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from playwright.async_api import Browser, BrowserContext, Page

from tabrelay.assets.npm_package import closure
from tests.e2e.conftest import chosen_mode, keeps_no_token, new_profile
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.port_squatter import RunningSquatter, squatter

JS = Path(__file__).resolve().parents[2] / "browser_pkg" / "tabserver" / "js"
PAGE = """<!doctype html>
<title>Notes</title>
<script type="module">
  import { connect } from "/tabrelay/client.js";
  window.connection = connect({ server: "notes", relay: "RELAY", worker: "/worker.js" });
  connection.addEventListener("pairing", ({ detail }) => (window.code = detail?.code));
  connection.offerTool({ name: "note", description: "The note.", execute: () => "milk and bread" });
</script>
"""
# What the page's code could steal: every value that it can read.
KEYS = """async () => {
  const opening = indexedDB.open("tabrelay");
  await new Promise((resolve) => (opening.onsuccess = resolve));
  const getting = opening.result.transaction("keys").objectStore("keys").getAll();
  await new Promise((resolve) => (getting.onsuccess = resolve));
  opening.result.close();
  const keys = getting.result.flatMap(({ page, worker }) => [page.key, worker.key]);
  const exported = await Promise.allSettled(keys.map((key) => crypto.subtle.exportKey("raw", key)));
  return { count: keys.length, exported: exported.filter(({ status }) => status === "fulfilled").length };
}"""


async def worth(shown: list[str], demo: Demo) -> list[int]:
    """The relay's status for each credential that the other program received."""
    base = f"http://127.0.0.1:{demo.port}"
    async with httpx2.AsyncClient(trust_env=False, base_url=base) as http:
        answers = [await http.get("/-/status", headers={"Authorization": f"Bearer {one}"}) for one in shown]
    return [answer.status_code for answer in answers]


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    async with Demo(tmp_path_factory.mktemp("demo") / "home") as demo:
        yield demo


@pytest.fixture(scope="module")
async def page(browser: Browser, demo: Demo, settings: ModuleType) -> AsyncIterator[Page]:
    """A page whose worker connects to one program after the other."""
    async with new_profile(browser, settings, chosen_mode()) as context:
        page = await context.new_page()
        await demo.open(page, settings.BOOT_TIMEOUT_MS)
        yield page
        await keeps_no_token(page)


@pytest.mark.parametrize("squatting", ["forge", "unknown", "old"])
async def test_a_worker_that_runs_shows_another_program_nothing_and_comes_back_to_the_relay(
    tmp_path: Path, demo: Demo, page: Page, squatting: str, settings: ModuleType
) -> None:
    await demo.stop()
    async with squatter(demo.port, tmp_path, squatting) as squat:
        await squat.until_asked(times=3)
        why = "unauthorized" if squatting == "unknown" else "unproven"
        await page.locator(f"#state[data-why={why}]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
        assert b"websocket" not in squat.got.lower() and b"/-/probe" not in squat.got
        assert "evil" not in await page.locator("body").inner_text()
    squat.assert_no_secret(demo.token)
    await demo.start()
    await page.locator("#state[data-state=connected]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
    assert set(await worth(squat.shown(), demo)) <= {401}
    async with demo.client() as client:
        result: Any = await client.call_tool("add", {"a": 2, "b": 3})
        assert "5" in str(result.content)
    assert await page.evaluate(KEYS) == {"count": 2, "exported": 0}


@pytest.fixture
async def relay(tmp_path: Path) -> AsyncIterator[Demo]:
    async with Demo(tmp_path / "home", "notes", verb="serve") as relay:
        yield relay


async def test_a_bundled_client_loads_no_code_from_another_program_and_comes_back_to_the_relay(
    tmp_path: Path, relay: Demo, context: BrowserContext, settings: ModuleType
) -> None:
    app = tmp_path / "app"
    (app / "tabrelay").mkdir(parents=True)
    for name in closure(JS, "client.js"):
        (app / "tabrelay" / name).parent.mkdir(exist_ok=True)
        (app / "tabrelay" / name).write_bytes((JS / name).read_bytes())
    base = f"http://127.0.0.1:{relay.port}"
    (app / "worker.js").write_text(f'import "{base}/-/worker.js";\n')
    (app / "index.html").write_text(PAGE.replace("RELAY", base))
    connected = "connection.state.state === 'connected' && connection.catalogue?.tools.length > 0"
    with Site(app) as site:
        page = await context.new_page()
        await page.goto(site.origin)
        await page.wait_for_function("window.code")
        async with httpx2.AsyncClient(trust_env=False) as http:
            approval = {"approve": await page.evaluate("code")}
            headers = {"Authorization": f"Bearer {relay.token}"}
            assert (await http.post(f"{base}/-/pairs", json=approval, headers=headers)).is_success
        await page.wait_for_function(connected, timeout=settings.BOOT_TIMEOUT_MS)
        await relay.stop()
        async with squatter(relay.port, tmp_path) as squat:
            await squat.until_asked(times=2)
            await page.close()
            page = await context.new_page()  # the client comes from the app, and starts anew
            await page.goto(site.origin)
            await page.wait_for_function("connection.state.why === 'unproven'")
            assert "is not your relay" in await page.evaluate("connection.state.message")
            _only_asked(squat)
        squat.assert_no_secret(relay.token)
        await relay.start()
        await page.wait_for_function(connected, timeout=settings.BOOT_TIMEOUT_MS)
        assert await page.evaluate("window.code") is None, "it need not be paired again"
        assert set(await worth(squat.shown(), relay)) <= {401}


def _only_asked(squat: RunningSquatter) -> None:
    paths = {line.split(b" ")[1] for line in squat.got.split(b"\r\n") if line.endswith(b" HTTP/1.1")}
    assert {path.partition(b"?")[0] for path in paths} <= {b"/-/prove", b"/-/healthz"}


async def test_a_token_of_an_earlier_version_is_replaced_by_keys(
    demo: Demo, context: BrowserContext, settings: ModuleType
) -> None:
    async with httpx2.AsyncClient(trust_env=False) as http:
        base = f"http://127.0.0.1:{demo.port}"
        headers = {"Authorization": f"Bearer {demo.token}"}
        code = (await http.post(f"{base}/-/codes", headers=headers)).json()["url"].partition("#pair=")[2]
        redeemed = await http.post(f"{base}/-/pair", json={"code": code}, headers={"Origin": base})
    token = redeemed.json()["token"]
    page = await context.new_page()
    await page.add_init_script(
        f"sessionStorage.was ||= localStorage.setItem('tabrelay.token', {token!r}) ?? 'put there once'"
    )
    await page.goto(f"{base}/-/demo/")
    await page.locator("#state[data-state=connected]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
    assert (await page.evaluate("localStorage.getItem('tabrelay.token')")).startswith("key ")
    assert await page.evaluate(KEYS) == {"count": 2, "exported": 0}
    await page.goto(f"{base}/")
    await page.locator("#relay[data-state=running]").wait_for()
