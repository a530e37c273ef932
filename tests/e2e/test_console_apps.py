"""Apps in the console: of a worker, and of a server of the official SDK behind the relay. A frame has no origin."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType

import pytest
from playwright.async_api import Browser, FrameLocator, Locator, expect

from tabrelay.config.specs import StdioSpec
from tabserver.handlers.apps import app
from tabserver.handlers.toolbox import Toolbox, resource, resource_updated, tool
from tests.support.console_page import ConsolePage
from tests.support.cpython_worker import CPythonWorker

VIEW = """<!doctype html><head></head><output></output><button id="add">Add</button><button id="wipe">Wipe</button>
<p id="tried"></p><script>
tabrelay.connect().then((view) => {
  view.live("counter://now", ({ count }) => (document.querySelector("output").value = count));
  document.querySelector("#add").onclick = () => view.callTool("counter_add", { by: 2 });
  document.querySelector("#wipe").onclick = async () => {
    const tried = [];
    const attempt = async (name, what) => tried.push(`${name}: ${await what().then(() => "done", () => "refused")}`);
    await attempt("tool", () => view.callTool("wipe"));
    await attempt("network", () => fetch("/-/status"));
    await attempt("storage", async () => localStorage.length);
    await attempt("console", async () => parent.document.title);
    document.querySelector("#tried").textContent = tried.join(", ");
  };
});
</script>"""
CLOCK = StdioSpec("clock", sys.executable, (str(Path(__file__).parents[1] / "support" / "app_server.py"),))


class Counter:
    """A server with an app. `wiped`: its tool for models only has run."""

    def __init__(self) -> None:
        self.box, self.count, self.wiped = Toolbox(), 1, False

        @resource("counter://now", mime_type="application/json", toolbox=self.box)
        def now() -> dict[str, int]:
            return {"count": self.count}

        @tool(toolbox=self.box, visibility=["app"])
        def counter_add(by: int) -> None:
            """Add to the counter."""
            self.set(self.count + by)

        @tool(toolbox=self.box, visibility=["model"])
        def wipe() -> None:
            """Forget the counter."""
            self.wiped = True

        @app(html=VIEW, live=["counter://now"], toolbox=self.box, csp={"connectDomains": ["https://api.example"]})
        def counter() -> None:
            """Show the counter."""

    def set(self, count: int) -> None:
        self.count = count
        resource_updated("counter://now", toolbox=self.box)


@pytest.fixture(scope="module")
async def console(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ConsolePage]:
    async with ConsolePage(tmp_path_factory.mktemp("console"), browser, settings, specs=[CLOCK]) as console:
        yield console


async def opened(console: ConsolePage, server: str, tool: str) -> tuple[Locator, FrameLocator]:
    """The app of a tool, in the drawer of its server."""
    await console.open(f"?server={server}&part=tools")
    item = console.drawer.locator(f"[data-tool={tool}]")
    await item.get_by_role("button", name="Show app").click()
    return item, item.frame_locator("iframe")


async def test_an_app_is_shown_in_a_frame_without_an_origin_and_changes_its_server(console: ConsolePage) -> None:
    counter = Counter()
    relay = console.relay
    async with CPythonWorker(relay.url, relay.token, "counter", counter.box):
        await relay.has_read("counter")
        item, view = await opened(console, "counter", "counter")
        await expect(view.locator("output")).to_have_text("1")
        await view.locator("#add").click()
        await expect(view.locator("output")).to_have_text("3")
        assert counter.count == 3
        counter.set(10)
        await expect(view.locator("output")).to_have_text("10")
        await view.locator("#wipe").click()
        refused = "tool: refused, network: refused, storage: refused, console: refused"
        await expect(view.locator("#tried")).to_have_text(refused)
        assert not counter.wiped
        await expect(item.locator("iframe")).to_have_attribute("sandbox", "allow-scripts allow-forms")
        await expect(console.line("counter_watch").first).to_be_visible()
        await item.get_by_role("button", name="Close app").click()
        await expect(item.locator("iframe")).to_have_count(0)
        # The call that waited for a change ends with the frame.
        await expect(console.line("counter_watch", state="running")).to_have_count(0)


async def test_an_app_of_an_upstream_is_shown_with_the_result_of_its_tool(console: ConsolePage) -> None:
    await console.relay.has_read("clock")
    _, view = await opened(console, "clock", "clock")
    await expect(view.locator("p")).to_have_text("It is noon.")
