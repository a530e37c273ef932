"""The table of pages and states: add a row to have it photographed by `make screenshots` and checked by axe-core.

A state is a function that gets the `Stage` and returns the page as it should look. States run in this order and share
one relay.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import Page, Route

from tests.screenshots.crowd import many_rows, many_servers
from tests.screenshots.stage import Stage
from tests.support.paths import ROOT

DIAL = "(url) => new Promise((done) => (new WebSocket(url, 'mcp').onclose = () => done()))"
OFFER = """async () => {
    const { connect } = await import("/-/client.js");
    globalThis.second ??= connect({ server: "demo" });
    globalThis.offered ??= second.offerTool({
        name: "delete_notes", title: "Delete notes", description: "Delete notes that match a text.",
        inputSchema: { type: "object" }, annotations: { destructiveHint: true }, execute: () => "deleted",
    });
}"""
FIRST_VISIT = """async () => {
    const { drawing } = await import("/-/demo/page_tools.js");
    drawing.undo(1000);
    localStorage.removeItem("tabrelay-demo-guide");
}"""
ALL_STEPS = """() => localStorage.setItem("tabrelay-demo-guide", '["run", "connect", "tab", "cut", "approve"]')"""
STOP = """async () => {
    const { connection } = await import("/-/demo/page_tools.js");
    connection.stop();
}"""
DRAWING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("draw_circle", {"x": 660, "y": 105, "radius": 56, "color": "yellow"}),
    ("draw_rectangle", {"x": 400, "y": 270, "width": 240, "height": 160, "color": "orange"}),
    ("draw_line", {"points": [[380, 272], [520, 165], [660, 272]], "color": "red", "width": 22}),
    ("draw_circle", {"x": 165, "y": 265, "radius": 72, "color": "green"}),
    ("draw_rectangle", {"x": 148, "y": 330, "width": 34, "height": 100, "color": "brown"}),
    ("write_text", {"x": 262, "y": 96, "text": "Hello, agent!", "size": 42, "color": "purple"}),
)


@dataclass(frozen=True, slots=True)
class PageState:
    """One page in one state. `is_checked`: by axe-core, in `make test`; without it, only photographed."""

    name: str
    show: Callable[[Stage], Awaitable[Page]]
    is_checked: bool = True


async def components(stage: Stage) -> Page:
    page = await stage.components()
    await page.locator("body[data-ready]").wait_for()
    return page


async def console_not_paired(stage: Stage) -> Page:
    page = await stage.page("/", is_paired=False)
    await page.locator("#relay[data-state=not_paired]").wait_for()
    return page


async def console_empty(stage: Stage) -> Page:
    async def without_servers(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "servers": []})

    page = await stage.page("/")
    await page.route("**/-/status", without_servers)
    await page.reload()
    await page.locator("#servers-empty").wait_for()
    return page


async def console_with_everything(stage: Stage) -> Page:
    await stage.demo()
    await stage.call("add", {"a": 2, "b": 3})
    page = await stage.page("/")
    stranger = await stage.page(stage.site.origin, is_paired=False, has_worker=False)
    await stranger.evaluate(DIAL, stage.base.replace("http", "ws") + "/plain")
    await page.bring_to_front()
    for part in ("tr[data-server=demo]", "#asking li", "#refused-list li", "#calls-list [data-call=add]"):
        await page.locator(part).first.wait_for()
    return page


async def console_call(stage: Stage) -> Page:
    """The drawer of a call."""
    await stage.demo()
    page = await stage.page("/")
    await page.locator("#feed[data-feed=live]").wait_for()
    await stage.call("add", {"a": 2, "b": 3})
    await page.locator("#calls-list [data-call=add]").first.click()
    await page.locator("#drawer [data-part=timing]").wait_for()
    return page


async def console_server(stage: Stage) -> Page:
    """The drawer of a server, with the form of a tool."""
    await stage.demo()
    page = await stage.page("/?server=demo&part=tools")
    tool = page.locator("#drawer [data-tool=add]")
    await tool.get_by_text("Definition").wait_for()
    await tool.get_by_role("button", name="Try").click()
    return page


async def console_model(stage: Stage) -> Page:
    await stage.demo()
    page = await stage.page("/?server=demo&part=model")
    await page.locator("#drawer tr[data-tool=add]").wait_for()
    return page


async def console_crowded(stage: Stage) -> Page:
    """50 servers, 10,000 calls, lanes."""

    async def many(route: Route) -> None:
        answer = await route.fetch()
        status = await answer.json()
        await route.fulfill(response=answer, json={**status, "servers": many_servers(stage.base)})

    async def calls(route: Route) -> None:
        events = [{"type": "hello", "faults": False}, *({"type": "calls", "rows": rows} for rows in many_rows())]
        body = "".join(f"data: {json.dumps(event)}\n\n" for event in events)
        await route.fulfill(body=body, content_type="text/event-stream")

    page = await stage.page("/")
    await page.route("**/-/status", many)
    await page.route("**/-/console/events*", calls)
    await page.goto(stage.base + "/?lanes=client")
    await page.get_by_test_id("calls-count").filter(has_text="10000 calls").wait_for()
    return page


async def console_without_relay(stage: Stage) -> Page:
    page = await stage.page("/")
    await page.locator("#relay[data-state=running]").wait_for()
    await page.route("**/-/status", lambda route: route.abort())
    await page.locator("#relay[data-state=relay_down]").wait_for()
    return page


async def address_not_paired(stage: Stage) -> Page:
    page = await stage.page("/demo", is_paired=False)
    await page.locator("#state[data-state=not_paired]").wait_for()
    return page


async def address_online(stage: Stage) -> Page:
    await stage.demo()
    page = await stage.page("/demo")
    await page.locator("#state[data-state=online]").wait_for()
    return page


async def address_unknown(stage: Stage) -> Page:
    page = await stage.page("/unknown")
    await page.locator("#state[data-state=unknown]").wait_for()
    return page


async def starter(stage: Stage) -> Page:
    """The page that `tabrelay init` writes, without its relay."""
    html = (ROOT / "relay" / "tabrelay" / "assets" / "starter" / "index.html").read_text(encoding="utf-8")
    (stage.site.folder / "starter.html").write_text(html.replace("SERVER", "notes"), encoding="utf-8")
    return await stage.page(stage.site.origin + "/starter.html", is_paired=False)


async def demo(stage: Stage) -> Page:
    """As a visitor sees it first."""
    page = await stage.demo()
    await page.evaluate(FIRST_VISIT)
    await page.reload()
    await page.locator("#tools [data-tool=add] .run:enabled").wait_for()
    return page


async def demo_drawing(stage: Stage) -> Page:
    """With a drawing of a client and of the visitor, a result, and all kinds of calls in the list."""
    page = await stage.demo()
    for tool, arguments in DRAWING:
        await stage.call(tool, arguments)
    for tool in ("add", "measure_drawing", "look_at_drawing"):
        row = page.locator(f"#tools [data-tool={tool}]").first
        await row.locator(".run").click()
        await row.locator(".output > *").first.wait_for()
    await stage.call("draw_circle", {"x": -1, "y": 1, "radius": 1})
    await page.locator("#calls [data-phase=failed]").first.wait_for()
    await page.evaluate("document.querySelector('#tools').scrollTop = 0")
    return page


async def demo_connect(stage: Stage) -> Page:
    page = await stage.demo()
    await page.locator("#guide-steps [data-step=connect]").click()
    return page


async def demo_cut(stage: Stage) -> Page:
    """A call runs, and its connection is cut. The worker's next attempt does not come."""
    page = await stage.demo()
    await page.locator("#guide-steps [data-step=cut]").click()
    await stage.unfinished_call("draw_spiral", {"x": 320, "y": 200, "seconds": 60, "color": "purple"})
    await page.locator("#lane .trip").first.wait_for()
    await page.evaluate(STOP)
    await page.locator("#line[data-cut]").wait_for()
    return page


async def demo_done(stage: Stage) -> Page:
    page = await stage.demo()
    await page.evaluate(ALL_STEPS)
    await page.reload()
    await page.locator("#guide-step a", has_text="Write your own tool").wait_for()
    await page.locator("#tools [data-tool=add] .run:enabled").wait_for()
    return page


async def demo_not_paired(stage: Stage) -> Page:
    """What is wrong, and the command that helps."""
    page = await stage.page("/-/demo/", is_paired=False)
    await page.locator("#state[data-why=not_paired]").wait_for()
    return page


async def examples(stage: Stage) -> Page:
    page = await stage.page("/-/demo/examples/")
    await page.locator("h1").wait_for()
    return page


def example(folder: str, first: str = "") -> Callable[[Stage], Awaitable[Page]]:
    """The page of an example, with the result of a tool: the first of the list, or the one that is named."""

    async def show(stage: Stage) -> Page:
        page = await stage.page(f"/-/demo/examples/{folder}/")
        await page.locator("tabrelay-status[state=connected]").wait_for()
        tool = page.locator(f"#tools [data-tool{f'={first}' if first else ''}]").first
        await tool.get_by_role("button", name="Run").click()
        await tool.locator(".result > *").first.wait_for()
        return page

    return show


async def example_on_another_origin(stage: Stage) -> Page:
    """After one click, as it asks for approval."""
    page = await stage.page("/-/demo/examples/cross_origin/", is_paired=False)
    await page.locator("tabrelay-panel section").wait_for()
    return page


async def playground(stage: Stage) -> Page:
    """A program that has run, and whose tool was called."""
    page = await stage.page("/-/demo/playground/")
    await page.locator("#state[data-state=connected]").wait_for()
    await page.locator("#editor[data-loaded]").wait_for()
    await page.locator("#starting-point").select_option("plot")
    await page.locator("#editor[data-loaded=plot]").wait_for()
    await page.locator("#run").click()
    tool = page.locator("#tools [data-from=relay]")
    await tool.get_by_role("button", name="Call it").click()
    await tool.locator(".result img").wait_for()
    return page


async def playground_error(stage: Stage) -> Page:
    page = await stage.page("/-/demo/playground/")
    await page.locator("#state[data-state=connected]").wait_for()
    await page.locator("#editor[data-loaded]").wait_for()
    await page.locator("#language").select_option("javascript")
    await page.locator("#editor .cm-content").click()
    await page.keyboard.press("ControlOrMeta+a")
    await page.keyboard.insert_text("const a = 1;\nconst b = = 2;\n")
    await page.locator("#run").click()
    await page.locator("#fault").wait_for()
    await page.locator("#save").click()
    return page


async def pairing_panel(stage: Stage) -> Page:
    page = await stage.page(stage.site.origin, is_paired=False, has_worker=False)
    await page.locator("tabrelay-panel section").wait_for()
    return page


async def problem_panel(stage: Stage) -> Page:
    page = await stage.page(f"{stage.site.origin}/?relay=http://127.0.0.1:9", is_paired=False, has_worker=False)
    await page.locator("tabrelay-panel section").wait_for()
    return page


async def approval_dialog(stage: Stage) -> Page:
    page = await stage.demo()
    await page.evaluate(OFFER)
    await page.locator("#tools [data-tool=delete_notes]").first.wait_for()
    await stage.unfinished_call("delete_notes", {"match": "holiday", "dry_run": False})
    await page.locator("tabrelay-approval dialog").wait_for()
    await page.locator("tabrelay-approval button:not([aria-disabled])").first.wait_for()
    return page


STATES = (
    PageState("components", components),
    PageState("console-not-paired", console_not_paired),
    PageState("console-empty", console_empty),
    PageState("demo", demo),
    PageState("demo-drawing", demo_drawing),
    PageState("demo-connect", demo_connect),
    PageState("console", console_with_everything),
    PageState("console-call", console_call),
    PageState("console-server", console_server),
    PageState("console-model", console_model),
    PageState("console-crowded", console_crowded),
    PageState("console-without-relay", console_without_relay),
    PageState("address-not-paired", address_not_paired),
    PageState("address-online", address_online),
    PageState("address-unknown", address_unknown),
    PageState("starter", starter),
    PageState("playground", playground),
    PageState("playground-error", playground_error),
    PageState("examples", examples),
    PageState("example-todo", example("todo")),
    PageState("example-sheet", example("sheet", "read_sheet")),
    PageState("example-other-origin", example_on_another_origin),
    PageState("example-weather", example("data")),
    PageState("example-shop", example("webmcp")),
    PageState("example-album", example("ask")),
    PageState("pairing-panel", pairing_panel),
    PageState("problem-panel", problem_panel),
    PageState("approval-dialog", approval_dialog),
    PageState("demo-done", demo_done),
    PageState("demo-cut", demo_cut),
    PageState("demo-not-paired", demo_not_paired),
)
