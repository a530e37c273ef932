"""The demo's canvas: the visitor and an official SDK client draw on it, read it, and share one history.

One relay, one profile and one page for the file; each test begins with an empty canvas.
"""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
from mcp.client.client import Client
from mcp_types import ImageContent, TextContent
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.conftest import chosen_mode, new_profile
from tests.support.demo import Demo

EMPTY = """async () => {
    const { drawing } = await import("/-/demo/page_tools.js");
    drawing.undo(1000);
}"""


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    async with Demo(tmp_path_factory.mktemp("demo") / "home") as demo:
        yield demo


@pytest.fixture(scope="module")
async def context(browser: Browser, settings: ModuleType) -> AsyncIterator[BrowserContext]:
    async with new_profile(browser, settings, chosen_mode()) as context:
        yield context


@pytest.fixture(scope="module")
async def shared_page(context: BrowserContext, demo: Demo, settings: ModuleType) -> Page:
    page = await context.new_page()
    await demo.open(page, settings.BOOT_TIMEOUT_MS)
    return page


@pytest.fixture
async def page(shared_page: Page) -> Page:
    await shared_page.evaluate(EMPTY)
    return shared_page


async def structured(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error and result.structured_content is not None, result
    found: dict[str, Any] = result.structured_content
    return found


async def draw_stroke(page: Page, *points: tuple[float, float], steps: int = 5) -> None:
    """By mouse, at shares of the canvas."""
    box = await page.locator("#canvas").bounding_box()
    assert box is not None
    places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in points]
    await page.mouse.move(*places[0])
    await page.mouse.down()
    for place in places[1:]:
        await page.mouse.move(*place, steps=steps)
    await page.mouse.up()


async def test_visitor_and_client_draw_on_one_canvas_with_one_history(demo: Demo, page: Page) -> None:
    async with demo.client() as client:
        await draw_stroke(page, (0.25, 0.2), (0.5, 0.2))
        drawn = await structured(client, "draw_circle", x=400, y=250, radius=50, color="red")
        assert (drawn["drawn"], drawn["shapes"]) == ("red circle at (400, 250), radius 50", 2)
        shapes = (await structured(client, "list_shapes"))["shapes"]
        assert [(shape["by"], shape["shape"]["kind"]) for shape in shapes] == [("You", "line"), ("mcp", "circle")]
        (x, y), (end_x, _) = shapes[0]["shape"]["points"][0], shapes[0]["shape"]["points"][-1]
        assert (abs(x - 200), abs(y - 100), abs(end_x - 400)) <= (2, 2, 2)
        # The visitor takes back what the client drew, and the client what the visitor drew.
        await page.locator("#undo").click()
        await expect(page.locator("#drawing-said")).to_have_text("Undone: red circle at (400, 250), radius 50.")
        undone = await structured(client, "undo")
        assert undone["undone"] == [shapes[0]["what"]] and undone["shapes"] == 0
        await expect(page.locator("#undo")).to_be_disabled()
        await expect(page.locator("#redo")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.locator("#redo").click()
        assert len((await structured(client, "list_shapes"))["shapes"]) == 2


async def test_a_long_stroke_is_one_step(page: Page) -> None:
    await draw_stroke(page, *((0.05 + 0.9 * (turn % 2), 0.05 + turn / 20) for turn in range(17)), steps=50)
    shown = "import('/-/demo/page_tools.js').then(({ drawing }) => drawing.shapes.map(({ points }) => points))"
    [points] = await page.evaluate(shown)
    assert 100 < len(points) < 400
    assert points[-1] == pytest.approx([40, 425], abs=12)


async def test_a_client_gets_the_drawing_as_an_image(demo: Demo, page: Page) -> None:
    async with demo.client() as client:
        await client.call_tool("draw_rectangle", {"x": 0, "y": 0, "width": 400, "height": 500, "color": "green"})
        picture, words = (await client.call_tool("look_at_drawing", {})).content
        assert isinstance(picture, ImageContent) and picture.mime_type == "image/png"
        assert isinstance(words, TextContent) and words.text == "1 shape, drawn by mcp."
        colors = await page.evaluate(
            """async (data) => {
                const image = new Image();
                image.src = `data:image/png;base64,${data}`;
                await image.decode();
                const context = new OffscreenCanvas(image.width, image.height).getContext("2d");
                context.drawImage(image, 0, 0);
                return [[100, 250], [600, 250]].map(([x, y]) => [...context.getImageData(x, y, 1, 1).data]);
            }""",
            picture.data,
        )
        assert base64.b64decode(picture.data)[:4] == b"\x89PNG"
        assert colors == [[0x3A, 0x9A, 0x58, 255], [255, 255, 255, 255]]


async def test_python_in_the_worker_measures_the_drawing(demo: Demo, page: Page) -> None:
    async with demo.client() as client:
        empty = await structured(client, "measure_drawing")
        assert (empty["painted_percent"], empty["box"], empty["colors"]) == (0, None, [])
        await client.call_tool("draw_rectangle", {"x": 200, "y": 120, "width": 400, "height": 200, "color": "orange"})
        found = await structured(client, "measure_drawing")
        assert found["painted_percent"] == pytest.approx(20, abs=2)
        assert found["colors"] == [{"color": "orange", "percent": 100}]
        edges = [found["box"][edge] for edge in ("left", "top", "right", "bottom")]
        assert edges == pytest.approx([200, 120, 600, 320], abs=8)
        assert found["center"] == pytest.approx([400, 220], abs=8)
        assert found["left_right_symmetry"] == found["top_bottom_symmetry"] == 1
        await client.call_tool("draw_circle", {"x": 100, "y": 400, "radius": 40, "color": "blue"})
        assert (await structured(client, "measure_drawing"))["left_right_symmetry"] < 1
        areas = await structured(client, "find_areas")
        assert (areas["count"], [area["color"] for area in areas["areas"]]) == (2, ["orange", "blue"])
        listed = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = listed["measure_drawing"].output_schema
        assert schema is not None and "box" in schema["properties"]


async def test_a_full_drawing_refuses_more_shapes_with_what_to_do(demo: Demo, page: Page) -> None:
    async with demo.client() as client:
        await page.evaluate(
            """async () => {
                const { drawing } = await import("/-/demo/page_tools.js");
                const dot = { kind: "circle", x: 9, y: 9, radius: 3, color: "red", filled: true };
                for (let n = 0; n < 400; n++) drawing.draw("You", dot);
            }"""
        )
        refused = await client.call_tool("draw_circle", {"x": 1, "y": 1, "radius": 1})
        assert refused.is_error and "400 shapes. Undo some, or clear it." in refused.content[0].text  # type: ignore[union-attr]
        await client.call_tool("undo", {"steps": 2})
        assert (await structured(client, "draw_circle", x=1, y=1, radius=1))["shapes"] == 399


async def test_a_spiral_that_is_undone_while_it_is_drawn_ends_with_an_error(page: Page) -> None:
    row = page.locator("#tools [data-tool=draw_spiral]")
    await row.locator(".run").click()
    await expect(page.locator("#drawing-said")).to_contain_text("purple line")
    await page.locator("#undo").click()
    await expect(row).to_have_attribute("data-phase", "failed")
    await expect(row.locator(".output")).to_contain_text("undone or cleared")


async def test_run_uses_the_arguments_that_were_typed_and_shows_the_result(page: Page) -> None:
    row = page.locator("#tools [data-tool=write_text]")
    await row.locator("summary").click()
    await row.locator("[name=text]").fill("Good morning")
    await row.locator(".run").click()
    await expect(row.locator(".output")).to_contain_text("“Good morning”")
    await expect(row.locator("[name=text]")).to_have_value("Good morning")
    image = page.locator("#tools [data-tool=look_at_drawing]")
    await image.locator(".run").click()
    await expect(image.locator(".output img")).to_be_visible()
