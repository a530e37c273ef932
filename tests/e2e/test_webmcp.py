"""WebMCP: tools that a page registers with its model context become tools of its server, with one script tag.

In three kinds of browser: one with WebMCP itself, one with the polyfill, and one with the shapes of earlier drafts
(schemas and arguments as JSON text, no events).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import CallToolResult, TextContent, Tool
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.demo import Demo
from tests.support.documented_pages import fetch_files
from tests.support.other_origin import Site

ROOT = Path(__file__).parents[2]
KINDS = ("native", "polyfill", "draft")
POLYFILL = ROOT / "node_modules" / "@mcp-b" / "webmcp-polyfill" / "dist" / "index.iife.js"

DRAFT = """
globalThis.tools = new Map();
const modelContext = {
  registerTool(tool) { tools.set(tool.name, tool); },
  unregisterTool(name) { tools.delete(name); },
  provideContext({ tools: all }) { tools.clear(); for (const tool of all) tools.set(tool.name, tool); },
  getTools: async () => [...tools.values()].map(({ execute, inputSchema, ...rest }) =>
    ({ ...rest, inputSchema: JSON.stringify(inputSchema) })),
  async executeTool({ name }, text) {
    if (typeof JSON.parse(text) !== "object") throw new TypeError("not JSON text");
    const value = await tools.get(name).execute(JSON.parse(text));
    return typeof value === "string" ? value : JSON.stringify(value);
  },
};
Object.defineProperty(navigator, "modelContext", { value: modelContext });
"""

PAGE = """<!doctype html>
<title>Shop</title>
SCRIPTS
<p>The shop.</p>
"""

TAG = """<script src="RELAY/-/webmcp.js" data-server="shop" data-token="TOKEN" data-worker="/worker.js"></script>"""

REGISTER = """
globalThis.modelContext = document.modelContext ?? navigator.modelContext;
globalThis.ends = {};
globalThis.register = (tool) => {
  ends[tool.name] = new AbortController();
  return modelContext.registerTool({ description: `The tool ${tool.name}.`, ...tool }, ends[tool.name]);
};
globalThis.withdraw = (name) => modelContext.unregisterTool ? modelContext.unregisterTool(name) : ends[name].abort();
register({
  name: "price",
  description: "What a thing costs.",
  inputSchema: { properties: { thing: { type: "string" } }, required: ["thing"] },
  annotations: { readOnlyHint: true, untrustedContentHint: true },
  execute({ thing }) {
    if (thing === "moon") throw new RangeError("The moon is not for sale");
    return { thing, price: thing.length };
  },
});
register({
  name: "buy",
  inputSchema: { type: "object", properties: {} },
  annotations: { consequentialHint: true },
  execute: async () => "bought",
});
register({
  name: "picture",
  execute: () => ({ content: [{ type: "image", mimeType: "image/png", data: "iVBORw0KGgo=" }] }),
});
register({
  name: "wait",
  execute: (_input, options) => new Promise((_resolve, reject) => {
    document.title = "waiting";
    options.signal.addEventListener("abort", () => {
      document.title = "cancelled";
      reject(options.signal.reason);
    });
  }),
});
"""

FORM = """<form toolname="search" tooldescription="Search the shop." toolautosubmit>
  <input name="words" toolparamdescription="What to look for"><button>Search</button>
</form>
<script>
document.forms[0].addEventListener("submit", (event) => {
  event.preventDefault();
  event.respondWith(Promise.resolve({ found: [event.target.words.value] }));
});
</script>"""


@pytest.fixture(scope="module")
async def flagged(settings: ModuleType) -> AsyncIterator[Browser]:
    """A Chromium with WebMCP, which is still behind a flag."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(**settings.quick_boot_options(args=["--enable-features=WebMCP"]))
        yield browser
        await browser.close()


def only(*kinds: str) -> pytest.MarkDecorator:
    """Skips the other kinds, which lack the feature."""
    return pytest.mark.parametrize("shop", kinds, indirect=True, scope="module")


@dataclass
class Shop:
    """A web app, its relay and one browser."""

    kind: str
    relay: Demo
    site: Site
    context: BrowserContext

    async def open(self, name: str, *scripts: str) -> Page:
        """Write a page and open it in a new tab."""
        filled = "\n".join(scripts).replace("RELAY", self.address).replace("TOKEN", self.relay.token)
        (self.site.folder / name).write_text(PAGE.replace("SCRIPTS", filled))
        page = await self.context.new_page()
        await page.goto(f"{self.site.origin}/{name}")
        return page

    async def offers(self, page: Page, tool: str, *, is_there: bool = True) -> None:
        """Wait until the hub lists a tool, or no longer lists it."""
        await page.evaluate(
            "async (client) => { globalThis.shop ??= (await import(client)).connect({ server: 'shop' }); }",
            f"{self.address}/-/client.js",
        )
        await page.wait_for_function(
            """([tool, isThere]) => shop.state.state === "connected" && shop.catalogue
                && shop.catalogue.tools.some(({ name }) => name === tool) === isThere""",
            arg=[tool, is_there],
        )

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.relay.port}"

    @property
    def context_script(self) -> str:
        """The script that makes a model context, where the browser has none."""
        return {"native": "", "polyfill": '<script src="/polyfill.js"></script>'}.get(
            self.kind, f"<script>{DRAFT}</script>"
        )


@pytest.fixture(scope="module", params=KINDS)
async def shop(
    request: pytest.FixtureRequest,
    browser: Browser,
    flagged: Browser,
    settings: ModuleType,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Shop]:
    folder = tmp_path_factory.mktemp("webmcp")
    site = Site(folder)
    context = await (flagged if request.param == "native" else browser).new_context()
    context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
    # No user is present to allow destructive calls: other tests cover the approval.
    flags = ("--allow-origin", site.origin, "--approve", "none")
    async with Demo(folder / "home", "shop", *flags, verb="serve") as relay:
        (folder / "worker.js").write_text(f'import "http://127.0.0.1:{relay.port}/-/worker.js";')
        (folder / "polyfill.js").write_bytes(POLYFILL.read_bytes())
        with site:
            yield Shop(request.param, relay, site, context)
    await context.close()


@pytest.fixture(scope="module")
async def page(shop: Shop) -> Page:
    """The model context first, then the tag, then the page's own scripts."""
    form = "" if shop.kind == "draft" else FORM
    page = await shop.open("index.html", shop.context_script, TAG, f"<script>{REGISTER}</script>", form)
    await shop.offers(page, "wait")
    return page


async def tools(shop: Shop) -> dict[str, Tool]:
    async with shop.relay.client() as client:
        return {tool.name: tool for tool in (await client.list_tools()).tools}


async def call(shop: Shop, name: str, arguments: dict[str, Any] | None = None) -> CallToolResult:
    async with shop.relay.client() as client:
        return await client.call_tool(name, arguments or {})


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


async def test_registered_tools_are_listed_with_schema_and_hints(shop: Shop, page: Page) -> None:
    listed = await tools(shop)
    price, buy = listed["price"], listed["buy"]
    assert price.description == "What a thing costs."
    # A schema without a type is one for an object.
    assert price.input_schema == {
        "type": "object",
        "properties": {"thing": {"type": "string"}},
        "required": ["thing"],
    }
    assert price.annotations is not None and price.annotations.read_only_hint is True
    assert price.annotations.destructive_hint is None
    assert price.meta == {"webmcp/untrustedContentHint": True} and buy.meta is None
    assert buy.annotations is not None and buy.annotations.destructive_hint is True
    assert listed["picture"].input_schema["type"] == "object"


async def test_results_are_what_the_tool_returned(shop: Shop, page: Page) -> None:
    assert (await call(shop, "price", {"thing": "pear"})).structured_content == {"thing": "pear", "price": 4}
    assert text(await call(shop, "buy")) == "bought"
    [picture] = (await call(shop, "picture")).content
    assert picture.type == "image"


async def test_an_error_keeps_its_text_and_bad_arguments_never_arrive(shop: Shop, page: Page) -> None:
    failed = await call(shop, "price", {"thing": "moon"})
    assert failed.is_error and text(failed) == "The moon is not for sale"
    wrong = await call(shop, "price", {"thing": 5})
    assert wrong.is_error and "arguments.thing: expected string" in text(wrong)


async def test_cancelling_a_call_aborts_the_tools_signal(shop: Shop, page: Page) -> None:
    async with shop.relay.client() as client:
        waiting = asyncio.create_task(client.call_tool("wait", {}))
        await page.wait_for_function("document.title === 'waiting'")
        waiting.cancel()
        await page.wait_for_function("document.title === 'cancelled'")
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_what_the_page_withdraws_is_withdrawn_and_may_come_back_changed(shop: Shop, page: Page) -> None:
    await page.evaluate("register({ name: 'sale', description: 'Today only.', execute: () => 'first' })")
    await shop.offers(page, "sale")
    assert text(await call(shop, "sale")) == "first"
    await page.evaluate("withdraw('sale')")
    await shop.offers(page, "sale", is_there=False)
    assert "sale" not in await tools(shop)
    async with shop.relay.client() as client:
        with pytest.raises(MCPError, match='Unknown tool "sale"'):
            await client.call_tool("sale", {})
    await page.evaluate("register({ name: 'sale', description: 'Again.', execute: () => 'second' })")
    await shop.offers(page, "sale")
    assert (await tools(shop))["sale"].description == "Again."
    assert text(await call(shop, "sale")) == "second"


@only("native", "polyfill")
async def test_a_refused_registration_does_not_replace_the_tool(shop: Shop, page: Page) -> None:
    refused = await page.evaluate(
        "modelContext.registerTool({ name: 'buy', description: 'No.', execute: () => 'stolen' }).catch(String)"
    )
    assert "InvalidStateError" in refused
    assert text(await call(shop, "buy")) == "bought"


@only("native", "polyfill")
async def test_a_declared_form_is_a_tool(shop: Shop, page: Page) -> None:
    assert (await tools(shop))["search"].input_schema["properties"]["words"]["description"] == "What to look for"
    assert (await call(shop, "search", {"words": "pear"})).structured_content == {"found": ["pear"]}


async def test_a_tag_that_comes_last_finds_the_tools_that_were_there_before(shop: Shop) -> None:
    page = await shop.open("late.html", shop.context_script, f"<script>{REGISTER}</script>", TAG)
    await shop.offers(page, "wait")
    assert (await call(shop, "price", {"thing": "plum"})).structured_content == {"thing": "plum", "price": 4}
    assert text(await call(shop, "buy")) == "bought"
    failed = await call(shop, "price", {"thing": "moon"})
    assert failed.is_error
    # The browser itself keeps nothing of the text.
    assert ("The moon is not for sale" in text(failed)) == (shop.kind != "native")
    await page.close()


@only("polyfill", "draft")
async def test_a_context_that_comes_after_the_tag_is_found_when_it_comes(shop: Shop) -> None:
    page = await shop.open("later.html", TAG.replace("<script", '<script type="module"'))
    if shop.kind == "polyfill":
        await page.add_script_tag(url="/polyfill.js")
    else:
        await page.add_script_tag(content=DRAFT)
    await page.evaluate(REGISTER)
    await shop.offers(page, "buy")
    assert text(await call(shop, "buy")) == "bought"
    await page.close()


async def test_a_tag_without_a_server_logs_what_is_missing(shop: Shop) -> None:
    said: list[str] = []
    shop.context.on("console", lambda message: said.append(message.text))
    page = await shop.open("nameless.html", '<script src="RELAY/-/webmcp.js"></script>')
    assert any("data-server" in line for line in said)
    await page.close()


@only("draft")
async def test_a_context_without_events_is_looked_at_again(shop: Shop, page: Page) -> None:
    await page.evaluate("tools.set('quiet', { name: 'quiet', description: 'Unheard.', execute: () => 'found' })")
    await shop.offers(page, "quiet")
    assert text(await call(shop, "quiet")) == "found"
    await page.evaluate("tools.delete('quiet')")
    await shop.offers(page, "quiet", is_there=False)


@only("draft")
async def test_the_whole_context_can_be_replaced_as_early_drafts_did(shop: Shop, page: Page) -> None:
    await page.evaluate(
        "navigator.modelContext.provideContext({ tools: [{ name: 'one', description: '.', execute: () => '1' }] })"
    )
    await shop.offers(page, "one")
    await shop.offers(page, "buy", is_there=False)
    assert list(await tools(shop)) == ["one"]
    assert text(await call(shop, "one")) == "1"


DEVELOPER_TOOLS = """
register({ name: "plain", execute: () => "plain" });
register({ name: "signals", annotations: { debugging: true }, execute: () => "signals" });
addEventListener("devtoolstooldiscovery", (event) => event.respondWith({
  name: "Framework",
  description: "What the framework knows.",
  tools: [
    { name: "components", description: "List them.", inputSchema: { type: "object" }, execute: () => ["App"] },
    {
      name: "framework:describe",
      description: "Describe an element.",
      inputSchema: {
        type: "object",
        properties: { target: { type: "object", description: "The element.", "x-mcp-type": "HTMLElement" } },
        required: ["target"],
      },
      execute({ target }) {
        const found = { host: target, name: target.localName, run() {}, service: new Date(), list: new Set([1]) };
        return Object.assign(found, { found });
      },
    },
  ],
}));
"""


@only("native", "polyfill")
async def test_developer_tools_are_offered_only_where_the_tag_asks_for_them(shop: Shop) -> None:
    scripts = (f"<script>{REGISTER}</script>", f"<script>{DEVELOPER_TOOLS}</script>")
    page = await shop.open("users.html", shop.context_script, TAG, *scripts)
    await shop.offers(page, "plain")
    listed = await tools(shop)
    assert "signals" not in listed and "components" not in listed
    asking = TAG.replace("data-server", "data-debugging data-server")
    developers = await shop.open("developers.html", shop.context_script, asking, *scripts)
    await shop.offers(developers, "components")
    assert text(await call(shop, "signals")) == "signals"
    assert "App" in str((await call(shop, "components")).content)
    described = await call(shop, "framework_describe", {"target": "p"})
    assert described.structured_content == {
        "host": "<p>",
        "name": "p",
        "run": "[function run]",
        "service": "[Date]",
        "list": [1],
        "found": "[circular]",
    }
    missing = await call(shop, "framework_describe", {"target": "#none"})
    assert missing.is_error and "No element of the page matches target" in text(missing)
    # Tools that come with a listener which is added later are found too.
    await developers.evaluate("""addEventListener("devtoolstooldiscovery", (event) => event.respondWith(
        { name: "Late", tools: [{ name: "late", description: "Late.", execute: () => "late" }] }))""")
    await shop.offers(developers, "late")
    assert text(await call(shop, "late")) == "late"
    await developers.close()
    await page.close()


FRAME = """<script>
const far = { name: "far", description: "A tool of the frame.", execute: () => ({ from: origin }) };
document.modelContext.registerTool(far, { exposedTo: ["ORIGIN"] });
document.modelContext.registerTool({ name: "hidden", description: "Not exposed.", execute: () => "hidden" });
</script>"""


@only("native")
async def test_tools_that_a_frame_of_another_origin_exposes_are_offered_if_the_tag_names_it(
    shop: Shop, tmp_path: Path
) -> None:
    with Site(tmp_path) as other:
        origin = other.origin.replace("localhost", "127.0.0.1")
        (tmp_path / "frame.html").write_text(FRAME.replace("ORIGIN", shop.site.origin))
        frame = f'<iframe src="{origin}/frame.html" allow="tools"></iframe>'
        own = f"<script>{REGISTER}</script>"
        unaware = await shop.open("unaware.html", TAG, own, frame)
        await shop.offers(unaware, "wait")
        assert "far" not in await tools(shop)
        asking = TAG.replace("data-server", f'data-frames="{origin}" data-server')
        page = await shop.open("frames.html", asking, own, frame)
        await shop.offers(page, "far")
        listed = await tools(shop)
        assert "hidden" not in listed
        assert listed["far"].meta == {"webmcp/origin": origin} and listed["buy"].meta is None
        assert (await call(shop, "far")).structured_content == {"from": origin}
        await page.close()
        await unaware.close()


@only("native")
async def test_a_form_that_navigates_its_frame_answers_with_the_json_ld_of_the_next_page(shop: Shop) -> None:
    form = FORM.partition("<script>")[0].replace("<form", '<form action="found.html"').replace("search", "search_frame")
    (shop.site.folder / "inner.html").write_text(form)
    data = """<script type="application/ld+json">{ "@type": "Product", "name": "Pear" }</script>"""
    (shop.site.folder / "found.html").write_text(f"<!doctype html><title>Found</title>{data}")
    page = await shop.open("outer.html", TAG, '<iframe src="inner.html"></iframe>')
    await shop.offers(page, "search_frame")
    found = await call(shop, "search_frame", {"words": "pear"})
    assert found.structured_content == {"@type": "Product", "name": "Pear"}
    await page.close()


@only("native")
async def test_a_form_that_navigates_the_tab_returns_the_new_address(shop: Shop) -> None:
    form = FORM.partition("<script>")[0].replace("<form", '<form action="next.html"').replace("search", "search_tab")
    (shop.site.folder / "next.html").write_text("<!doctype html><title>Next</title>")
    page = await shop.open("leaving.html", TAG, f"<script>{REGISTER}</script>", form)
    await shop.offers(page, "search_tab")
    gone = await call(shop, "search_tab", {"words": "pear"})
    assert not gone.is_error and f"{shop.site.origin}/next.html?words=pear" in text(gone)
    await page.wait_for_url("**/next.html?words=pear")
    await page.close()


@only("native")
async def test_the_guides_page_works_unchanged(shop: Shop) -> None:
    guide = (ROOT / "docs" / "guides" / "webmcp.md").read_text()
    [html] = re.findall(r"```html\n(<!doctype html>.*?)```", guide, re.DOTALL)
    await fetch_files(shop.site.folder, shop.relay)
    filled = html.replace('data-server="notes"', 'data-server="shop" data-token="TOKEN"')
    page = await shop.open("guide.html", filled)
    await shop.offers(page, "add_note")
    assert text(await call(shop, "add_note", {"text": "Buy milk."})) == "There are 1 notes now."
    failed = await call(shop, "add_note", {"text": " "})
    assert failed.is_error and text(failed) == "An empty note is no note."
    assert await page.locator("li").all_inner_texts() == ["Buy milk."]
    await page.close()
