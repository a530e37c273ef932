"""Every order of tag, polyfill and registration: with two releases of each of MCP-B's packages, with a browser's own
WebMCP, and with both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
from mcp_types import CallToolResult, TextContent, Tool
from playwright.async_api import Browser, async_playwright

from tests.support.demo import Demo
from tests.support.npm_bundle import bundle
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

PACKAGES = Path(__file__).parents[2] / "node_modules"
POLYFILLS = {
    "global5": PACKAGES / "@mcp-b" / "global",
    "global2": PACKAGES / "mcp-b-global-2",
    "polyfill5": PACKAGES / "@mcp-b" / "webmcp-polyfill",
    "polyfill2": PACKAGES / "mcp-b-webmcp-polyfill-2",
}

TAG = '<script src="RELAY/-/webmcp.js" data-server="shop" data-token="TOKEN" data-worker="/worker.js"></script>'

REGISTER = """
(document.modelContext ?? navigator.modelContext).registerTool({
  name: "NAME",
  description: "The tool NAME.",
  inputSchema: { type: "object", properties: { say: { type: "string" } } },
  outputSchema: { type: "object", properties: { said: { type: "string" }, more: { type: "string" } } },
  async execute({ say }, more) {
    if (say === "fail") throw new RangeError("This fails in NAME");
    return { said: say, more: typeof more?.elicit };
  },
});
"""

# T is the tag, P the polyfill, R the registration; in brackets: in one script.
ORDERS = ("TPR", "T(PR)", "PTR", "PRT")
NATIVE_ORDERS = ("TR", "RT")
# A polyfill that is loaded where the browser has WebMCP.
BOTH_ORDERS = (*ORDERS, "TRP", "RTP", "RPT")


@dataclass(frozen=True)
class Case:
    polyfill: str
    order: str
    is_native: bool = False

    @property
    def name(self) -> str:
        if self.polyfill == "angular":
            return "angular_price"
        where = "native" if self.is_native else "bare"
        return f"{where}_{self.polyfill}_{self.order}".replace("(", "_").replace(")", "")

    @property
    def is_seen(self) -> bool:
        """The tag is there before the registration."""
        return self.order.index("T") < self.order.index("R")

    def page(self) -> str:
        register = REGISTER.replace("NAME", self.name)
        bundle = f'<script src="/{self.name}.js"></script>'
        parts = {"T": TAG, "P": f'<script src="/{self.polyfill}.js"></script>', "R": f"<script>{register}</script>"}
        if self.polyfill == "angular":
            asking = TAG.replace("data-server", "data-debugging data-server")
            return f'{asking}<p></p><script type="module" src="/angular.js"></script>'
        if "(" in self.order:
            return f"{TAG}{bundle}"
        return "".join(parts[part] for part in self.order)


BARE = [Case(polyfill, order) for polyfill in POLYFILLS for order in ORDERS]
NATIVE = [
    *(Case("none", order, is_native=True) for order in NATIVE_ORDERS),
    *(Case(polyfill, order, is_native=True) for polyfill in ("global5", "global2") for order in BOTH_ORDERS),
]
ANGULAR = Case("angular", "TR", is_native=True)


@dataclass
class Called:
    listed: Tool | None
    result: CallToolResult
    failure: CallToolResult
    all_names: frozenset[str]


@pytest.fixture(scope="module")
async def flagged(settings: ModuleType) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**settings.quick_boot_options(args=["--enable-features=WebMCP"]))
        yield browser
        await browser.close()


@pytest.fixture(scope="module")
async def called(
    browser: Browser, flagged: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Called]:
    """Each case is a page; all pages of a browser are tabs of one server."""
    folder = tmp_path_factory.mktemp("polyfills")
    found: dict[str, Called] = {}
    await bundle("angular.js", folder)
    with Site(folder) as site:
        for cases, used in ((BARE, browser), ([*NATIVE, ANGULAR], flagged)):
            context = await used.new_context()
            context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
            async with Demo(folder / "home", "shop", "--allow-origin", site.origin, verb="serve") as relay:
                write_site(folder, relay, cases)
                for case in cases:
                    page = await context.new_page()
                    await page.goto(f"{site.origin}/{case.name}.html")
                found |= await call_all(relay, cases)
            await context.close()
    return found


def write_site(folder: Path, relay: Demo, cases: list[Case]) -> None:
    address = f"http://127.0.0.1:{relay.port}"
    (folder / "worker.js").write_text(f'import "{address}/-/worker.js";')
    for name, package in POLYFILLS.items():
        (folder / f"{name}.js").write_bytes((package / "dist" / "index.iife.js").read_bytes())
    for case in cases:
        html = f"<!doctype html><title>{case.name}</title>{case.page()}"
        (folder / f"{case.name}.html").write_text(html.replace("RELAY", address).replace("TOKEN", relay.token))
        if "(" in case.order:
            bundled = (folder / f"{case.polyfill}.js").read_text() + REGISTER.replace("NAME", case.name)
            (folder / f"{case.name}.js").write_text(bundled)


async def call_all(relay: Demo, cases: list[Case]) -> dict[str, Called]:
    async with relay.client() as client, asyncio.timeout(BOUND_S):
        names = {case.name for case in cases}
        while True:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            if names <= set(listed):
                break
            await asyncio.sleep(0.2)
        return {
            name: Called(
                listed[name],
                await client.call_tool(name, {"say": "hello", "thing": "pear"}),
                await client.call_tool(name, {"say": "fail", "thing": "fail"}),
                frozenset(listed),
            )
            for name in names
        }


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.mark.parametrize("case", [*BARE, *NATIVE], ids=lambda case: case.name)
def test_a_tool_is_offered_and_runs_in_every_order(called: dict[str, Called], case: Case) -> None:
    was = called[case.name]
    assert was.listed is not None and was.listed.description == f"The tool {case.name}."
    assert "say" in was.listed.input_schema["properties"]
    assert was.result.structured_content is not None and was.result.structured_content["said"] == "hello"
    assert was.failure.is_error
    if case.is_seen:
        # The page's own function ran, with the call context as its second argument, and the error kept its text.
        assert was.result.structured_content["more"] == "function"
        assert text(was.failure) == f"This fails in {case.name}"
        assert was.listed.output_schema is not None and "said" in was.listed.output_schema["properties"]
    elif not case.is_native:
        assert f"This fails in {case.name}" in text(was.failure)


def test_tools_of_angular_are_offered_with_its_signal_and_the_call_context(called: dict[str, Called]) -> None:
    was = called[ANGULAR.name]
    assert was.result.structured_content == {"price": 4, "more": "function", "isSignal": True}
    assert was.failure.is_error and text(was.failure) == "There is no price of fail"


def test_developer_tools_of_angular_are_offered_on_request(called: dict[str, Called]) -> None:
    listed = called[ANGULAR.name].all_names
    assert {"angular_di_graph", "angular_signal_graph"} <= listed
