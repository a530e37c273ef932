"""Two browsers for one name: of one owner, the newest gets it and the other is notified; another owner is refused."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

from playwright.async_api import BrowserContext, Page, expect

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

# A page of another owner that offers the same name. Resolves when its worker has settled.
OFFER = """async (relay) => {
    const { connect } = await import(relay.url + "/-/client.js");
    const connection = connect({ server: "demo", token: relay.token, worker: "/worker.js" });
    connection.offerTool({ name: "whose", description: "Whose page this is", execute: () => "the other site" });
    globalThis.connection = connection;
    const settled = () => ["connected", "stopped"].includes(connection.state.state) || connection.state.why === "taken";
    while (!settled()) await new Promise((done) => connection.addEventListener("state", done, { once: true }));
    return connection.state;
}"""
STOP = """async () => {
    connection.stop();
    while (connection.state.state !== "stopped")
        await new Promise((done) => connection.addEventListener("state", done, { once: true }));
}"""
RETRY = """async () => {
    connection.retry();
    while (connection.state.why !== "taken" && connection.state.state !== "connected")
        await new Promise((done) => connection.addEventListener("state", done, { once: true }));
    return connection.state;
}"""


def sockets(demo: Demo) -> int:
    return sum("[accepted]" in line for line in demo.log)


async def test_the_newest_browser_has_the_name_and_the_other_can_take_it_back(
    demo: Demo, page: Page, rival: BrowserContext, settings: ModuleType
) -> None:
    second = await rival.new_page()
    await demo.open(second, settings.BOOT_TIMEOUT_MS, url=await demo.pair())
    await page.locator("#state[data-state=stopped][data-why=replaced]").wait_for()
    await expect(page.locator("#state-title")).to_have_text("Another browser now offers “demo”")
    await expect(page.locator("#state-action")).to_have_text("Take over")
    assert sockets(demo) == 2

    await page.locator("#state-action").click()
    await page.locator("#state[data-state=connected]").wait_for()
    await second.locator("#state[data-why=replaced]").wait_for()
    assert sockets(demo) == 3

    # Events that make a waiting worker dial at once do not make a dormant one dial: it is awake, online and visible.
    for event in ("online", "focus", "visibilitychange"):
        await second.evaluate(
            "(name) => (name === 'visibilitychange' ? document : window).dispatchEvent(new Event(name))", event
        )
    async with demo.client() as client:
        await page.evaluate("document.title = 'the first browser'")
        for _ in range(20):
            info = await client.call_tool("list_shapes", {})
            assert info.structured_content is not None
            assert info.structured_content["tab"] == "the first browser"
    await expect(second.locator("#state")).to_have_attribute("data-why", "replaced")
    await expect(page.locator("#state")).to_have_attribute("data-state", "connected")
    assert sockets(demo) == 3


async def test_a_page_of_another_origin_may_not_take_the_name_and_shows_why(
    context: BrowserContext, rival: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    site = Site(tmp_path / "site")
    site.folder.mkdir()
    (site.folder / "index.html").write_text("<!doctype html><title>other</title>")
    async with Demo(tmp_path / "home", "--allow-origin", site.origin) as demo:
        relay = {"url": f"http://127.0.0.1:{demo.port}", "token": demo.token}
        (site.folder / "worker.js").write_text(f'import "{relay["url"]}/-/worker.js";')
        with site:
            stranger = await rival.new_page()
            await stranger.goto(site.origin)
            assert (await stranger.evaluate(OFFER, relay))["state"] == "connected"
            mine = await context.new_page()
            await mine.goto(demo.url)
            await mine.locator("#state[data-why=taken]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
            await expect(mine.locator("#state-title")).to_have_text("Another page holds “demo”")
            await expect(mine.locator("#state-text")).to_contain_text("another origin")
            async with demo.client() as client:
                assert [tool.name for tool in (await client.list_tools()).tools] == ["whose"]
            # When it leaves, the name is free for the page that retries by itself, and the other owner has to wait.
            await stranger.evaluate(STOP)
            await mine.locator("#state[data-state=connected]").wait_for(timeout=BOUND_S * 1000)
            state = await stranger.evaluate(RETRY)
            assert (state["state"], state["why"]) == ("waiting", "taken")
            assert "another origin" in state["message"]
            assert sockets(demo) == 2
