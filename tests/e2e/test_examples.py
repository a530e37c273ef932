"""The examples as a user tries them: opened in a browser, called by an MCP client, with nothing loaded from other
hosts."""

from __future__ import annotations

import asyncio
import base64
import shutil
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.extension import advertise
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ElicitResult
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.test_page_api import ERAS, text
from tests.e2e.test_tasks import Tasks, ask
from tests.support.approval_dialog import Dialog
from tests.support.demo import Demo
from tests.support.example_page import ExamplePage
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

EXAMPLES = Path(__file__).parents[2] / "web_demo" / "examples"
WRITTEN = "http://127.0.0.1:4747"
LINKS = "links => links.map(({ textContent, href }) => [textContent, href])"


class Visitor:
    """A browser that is paired with the demo's relay, and clients for the servers of its pages."""

    def __init__(self, relay: Demo, context: BrowserContext, boot_timeout_ms: float) -> None:
        self.relay, self.context, self._boot_timeout_ms = relay, context, boot_timeout_ms
        self.here = f"http://127.0.0.1:{relay.port}"
        self.hosts: set[str] = set()
        self.errors: list[str] = []

    async def open(self, folder: str, url: str | None = None) -> Page:
        page = await self.context.new_page()
        page.on("request", lambda asked: self.hosts.add(asked.url.split("/")[2].split(":")[0]))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        await page.goto(url or f"{self.here}/-/demo/examples/{folder}/")
        if url is None:
            await page.locator("tabrelay-status[state=connected]").wait_for(timeout=self._boot_timeout_ms)
        else:
            await expect(page.locator("#status")).to_contain_text("MCP clients reach", timeout=self._boot_timeout_ms)
        return page

    @asynccontextmanager
    async def client(self, server: str, tool: str, **options: Any) -> AsyncIterator[Client]:
        """A client of one server, once it offers a tool."""
        headers = {"Authorization": f"Bearer {self.relay.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            Client(streamable_http_client(f"{self.here}/{server}", http_client=http), **options) as client,
        ):
            await has(client, tool)
            yield client


async def has(client: Client, tool: str, *, there: bool = True) -> None:
    async with asyncio.timeout(60):
        while True:
            if (tool in [item.name for item in (await client.list_tools()).tools]) == there:
                return
            await asyncio.sleep(0.05)


async def allowed(page: Page, call: Coroutine[Any, Any, CallToolResult]) -> CallToolResult:
    """The result of a call that the user has to allow in the page first."""
    running = asyncio.create_task(call)
    await (await Dialog.at(page)).click("Approve once")
    async with asyncio.timeout(BOUND_S):
        return await running


@pytest.fixture(scope="module")
async def visitor(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Visitor]:
    async with Demo(tmp_path_factory.mktemp("home")) as relay:
        context = await browser.new_context()
        context.set_default_timeout(settings.ACTION_TIMEOUT_MS)
        page = await context.new_page()
        await relay.open(page, settings.BOOT_TIMEOUT_MS)
        visitor = Visitor(relay, context, settings.BOOT_TIMEOUT_MS)
        yield visitor
        assert visitor.hosts <= {"127.0.0.1", "localhost"}, "nothing comes from other hosts"
        assert visitor.errors == []
        await context.close()


async def test_the_demo_leads_to_the_examples_and_every_link_of_theirs_leads_somewhere(visitor: Visitor) -> None:
    page = await visitor.context.new_page()
    await page.goto(f"{visitor.here}/-/demo/")
    await page.get_by_role("link", name="Examples").click()
    await expect(page.locator("h1")).to_have_text("Examples")
    links = await page.locator("main a").evaluate_all("links => links.map((link) => link.href)")
    assert len(links) == 21
    pictures = page.locator("main .card img")
    await expect(pictures).to_have_count(7)
    for picture in await pictures.all():
        await picture.scroll_into_view_if_needed()
        await expect(picture).to_have_js_property("complete", True)
        assert await picture.evaluate("picture => picture.naturalWidth") == 720
    for link in links:
        answer = await page.request.get(link)
        assert answer.ok, link
    await page.close()


@ERAS
async def test_the_todo_list_is_shared(visitor: Visitor, mode: str) -> None:
    page = await visitor.open("todo")
    async with visitor.client("todo", "add_todo", mode=mode) as client:
        added = await client.call_tool("add_todo", {"text": f"Water the plants ({mode})"})
        assert added.structured_content is not None
        row = page.locator("#list li", has_text=f"Water the plants ({mode})")
        await expect(row).to_have_count(1)
        await client.call_tool("finish_todo", {"id": added.structured_content["id"]})
        await expect(row).to_have_class("done is-new")  # marked, as an agent has changed it
        [listed] = (await client.read_resource("todo://list")).contents
        assert f"- [x] Water the plants ({mode})" in listed.text  # type: ignore[union-attr]
        await page.get_by_label("What needs doing?").fill("By hand")
        await page.get_by_role("button", name="Add").click()
        todos = (await client.call_tool("list_todos", {"only_open": True})).structured_content
        assert todos is not None and "By hand" in [todo["text"] for todo in todos["todos"]]
        removed = await allowed(page, client.call_tool("remove_todo", {"id": added.structured_content["id"]}))
        assert text(removed) == f"Removed “Water the plants ({mode})”."
        await expect(row).to_have_count(0)
        wrong = await client.call_tool("finish_todo", {"id": 999})
        assert wrong.is_error and text(wrong) == "There is no to-do 999. Call list_todos for the ids."
        empty = await client.call_tool("add_todo", {"text": ""})
        assert empty.is_error and "arguments.text" in text(empty)
    await page.close()


async def test_the_data_page_gives_a_table_and_a_picture(visitor: Visitor) -> None:
    page = await visitor.open("data")
    async with visitor.client("weather", "plot") as client:
        await expect(page.locator("#table tr")).to_have_count(5)
        table = (await client.call_tool("temperatures", {"cities": ["Oslo"]})).structured_content
        assert table is not None
        [oslo] = table if isinstance(table, list) else table["result"]
        assert (oslo["mean"], oslo["warmest"], oslo["coldest"]) == (6.9, "Jul", "Jan")
        both = (await client.call_tool("plot", {"cities": ["Lisbon", "Oslo"]})).content
        every = (await client.call_tool("plot", {})).content
        assert [block.type for block in both] == ["text", "image"]
        pictures = [base64.b64decode(blocks[1].data) for blocks in (both, every)]  # type: ignore[union-attr]
        assert all(picture.startswith(b"\x89PNG") and len(picture) > 5_000 for picture in pictures)
        assert pictures[0] != pictures[1]
        wrong = await client.call_tool("plot", {"cities": ["Atlantis"]})
        assert wrong.is_error and "Lisbon" in text(wrong)
    await page.close()


async def test_the_shops_tools_come_and_go_with_its_basket(visitor: Visitor) -> None:
    page = await visitor.open("webmcp")
    async with visitor.client("shop", "add_to_basket") as client:
        found = (await client.call_tool("find_products", {"word": "novel"})).structured_content
        assert found is not None and [product["id"] for product in found["products"]] == ["novel"]
        await has(client, "check_out", there=False)
        await client.call_tool("add_to_basket", {"id": "novel"})
        await expect(page.locator("#basket li")).to_have_count(1)
        await has(client, "check_out")
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "check_out"]
        assert tool.annotations is not None and tool.annotations.destructive_hint
        assert text(await allowed(page, client.call_tool("check_out", {}))) == "Paid 14 €. Thank you."
        await has(client, "check_out", there=False)
        wrong = await client.call_tool("add_to_basket", {"id": "yacht"})
        assert wrong.is_error and text(wrong) == "The shop has no “yacht”. Call find_products for the ids."
    await page.close()


@pytest.mark.parametrize("folder", ["todo", "sheet", "data", "webmcp", "ask", "poll"])
async def test_each_example_shows_its_tools_how_to_connect_and_its_source(visitor: Visitor, folder: str) -> None:
    page = await visitor.open(folder)
    example = ExamplePage(page)
    server = {"data": "weather", "webmcp": "shop", "ask": "album"}.get(folder, folder)
    await expect(page.locator("tabrelay-header a[aria-current=page]")).to_have_text("Examples")
    await expect(page.locator("#version")).to_contain_text("Tabrelay")
    # The same recipe as on other pages, with the relay's own command for the token.
    await expect(example.recipes).to_contain_text(f"{visitor.here}/{server}")
    await expect(example.recipes).to_contain_text(" token --home ")
    await expect(example.recipes).to_contain_text("Then ask it")
    for link in await example.source.all():
        answer = await page.request.get(await link.evaluate("link => link.href"))
        assert answer.ok
    await page.close()


async def test_run_calls_the_tools_of_the_todo_list(visitor: Visitor) -> None:
    page = await visitor.open("todo")
    example = ExamplePage(page)
    assert '"todos"' in await example.run("list_todos")
    assert "Call the dentist" in await example.run("add_todo", text="Call the dentist")
    await expect(page.locator("#list li.is-new")).to_contain_text("Call the dentist")
    await example.start("remove_todo", id="1")
    await (await Dialog.at(page)).click("Approve once")
    assert "Removed" in await example.result("remove_todo")
    await page.close()


async def test_run_draws_the_plot_and_shows_it(visitor: Visitor) -> None:
    page = await visitor.open("data")
    example = ExamplePage(page)
    assert '"coldest": "Jan"' in await example.run("temperatures", cities='["Oslo"]')
    await example.run("plot", cities='["Quito"]')
    await expect(example.tool("plot").locator(".result img")).to_be_visible()
    # On a phone the canvas has the pixels of its place, so that its texts keep their size.
    await page.set_viewport_size({"width": 390, "height": 844})
    sizes = "canvas => [canvas.width / devicePixelRatio, canvas.clientWidth]"
    async with asyncio.timeout(BOUND_S):
        while len(set(await page.locator("#plot").evaluate(sizes))) > 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    await page.close()


async def test_run_follows_tools_that_come_and_go(visitor: Visitor) -> None:
    page = await visitor.open("webmcp")
    example = ExamplePage(page)
    await expect(example.tool("find_products")).to_be_visible()
    await expect(example.tool("check_out")).to_have_count(0)
    assert "is in the basket" in await example.run("add_to_basket", id="tea")
    await example.start("check_out")
    await (await Dialog.at(page)).click("Approve once")
    await expect(page.locator("#total")).to_have_text("The basket is empty.")
    await expect(example.tool("check_out")).to_have_count(0)
    await page.close()


async def test_run_asks_what_the_album_asks(visitor: Visitor) -> None:
    page = await visitor.open("ask")
    example = ExamplePage(page)
    await example.start("delete_photos", ids="[2, 4]")
    question = example.tool("delete_photos").locator(".question")
    await expect(question).to_contain_text("Delete “Harbour again”, “Gulls” for good?")
    await question.get_by_role("checkbox").check()
    await question.get_by_role("button", name="Answer").click()
    assert "4 photos are left" in await example.result("delete_photos")
    await page.get_by_role("button", name="Restore").click()
    await expect(page.locator("#photos li")).to_have_count(6)
    await page.close()


@ERAS
async def test_the_album_asks_before_it_deletes(visitor: Visitor, mode: str) -> None:
    asked: list[str] = []
    answers = [ElicitResult(action="decline"), ElicitResult(action="accept", content={"delete": True})]

    async def answer(context: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    page = await visitor.open("ask")
    photos = page.locator("#photos li")
    async with visitor.client("album", "delete_photos", mode=mode, elicitation_callback=answer) as client:
        assert "said no" in text(await client.call_tool("delete_photos", {"ids": [2, 4]}))
        await expect(photos).to_have_count(6)
        assert "4 photos are left" in text(await client.call_tool("delete_photos", {"ids": [2, 4]}))
        await expect(photos).to_have_count(4)
        assert asked == ["Delete “Harbour again”, “Gulls” for good?"] * 2
    async with visitor.client("album", "delete_photos", mode=mode) as dumb:
        refused = await dumb.call_tool("delete_photos", {"ids": [1]})
        assert refused.is_error and "nothing was deleted" in text(refused)
        await expect(photos).to_have_count(4)
    await page.close()


async def test_the_poll_has_an_app_a_task_a_skill_and_hints(visitor: Visitor) -> None:
    page = await visitor.open("poll")
    tasks = Tasks()
    apps = advertise("io.modelcontextprotocol/ui", {"mimeTypes": ["text/html;profile=mcp-app"]})
    async with visitor.client("poll", "show_poll", extensions=[tasks, apps]) as client:
        tools = {tool.name: tool.meta or {} for tool in (await client.list_tools()).tools}
        assert tools["show_poll"]["ui"] == {"resourceUri": "ui://show_poll"}
        assert tools["show_poll"]["anthropic/alwaysLoad"] is True
        assert tools["cast_vote"]["ui"]["visibility"] == ["app"]
        # The page of the app follows the poll: a vote there is a vote here, and the reverse.
        [content] = (await client.read_resource("ui://show_poll")).contents
        assert "view.live" in getattr(content, "text", "") and "<base href=" in getattr(content, "text", "")
        watch = {"uri": "poll://state"}
        seen = (await client.call_tool("show_poll_watch", watch)).structured_content
        assert seen is not None
        following = asyncio.create_task(client.call_tool("show_poll_watch", watch | {"version": seen["version"]}))
        await page.get_by_role("button", name="Vote for Salad").click()
        async with asyncio.timeout(BOUND_S):
            later = (await following).structured_content
        assert later is not None and '"Salad","count":1' in later["contents"][0]["text"]
        await client.call_tool("cast_vote", {"option": "Salad"})
        await expect(page.locator("#options li", has_text="Salad")).to_contain_text("Salad: 2")
        assert text(await client.call_tool("audit_poll", {})) == "5 ballots. Noodles wins."
        assert tasks.begun.qsize() == 1
        await expect(page.locator("#audit")).to_have_text("Counted 5 of 5 ballots.")
        skills = (await ask(client.session, "skills/list"))["skills"]
        assert [skill["frontmatter"]["name"] for skill in skills] == ["run-a-poll"]
    async with visitor.client("poll", "show_poll") as client:
        assert "cast_vote" not in {tool.name for tool in (await client.list_tools()).tools}
        assert text(await client.call_tool("show_poll", {})) == "Noodles: 2\nPizza: 1\nSalad: 2"
    await page.close()


async def test_the_app_on_another_origin_pairs_and_works(visitor: Visitor, tmp_path: Path) -> None:
    shutil.copytree(EXAMPLES / "cross_origin", tmp_path / "app")
    file = tmp_path / "app" / "tabrelay.js"
    source = file.read_text(encoding="utf-8")
    assert source.count(WRITTEN) == 1
    file.write_text(source.replace(WRITTEN, visitor.here), encoding="utf-8")
    with Site(tmp_path / "app") as site:
        opening = asyncio.create_task(visitor.open("", site.origin))
        await approve_the_page(visitor)
        page = await opening
        await has_a_note(visitor, page)
        await page.close()


async def test_one_click_opens_the_app_on_another_origin(visitor: Visitor) -> None:
    page = await visitor.context.new_page()
    await page.goto(f"{visitor.here}/-/demo/examples/")
    pages = await page.locator("nav a").evaluate_all(LINKS)
    await page.get_by_role("link", name="A note on another origin").click()
    await expect(page.locator("#status")).to_contain_text("waits for your approval")
    assert page.url != f"{visitor.here}/" and page.url.startswith("http://127.0.0.1:")
    await approve_the_page(visitor)
    await expect(page.locator("tabrelay-status")).to_have_attribute("state", "connected")
    assert await page.locator("nav a").evaluate_all(LINKS) == pages
    await its_tool_runs_in_the_console(page)
    await has_a_note(visitor, page)
    await page.get_by_role("link", name="Examples", exact=True).click()
    await expect(page.locator("h1")).to_have_text("Examples")
    await page.close()


async def its_tool_runs_in_the_console(page: Page) -> None:
    async with page.expect_popup() as opening:
        await page.get_by_role("link", name="Run them in the console").click()
    console = await opening.value
    tool = console.get_by_test_id("drawer").locator("[data-tool=read_note]")
    await tool.get_by_role("button", name="Try").click()
    await tool.locator("form button[type=submit]").click()
    await expect(tool.get_by_test_id("outcome")).to_contain_text("Buy milk.")
    await console.close()


async def approve_the_page(visitor: Visitor) -> None:
    headers = {"Authorization": f"Bearer {visitor.relay.token}"}
    async with httpx2.AsyncClient(trust_env=False, headers=headers) as http:
        async with asyncio.timeout(BOUND_S):
            while True:
                if asking := (await http.get(f"{visitor.here}/-/pairs")).json()["asking"]:
                    break
                await asyncio.sleep(0.05)
        approved = await http.post(f"{visitor.here}/-/pairs", json={"approve": asking[0]["code"]})
        assert approved.is_success, approved.text


async def has_a_note(visitor: Visitor, page: Page) -> None:
    async with visitor.client("notes", "append_to_note") as client:
        assert text(await client.call_tool("append_to_note", {"line": "And bread."})) == "Added."
        assert text(await client.call_tool("read_note", {})) == "Buy milk.\nAnd bread."
        await expect(page.locator("#note")).to_have_value("Buy milk.\nAnd bread.")
