"""The playground: programs become tools that clients list and call, and can do nothing else.

One relay, one browser and one page for the file, and one client of the official SDK that is notified of changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, ImageContent, TextContent, Tool
from playwright.async_api import Browser, BrowserContext, Page, expect

from tests.e2e.conftest import chosen_mode, keeps_no_token, new_profile
from tests.support.demo import Demo, blocked
from tests.support.other_origin import Site
from tests.support.paths import SUPPORT
from tests.support.playground import Playground
from tests.support.waiting import BOUND_S, until


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


@pytest.fixture(scope="module")
async def demo(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    async with Demo(tmp_path_factory.mktemp("playground") / "home") as demo:
        demo.expects_reports = True
        yield demo
        # The page itself keeps its policy. Only programs that leave their page are reported.
        assert [line for line in blocked(demo.log) if "blocked by frame-src" not in line] == []


@pytest.fixture(scope="module")
async def context(browser: Browser, settings: ModuleType) -> AsyncIterator[BrowserContext]:
    async with new_profile(browser, settings, chosen_mode()) as context:
        yield context


@pytest.fixture(scope="module")
async def page(context: BrowserContext, demo: Demo, settings: ModuleType) -> AsyncIterator[Page]:
    page = await context.new_page()
    await page.goto(demo.url.replace("/-/demo/", "/-/demo/playground/"))
    await page.locator("#state[data-state=connected]").wait_for(timeout=settings.BOOT_TIMEOUT_MS)
    yield page
    await keeps_no_token(page)


@pytest.fixture(scope="module")
async def playground(page: Page) -> Playground:
    return Playground(page)


class Listener:
    """A client that is notified of changed lists, and lists the tools then."""

    def __init__(self) -> None:
        self.client: Client
        self.changed = asyncio.Event()

    async def notified(self, message: Any) -> None:
        if type(message).__name__ == "ToolListChangedNotification":
            self.changed.set()

    async def tools(self) -> dict[str, Tool]:
        return {tool.name: tool for tool in (await self.client.list_tools()).tools}

    async def until_listed(self, name: str, schema_has: str = "") -> Tool:
        """The tool, when the notified client has listed it."""
        async with asyncio.timeout(BOUND_S):
            while True:
                self.changed.clear()
                tool = (await self.tools()).get(name)
                if tool is not None and schema_has in str(tool.input_schema):
                    return tool
                await self.changed.wait()

    async def call(self, name: str, **arguments: Any) -> CallToolResult:
        return await self.client.call_tool(name, arguments)


@pytest.fixture(scope="module")
async def listener(demo: Demo, page: Page) -> AsyncIterator[Listener]:
    listener = Listener()
    connected, over = asyncio.Event(), asyncio.Event()

    async def stay_connected() -> None:
        # In one task: the client's scopes must end in the task in which they began.
        async with demo.client("legacy", message_handler=listener.notified) as listener.client:
            connected.set()
            await over.wait()

    task = asyncio.create_task(stay_connected())
    await connected.wait()
    yield listener
    over.set()
    await task


DOUBLE = """from tabserver import tool

@tool
def double(number: int) -> int:
    "Twice a number."
    return 2 * number
"""


async def test_a_python_function_becomes_a_tool_that_a_listening_client_lists_and_calls(
    playground: Playground, listener: Listener
) -> None:
    await playground.write("python", DOUBLE)
    await playground.run_by_key()
    tool = await listener.until_listed("double")
    assert tool.description == "Twice a number."
    assert text(await listener.call("double", number=4)) == "8"
    # Its schema is shown as the client got it.
    assert (await playground.shown("double"))["inputSchema"] == tool.input_schema
    assert tool.input_schema["properties"] == {"number": {"type": "integer"}}


async def test_after_an_edit_and_run_the_next_call_uses_the_new_code(
    playground: Playground, listener: Listener
) -> None:
    await playground.write("python", DOUBLE.replace("2 * number", "3 * number"))
    await playground.run()
    # The definition is the same, so clients are not notified; the code is new.
    await until(lambda: _gives(listener, "double", 4, "12"))
    await playground.write("python", DOUBLE.replace("number: int)", "number: int, times: int = 2)"))
    await playground.run()
    await listener.until_listed("double", "times")


async def _gives(listener: Listener, name: str, number: int, expected: str) -> bool:
    return text(await listener.call(name, number=number)) == expected


@pytest.mark.parametrize(
    ("language", "source", "line", "message"),
    [
        ("python", "from tabserver import tool\n\ndef broken(:\n    pass\n", 3, "SyntaxError"),
        ("python", "x = 1\n\ny = x / 0\n", 3, "ZeroDivisionError"),
        ("python", "x = 1\ndef forgotten() -> int:\n    return 1\n", 2, "@tool"),
        ("javascript", "const a = 1;\nconst b = = 2;\n", 2, "SyntaxError"),
        ("javascript", "// a\n// b\nmissing.call();\n", 3, "ReferenceError"),
    ],
)
async def test_an_error_is_shown_at_its_line_and_the_old_tool_stays(
    playground: Playground, listener: Listener, language: str, source: str, line: int, message: str
) -> None:
    await playground.write("python", DOUBLE)
    await playground.run()
    await playground.write(language, source)
    await playground.run(fails=True)
    await expect(playground.fault).to_contain_text(f"Line {line}: ")
    await expect(playground.fault).to_contain_text(message)
    assert await playground.marked_line() == line
    assert text(await listener.call("double", number=21)) == "42"
    assert "double" in await listener.tools()


async def test_a_program_that_never_reaches_its_end_is_stopped_and_the_old_tool_stays(
    playground: Playground, listener: Listener
) -> None:
    await playground.write("javascript", "await new Promise(() => {});")
    before = await playground.page.locator("#run").get_attribute("data-runs")
    await playground.page.locator("#run").click()
    await expect(playground.page.locator("#run")).to_be_disabled()
    await playground.page.locator("#stop").click()
    await expect(playground.fault).to_contain_text("You stopped the program.")
    await expect(playground.page.locator("#run")).not_to_have_attribute("data-runs", before or "")
    await expect(playground.page.locator("#run")).to_be_enabled()
    assert text(await listener.call("double", number=21)) == "42"


async def test_a_tool_with_the_name_of_another_one_is_explained(
    playground: Playground, listener: Listener, context: BrowserContext
) -> None:
    demo_page = await context.new_page()
    await demo_page.goto(playground.page.url.replace("playground/", ""))
    await listener.until_listed("add")
    await playground.page.bring_to_front()
    await playground.write("javascript", "offerTool({ name: 'add', description: 'Mine.', execute: () => 'mine' });")
    await playground.run()
    await expect(playground.said).to_contain_text("do not get add by this name")
    await expect(playground.page.locator("#tools [data-tool=add]")).to_have_attribute("data-from", "program")
    await demo_page.close()


async def test_a_javascript_program_draws_in_the_output_and_returns_images(
    playground: Playground, listener: Listener
) -> None:
    await playground.start_from("plot")
    await playground.run()
    await listener.until_listed("plot_numbers")
    # The tools of the program before are withdrawn.
    assert "double" not in await listener.tools()
    [image] = (await listener.call("plot_numbers", numbers=[1, 5, 2])).content
    assert isinstance(image, ImageContent) and image.mime_type == "image/png"
    assert await playground.output.locator("canvas").is_visible()


async def test_a_javascript_program_reaches_no_token_no_storage_and_no_route(
    playground: Playground, listener: Listener, demo: Demo
) -> None:
    source = (SUPPORT / "escape_attempts.js").read_text().replace("RELAY", f"http://127.0.0.1:{demo.port}")
    await playground.write("javascript", source)
    await playground.run()
    await listener.until_listed("escape")
    result = (await listener.call("escape")).structured_content
    assert result is not None
    assert result["origin"] == "null"
    assert {name: outcome for name, outcome in result["found"].items() if outcome == "REACHED"} == {}
    assert len(result["found"]) > 25


async def test_every_frame_allows_only_scripts(playground: Playground) -> None:
    frames = playground.page.locator("iframe")
    assert await frames.count() >= 1
    for frame in await frames.all():
        assert await frame.get_attribute("sandbox") == "allow-scripts"


PYTHON_ESCAPE = """import js
from tabserver import tool

@tool
async def escape() -> dict[str, str]:
    "Tries what a program must not be able to do."
    found = {}
    attempts = {
        "status": lambda: js.fetch("RELAY/-/status"),
        "pairs": lambda: js.fetch("RELAY/-/pairs"),
        "server": lambda: js.fetch("RELAY/demo", method="POST"),
        "page": lambda: js.fetch("RELAY/-/demo/"),
        "storage": lambda: js.localStorage.length,
        "database": lambda: opened(js.indexedDB.open("tabrelay")),
        "worker": lambda: js.SharedWorker.new("RELAY/-/worker.js"),
        "socket": lambda: js.importScripts("RELAY/-/page/pairs.js"),
        "parent": lambda: js.parent,
    }
    for name, attempt in attempts.items():
        try:
            value = attempt()
            if hasattr(value, "then"):
                await value
            found[name] = "REACHED"
        except Exception as error:
            found[name] = type(error).__name__
    return found

def opened(request):
    raise PermissionError if request is None else AssertionError
"""


async def test_a_python_program_reaches_no_storage_and_no_route(
    playground: Playground, listener: Listener, demo: Demo
) -> None:
    await playground.write("python", PYTHON_ESCAPE.replace("RELAY", f"http://127.0.0.1:{demo.port}"))
    await playground.run()
    await listener.until_listed("escape")
    found = (await listener.call("escape")).structured_content
    assert found is not None and len(found) > 7
    assert {name: outcome for name, outcome in found.items() if outcome in ("REACHED", "AssertionError")} == {}


async def test_a_program_that_leaves_its_page_is_stopped(
    playground: Playground, listener: Listener, demo: Demo
) -> None:
    await playground.write(
        "javascript",
        f"""offerTool({{
          name: "leave", description: "Goes to another page.", inputSchema: {{ type: "object" }},
          execute() {{ location.href = "http://127.0.0.1:{demo.port}/-/demo/"; return new Promise(() => {{}}); }},
        }});""",
    )
    await playground.run()
    await listener.until_listed("leave")
    result = await listener.call("leave")
    assert result.is_error and "left its page" in text(result)
    await expect(playground.said).to_contain_text("left its page")
    assert "leave" not in await listener.tools()


GREET = """offerTool({
  name: "greet", description: "Says </script> and <!-- too.", inputSchema: { type: "object" },
  execute: () => "Hello </script><!-- from JavaScript",
});
"""
HANG = {
    "python": """from tabserver import Context, tool

@tool
def hang(ctx: Context) -> None:
    "Never returns."
    ctx.progress(1)
    while True:
        pass
""",
    "javascript": """offerTool({
  name: "hang", description: "Never returns.", inputSchema: { type: "object" },
  execute(_, { progress }) { progress(1); for (;;); },
});""",
}


@pytest.mark.parametrize(("language", "how"), [("python", "cancelled"), ("javascript", "stopped")])
async def test_a_program_that_hangs_is_ended_and_the_page_goes_on(
    playground: Playground, listener: Listener, language: str, how: str
) -> None:
    await playground.write(language, HANG[language])
    await playground.run()
    await listener.until_listed("hang")
    hangs = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        hangs.set()

    call = asyncio.create_task(listener.client.call_tool("hang", {}, progress_callback=on_progress))
    async with asyncio.timeout(BOUND_S):
        await hangs.wait()
    if how == "stopped":
        await playground.page.locator("#stop").click()
        result = await call
        assert result.is_error and "You stopped the program" in text(result)
    else:
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await expect(playground.said).to_contain_text("did not answer for 2 s and was stopped")
    assert "hang" not in await listener.tools()
    # The next programs run, in either language.
    await playground.write("javascript", GREET)
    await playground.run()
    await listener.until_listed("greet")
    await playground.write("python", DOUBLE)
    await playground.run()
    await listener.until_listed("double")
    assert text(await listener.call("double", number=1)) == "2"


async def test_the_starting_points_run_and_the_page_calls_their_tools(playground: Playground) -> None:
    page = playground.page
    tools = {
        "typed": ("convert_temperature", {"value": "100", "unit": '"celsius"', "to": '"kelvin"'}, "373.15"),
        "plot": ("plot_numbers", {}, None),
        "dom": ("add_item", {"text": "Apples"}, "Apples"),
        "question": ("order_drink", {}, "3 dl of tea"),
        "long-job": ("count_slowly", {"steps": "1"}, "Counted to 1."),
    }
    for point, (tool, arguments, expected) in tools.items():
        await playground.start_from(point)
        await playground.run()
        entry = page.locator(f"#tools [data-tool={tool}][data-from=relay]")
        for name, value in arguments.items():
            field = entry.locator(f"[name={name}]")
            is_choice = await field.evaluate("field => field instanceof HTMLSelectElement")
            await (field.select_option(value) if is_choice else field.fill(value))
        await entry.get_by_role("button", name="Call it").click()
        if point == "question":
            await entry.locator(".question [name=drink]").fill("tea")
            await entry.locator(".question [name=size]").fill("3")
            await entry.get_by_role("button", name="Answer").click()
        await expect(entry.locator(".result")).to_contain_text(expected or "")
        if expected is None:
            await expect(entry.locator(".result img")).to_be_visible()


async def test_a_shared_program_is_in_the_address_and_runs_only_when_its_reader_presses_run(
    playground: Playground, listener: Listener, context: BrowserContext
) -> None:
    await playground.write("python", DOUBLE.replace("double", "shared"))
    await playground.page.locator("#share").click()
    await expect(playground.said).to_contain_text("This page's address, with the program in it,")
    address = await playground.page.locator("#by-hand").input_value()
    assert address == playground.page.url and "#program=python." in address
    reader = await context.new_page()
    await reader.goto(address)
    await expect(reader.locator("#origin")).to_contain_text("Read it before you press Run")
    await expect(reader.locator("#editor .cm-content")).to_contain_text("def shared(number: int)")
    await reader.locator("#state[data-state=connected]").wait_for()
    assert "shared" not in await listener.tools()
    await Playground(reader).run()
    await listener.until_listed("shared")
    await reader.close()


async def test_saved_programs_are_chosen_replaced_and_deleted(playground: Playground) -> None:
    page = playground.page
    choice, said = page.locator("#starting-point"), playground.said
    await playground.write("python", DOUBLE)
    await page.locator("#save").click()
    await page.locator("#save-name").fill("  Twice ")
    await page.keyboard.press("Enter")
    await expect(said).to_have_text('Saved as "Twice" in this browser.')
    await expect(choice).to_have_value("saved:Twice")
    await page.reload()
    await page.locator("#editor[data-loaded=typed]").wait_for()
    await choice.select_option("saved:Twice")
    await expect(playground.editor).to_contain_text("def double(number: int)")
    await page.locator("#delete").click()
    await expect(choice.locator("option", has_text="Twice")).to_have_count(0)
    await expect(page.locator("#delete")).to_be_hidden()
    await page.locator("#state[data-state=connected]").wait_for()


@pytest.mark.parametrize(("language", "source", "tool"), [("javascript", GREET, "greet"), ("python", DOUBLE, "double")])
async def test_a_copied_page_offers_the_program_in_an_app(
    playground: Playground, context: BrowserContext, demo: Demo, tmp_path: Path, language: str, source: str, tool: str
) -> None:
    await playground.write(language, source)
    await playground.page.locator("#copy-page").click()
    await expect(playground.said).to_contain_text("A complete page with this program is copied")
    html = await playground.page.locator("#by-hand").input_value()
    async with httpx2.AsyncClient(trust_env=False, headers={"Authorization": f"Bearer {demo.token}"}) as http:
        here = f"http://127.0.0.1:{demo.port}"
        (tmp_path / "tabrelay.js").write_text((await http.get(f"{here}/-/tabrelay.js")).text, encoding="utf-8")
        # A name of its own: pages of other origins get one after the grace of the browser that had it.
        server = f"notes-{language}"
        assert '"notes"' in html
        (tmp_path / "index.html").write_text(html.replace('"notes"', f'"{server}"'), encoding="utf-8")
        with Site(tmp_path) as site:
            page = await context.new_page()
            await page.goto(site.origin)
            asking: list[dict[str, str]] = []

            async def asks() -> bool:
                asking[:] = (await http.get(f"{here}/-/pairs")).json()["asking"]
                return bool(asking)

            await until(asks)
            approved = await http.post(f"{here}/-/pairs", json={"approve": asking[0]["code"]})
            assert approved.is_success, approved.text
            async with named_client(demo, server) as client:

                async def is_listed() -> bool:
                    return tool in [each.name for each in (await client.list_tools()).tools]

                await until(is_listed, 3 * BOUND_S)  # Pyodide starts for a new origin
                result = await client.call_tool(tool, {"number": 4} if tool == "double" else {})
            assert text(result) == ("8" if tool == "double" else "Hello </script><!-- from JavaScript")
            await page.close()


@asynccontextmanager
async def named_client(demo: Demo, server: str) -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {demo.token}"}
    async with httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http:
        url = f"http://127.0.0.1:{demo.port}/{server}"
        async with Client(streamable_http_client(url, http_client=http)) as client:
            yield client
