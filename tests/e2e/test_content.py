"""Content of the relay's own pages: they load nothing from other hosts, and texts of tools never run as code."""

from __future__ import annotations

from types import ModuleType
from urllib.parse import urlsplit

from playwright.async_api import BrowserContext, Page, expect

from tests.support.demo import Demo, blocked

MARKUP = '<img src=x onerror="window.pwned=1"><script>window.pwned=1</script><b id=injected>bold</b>'
TOOL = """async (markup) => {
    const { connect } = await import("/-/client.js");
    connect({ server: "demo" }).offerTool({
        name: "poisoned", title: markup, description: markup, inputSchema: { type: "object" },
        execute: () => { throw new Error(markup); },
    });
}"""


async def test_the_pages_load_from_the_relay_alone_and_markup_in_texts_stays_text(
    demo: Demo, context: BrowserContext, settings: ModuleType
) -> None:
    asked: set[str] = set()
    context.on("request", lambda request: asked.add(urlsplit(request.url).netloc))
    page = await context.new_page()
    await demo.open(page, settings.BOOT_TIMEOUT_MS)
    await page.evaluate(TOOL, MARKUP)
    await page.locator("#tools [data-tool=poisoned]").wait_for()
    async with demo.client() as client:
        assert (await client.call_tool("poisoned", {})).is_error
        assert (await client.call_tool("list_shapes", {})).structured_content is not None
        assert (await client.call_tool("add", {"a": 1, "b": 2})).content[0].text == "3"  # type: ignore[union-attr]
    await expect(page.locator("#calls [data-phase=failed]")).to_have_count(1)
    own = await context.new_page()
    await own.goto(f"http://127.0.0.1:{demo.port}/")
    # Calls of before the console was open, from the call log.
    await expect(own.locator("#calls-list [data-call=poisoned][data-outcome=tool_error]")).to_have_count(1)
    await expect(own.locator("#calls-list [data-call=add][data-outcome=ok]")).to_have_count(1)
    await own.locator("tr[data-server=demo]").click()
    await expect(own.locator("#drawer [data-tool=poisoned]")).to_contain_text("<img src=x")
    for shown in (page, own):
        assert await shown.locator("#injected").count() == 0
        assert await shown.evaluate("window.pwned") is None
    assert asked == {f"127.0.0.1:{demo.port}"}
    assert blocked(demo.log) == []


async def test_a_page_that_tries_something_else_is_kept_from_it_and_reported(demo: Demo, page: Page) -> None:
    """Shows that the other tests would see a violation: see `Demo.stop`."""
    demo.expects_reports = True
    tries = """async () => {
        const image = document.createElement("img");
        image.src = "http://other.example/a.png";
        document.body.append(image);
        const script = document.createElement("script");
        script.textContent = "window.pwned = 1";
        document.body.append(script);
        document.body.setAttribute("onclick", "window.pwned = 2");
        document.body.click();
        // Later, since a debugger's own calls may evaluate what they like.
        await new Promise((done) => setTimeout(() => { try { Function("window.pwned = 3")(); } catch {} done(); }));
        await fetch("http://127.0.0.1:1/").catch(() => {});
    }"""
    await page.evaluate(tries)
    assert await page.evaluate("window.pwned") is None
    await demo.until(lambda: rules(demo) == {"img", "script", "connect"})


def rules(demo: Demo) -> set[str]:
    return {line.rpartition(" by ")[2].partition("-src")[0] for line in blocked(demo.log)}
