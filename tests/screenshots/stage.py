"""What the states of pages share: a relay with the demo, an app on another origin, a paired and an unpaired profile.

A state asks the stage for pages, and the stage closes them after each state. The demo page stays open once it was asked
for: it is the server that other pages show.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from tests.support.demo import Demo
from tests.support.other_origin import Site

HERE = Path(__file__).parent
# The approval dialog is in a closed shadow root; axe-core and screenshots' checks must look inside.
OPEN_SHADOWS = """const { attachShadow } = Element.prototype;
Element.prototype.attachShadow = function (options) {
  return attachShadow.call(this, { ...options, mode: "open" });
};"""
# For pages whose look does not depend on their worker: a boot takes seconds of CPU time.
NO_WORKER = """globalThis.SharedWorker = class extends EventTarget {
  port = Object.assign(new EventTarget(), { start() {}, postMessage() {}, close() {} });
};"""
APP = """<!doctype html>
<html lang="en"><head><title>Notes</title><meta name="viewport" content="width=device-width"></head>
<body><main><h1>Notes</h1><p>An app on another origin.</p></main>
<script type="module">
  import { connect } from "RELAY/-/client.js";
  const to = new URLSearchParams(location.search).get("relay") ?? "RELAY";
  globalThis.connection = connect({ server: "notes", relay: to, worker: "/worker.js", panel: true });
</script></body></html>
"""


class Stage:
    """Start it with `async with`."""

    def __init__(self, folder: Path, browser: Browser, settings: ModuleType) -> None:
        self._folder = folder
        self._browser = browser
        self._settings = settings
        self._stack = AsyncExitStack()
        self._of_state = AsyncExitStack()
        self._demo: Page | None = None

    async def __aenter__(self) -> Stage:
        app = self._folder / "app"
        app.mkdir(parents=True)
        self.site = self._stack.enter_context(Site(app))
        self.relay = await self._stack.enter_async_context(Demo(self._folder / "home"))
        self.base = f"http://127.0.0.1:{self.relay.port}"
        (app / "worker.js").write_text(f'import "{self.base}/-/worker.js";\n')
        (app / "index.html").write_text(APP.replace("RELAY", self.base))
        self._paired = await self._profile()
        self._unpaired = await self._profile()
        first = await self._paired.new_page()
        await first.goto((await self.relay.pair()).replace("/-/demo/", "/"))
        await first.locator("#relay[data-state=running]").wait_for()
        await first.close()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._of_state.aclose()
        await self._stack.aclose()

    async def _profile(self) -> BrowserContext:
        context = await self._browser.new_context(viewport={"width": 1440, "height": 900})
        self._stack.push_async_callback(context.close)
        context.set_default_timeout(self._settings.ACTION_TIMEOUT_MS)
        context.set_default_navigation_timeout(self._settings.NAVIGATION_TIMEOUT_MS)
        await context.add_init_script(OPEN_SHADOWS)
        return context

    async def page(self, address: str, *, is_paired: bool = True, has_worker: bool = True) -> Page:
        """A new page at an address of the relay, or of another origin. It is closed after the state."""
        page = await (self._paired if is_paired else self._unpaired).new_page()
        self._of_state.push_async_callback(page.close)
        if not has_worker:
            await page.add_init_script(NO_WORKER)
        await page.goto(address if "://" in address else self.base + address)
        return page

    async def components(self) -> Page:
        """All components on one page of the relay's origin."""
        page = await self._paired.new_page()
        self._of_state.push_async_callback(page.close)
        html = (HERE / "components.html").read_text(encoding="utf-8")
        await page.route("**/-/page/components.html", lambda route: route.fulfill(body=html, content_type="text/html"))
        await page.goto(self.base + "/-/page/components.html")
        return page

    async def demo(self) -> Page:
        """The demo page with all of its tools. It stays open."""
        if self._demo is None:
            self._demo = await self._paired.new_page()
            await self.relay.open(self._demo, self._settings.BOOT_TIMEOUT_MS, url=self.relay.address)
        await self._demo.bring_to_front()
        return self._demo

    async def call(self, tool: str, arguments: dict[str, Any]) -> None:
        """A call of the demo server, by a real client."""
        async with self.relay.client() as client:
            await client.call_tool(tool, arguments)

    async def unfinished_call(self, tool: str, arguments: dict[str, Any]) -> None:
        """A call that waits until the state is over."""
        client = await self._of_state.enter_async_context(self.relay.client())
        task = asyncio.create_task(client.call_tool(tool, arguments))
        self._of_state.callback(task.cancel)

    @asynccontextmanager
    async def state(self) -> AsyncIterator[None]:
        """Within it a state may open pages and leave calls unfinished."""
        try:
            yield
        finally:
            await self._of_state.aclose()
            self._of_state = AsyncExitStack()
