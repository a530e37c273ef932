"""Reasons why a page can't connect, shown on the page with their remedy: Local Network Access, a wrong token, no relay.

The app is at an address that Chromium is configured to treat as public, so the browser protects this computer from
it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.demo import Demo
from tests.support.other_origin import Site

PAGE = """<!doctype html>
<title>App</title>
<script type="module" src="/app.js"></script>
"""
# The client is the app's own copy, as with a bundler: the browser would block loading the relay's too.
APP = """import { connect } from "/client/client.js";
const token = new URLSearchParams(location.hash.slice(1)).get("token");
globalThis.connection = connect({ server: "notes", relay: "RELAY", worker: "/worker.js", token });
"""
CLIENT = Path(__file__).parents[2] / "browser_pkg" / "tabserver" / "js"


def app_of(site: Site, relay: Demo) -> None:
    """Write the app's files, for this relay."""
    here = f"http://127.0.0.1:{relay.port}"
    (site.folder / "client").symlink_to(CLIENT)
    (site.folder / "index.html").write_text(PAGE)
    (site.folder / "app.js").write_text(APP.replace("RELAY", here))
    (site.folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')


class Public:
    """A public web app, and the relay on this computer that it tries to reach."""

    def __init__(self, browser: Browser, relay: Demo, origin: str) -> None:
        self.browser, self.relay, self.origin = browser, relay, origin

    async def visit(self, context: BrowserContext, token: str) -> Page:
        page = await context.new_page()
        await page.goto(f"{self.origin}/#token={token}")
        return page


@pytest.fixture(scope="module")
async def public(settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Public]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    port = site.origin.rpartition(":")[2]
    origin = f"http://app.example:{port}"
    flags = [
        "--host-resolver-rules=MAP app.example 127.0.0.1",
        f"--ip-address-space-overrides=127.0.0.1:{port}=public",
        f"--unsafely-treat-insecure-origin-as-secure={origin}",
    ]
    async with (
        Demo(tmp_path_factory.mktemp("home"), "notes", "--allow-origin", origin, verb="serve") as relay,
        async_playwright() as playwright,
    ):
        app_of(site, relay)
        browser = await playwright.chromium.launch(**settings.quick_boot_options(args=flags))
        with site:
            yield Public(browser, relay, origin)
        await browser.close()


async def state(page: Page, condition: str, timeout_ms: float = 90_000) -> dict[str, Any]:
    """The state of the connection, once a condition on it holds."""
    await page.wait_for_function(
        f"() => {{ const s = globalThis.connection?.state; return s && ({condition}); }}", timeout=timeout_ms
    )
    found: dict[str, Any] = await page.evaluate("() => connection.state")
    return found


async def test_a_page_without_the_permission_shows_that_and_connects_when_it_has_it(
    public: Public, settings: ModuleType
) -> None:
    context = await public.browser.new_context()
    page = await public.visit(context, public.relay.token)
    told = await state(page, "s.why === 'blocked'")
    # Without a window there is no user to ask, which Chromium treats as a denial.
    assert told["state"] == "waiting" and f"does not let {public.origin}" in told["message"]
    await context.grant_permissions(["local-network-access"], origin=public.origin)
    await page.evaluate("() => connection.retry()")
    await state(page, "s.state === 'connected'", settings.BOOT_TIMEOUT_MS)
    await context.close()


async def test_a_page_that_was_denied_shows_where_to_allow_it(public: Public) -> None:
    context = await public.browser.new_context()
    page = await context.new_page()
    session = await context.new_cdp_session(page)
    await session.send(
        "Browser.setPermission",
        {"permission": {"name": "loopback-network"}, "setting": "denied", "origin": public.origin},
    )
    await page.goto(f"{public.origin}/#token={public.relay.token}")
    told = await state(page, "s.why === 'blocked'")
    assert "does not let" in told["message"] and "settings" in told["message"]
    await context.close()


async def test_a_token_that_the_relay_does_not_know_is_named(public: Public, settings: ModuleType) -> None:
    context = await public.browser.new_context()
    await context.grant_permissions(["local-network-access"], origin=public.origin)
    page = await public.visit(context, "wrong")
    told = await state(page, "s.why === 'unauthorized'", settings.BOOT_TIMEOUT_MS)
    assert told["state"] == "waiting" and told["message"], "the relay may be another program, and come back"
    await context.close()


OFFERS = """() => {
    const say = (name) => ({ name, description: "Early.", execute: () => name });
    const offer = (name, signal) => connection.offerTool(say(name), { signal });
    const gone = new AbortController();
    offer("early");
    offer("withdrawn", gone.signal);
    connection.offerResource({ uri: "early://note", name: "note", read: () => "early" });
    connection.offerPrompt({ name: "early_prompt", get: () => "early" });
    gone.abort();
}"""


async def test_what_is_offered_before_there_is_a_worker_is_kept(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    """The relay does not run yet when the page offers its tools."""
    site = Site(tmp_path / "app")
    site.folder.mkdir()
    async with Demo(tmp_path / "home", "notes", "--allow-origin", site.origin, verb="serve") as relay:
        app_of(site, relay)
        await relay.stop()
        with site:
            page = await context.new_page()
            await page.goto(f"{site.origin}/#token={relay.token}")
            await state(page, "s.why === 'relay_down'")
            await page.evaluate(OFFERS)
            await relay.start()
            await page.evaluate("() => connection.retry()")
            await state(page, "s.state === 'connected'", settings.BOOT_TIMEOUT_MS)
            await page.wait_for_function("() => connection.catalogue?.tools.length", timeout=settings.BOOT_TIMEOUT_MS)
            async with relay.client() as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == ["early"]
                assert "early" in str((await client.call_tool("early", {})).content)
                assert "early" in str((await client.read_resource("early://note")).contents)
                assert "early" in str((await client.get_prompt("early_prompt")).messages)


async def test_a_page_whose_origin_the_relay_does_not_admit_shows_the_command(
    public: Public, context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    """With a valid token, but of an origin that is neither listed nor paired."""
    site = Site(tmp_path / "stranger")
    site.folder.mkdir()
    app_of(site, public.relay)
    with site:
        page = await context.new_page()
        await page.goto(f"{site.origin}/#token={public.relay.token}")
        told = await state(page, "s.why === 'forbidden'", settings.BOOT_TIMEOUT_MS)
        assert told["state"] == "stopped" and f"--allow-origin {site.origin}" in told["message"]


async def test_a_relay_that_does_not_run_is_distinguished_from_a_blocked_connection(public: Public) -> None:
    context = await public.browser.new_context()
    await context.grant_permissions(["local-network-access"], origin=public.origin)
    await public.relay.stop()
    page = await public.visit(context, public.relay.token)
    told = await state(page, "s.why === 'relay_down'")
    assert "tabrelay serve" in told["message"] and told["retry_in_ms"]
    await context.close()
