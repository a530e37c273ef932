"""One page of Python, in MicroPython and in Pyodide: with explicit parameters, the same lines work in both."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from playwright.async_api import Browser, Page

from tests.e2e.test_page_api import ABLE, ERAS, text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S, until

PAGE = """<!doctype html>
<title>Small</title>
<script type="module" src="RELAY/-/pyscript/core.js"></script>
<script type="KIND" config='CONFIG'>
import asyncio

from pyscript import document
from pyscript.js_modules import tabrelay
from tabserver import Context, Image, ToolError, default_toolbox, prompt, resource, tool
from tabserver.page import offer


@tool(
    description="Count the words of a text.",
    params={
        "text": str,
        "unique": (bool, False),
        "least": {"type": "integer", "minimum": 1, "default": 1},
        "besides": (list, None),
    },
    read_only=True,
)
def count(text, unique, least, besides):
    words = [word for word in text.split() if len(word) >= least and word not in (besides or [])]
    return {"words": len(set(words) if unique else words)}


@tool
def title():
    return document.title


@tool(description="Ask before it is done.", params={"what": str, "ctx": Context})
async def confirm(what, ctx):
    ctx.progress(1, 2, "asking")
    form = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    answer = await ctx.elicit("Your name?", form)
    return (answer.content["name"] + " wants to " + what) if answer.accepted else "Left as it was."


@tool(params={"ctx": Context})
async def talk(ctx):
    ctx.log("info", {"talks": True})
    said = await ctx.sample("Hello Alice", max_tokens=50)
    return said.text + (" (asked)" if ctx.can("sampling") else "")


@tool(params={"what": str})
def measure(what):
    values = {"number": {"speed": [1.5, float("nan")]}, "set": {1}, "object": [{"at": count}]}
    return values[what]


seen = []


@tool(params={"ctx": Context})
async def wait(ctx):
    ctx.progress(1)
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        seen.append("cancelled")
        raise


@tool
def cancellations():
    return {"seen": seen}


@tool(params={"how": str})
async def fail(how):
    if how == "kindly":
        raise ToolError("out of ink")
    if how == "later":
        await asyncio.sleep(0)
    raise ValueError("the fuse was lit")


@tool
def draw():
    return ["A dot:", Image(b"PNG")]


@resource("small://notes/{name}", mime_type="text/plain")
def note(name):
    return "Note " + name


@prompt(description="Review.", params={"code": str, "tone": (str, "kind")})
def review(code, tone):
    return "Be " + tone + ": " + code


@tool
def drop():
    default_toolbox.remove("title")
    tool(later)


def later():
    return "here I am"


offer(tabrelay.connect, server="small", worker="/worker.js", token="TOKEN")
</script>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({ server: "small", worker: "/worker.js", token: "TOKEN" });
</script>
"""

# The interpreter, and the path of its file with the decorators.
KINDS = {
    "mpy": ("/-/micropython/micropython.mjs", "/-/micropython/tabserver.py", ""),
    "py": ("/-/pyodide/pyodide.mjs", "/-/tabserver.zip", "./*"),
}


@pytest.fixture(scope="module", params=KINDS)
async def small(
    request: pytest.FixtureRequest, browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Demo, Page]]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), "small", "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        interpreter, file, place = KINDS[request.param]
        config = {
            "interpreter": f"{here}{interpreter}",
            "files": {f"{here}{file}": place},
            "js_modules": {"main": {f"{here}/-/client.js": "tabrelay"}},
        }
        filled = PAGE.replace("CONFIG", json.dumps(config)).replace("KIND", request.param)
        (folder / "index.html").write_text(filled.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        context = await browser.new_context()
        with site:
            page = await context.new_page()
            hosts: set[str] = set()
            page.on("request", lambda asked: hosts.add(asked.url.split("/")[2].split(":")[0]))
            await page.goto(site.origin)
            await page.wait_for_function(
                """() => globalThis.connection?.state.state === "connected"
                    && connection.catalogue?.tools.some(({ name }) => name === "drop")""",
                timeout=settings.BOOT_TIMEOUT_MS,
            )
            yield relay, page
            assert hosts <= {"127.0.0.1", "localhost"}, "nothing comes from other hosts"
        await context.close()


@ERAS
async def test_written_parameters_are_schemas_and_arguments_are_checked_against_them(
    small: tuple[Demo, Page], mode: str
) -> None:
    async with small[0].client(mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        schema = tools["count"].input_schema
        assert tools["count"].description == "Count the words of a text."
        assert schema["properties"] == {
            "text": {"type": "string"},
            "unique": {"type": "boolean", "default": False},
            "least": {"type": "integer", "minimum": 1, "default": 1},
            "besides": {"type": "array", "items": {}},
        }
        assert schema["required"] == ["text"] and schema["additionalProperties"] is False
        assert tools["count"].annotations is not None and tools["count"].annotations.read_only_hint
        assert "ctx" not in tools["confirm"].input_schema["properties"]
        counted = await client.call_tool("count", {"text": "to be or not to be"})
        assert counted.structured_content == {"words": 6}
        counted = await client.call_tool("count", {"text": "to be or not to be", "unique": True, "least": 3})
        assert counted.structured_content == {"words": 1}
        counted = await client.call_tool("count", {"text": "to be or not to be", "besides": ["be"]})
        assert counted.structured_content == {"words": 4}
        counted = await client.call_tool("count", {"text": "to be or not to be", "besides": None})
        assert counted.structured_content == {"words": 6}, "null means the same as leaving it out"
        for given, fault in (
            ({"text": "x", "least": None}, "arguments.least: expected integer"),
            ({"text": 3}, "arguments.text: expected string"),
            ({"text": "x", "least": 0}, "arguments.least: expected at least 1"),
            ({}, "arguments.text: missing"),
            ({"text": "x", "other": 1}, "arguments.other: unknown argument"),
        ):
            wrong = await client.call_tool("count", given)
            assert wrong.is_error and fault in text(wrong)


@ERAS
async def test_a_tool_asks_reports_and_sees_the_page(small: tuple[Demo, Page], mode: str) -> None:
    received: list[str | None] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.append(message)

    async with small[0].client(mode, **ABLE) as client:
        told = await client.call_tool("confirm", {"what": "dance"}, progress_callback=on_progress)
        assert text(told) == "Alice wants to dance"
        assert received == ["asking"]
        assert text(await client.call_tool("talk", {})) == "“Hello Alice” indeed (asked)"


async def test_what_goes_wrong_keeps_its_text_and_has_its_traceback_in_the_console(small: tuple[Demo, Page]) -> None:
    logged: list[str] = []
    small[1].on("console", lambda message: logged.append(message.text))
    async with small[0].client() as client:
        for how, said in (
            ("kindly", "out of ink"),
            ("badly", "ValueError: the fuse was lit"),
            ("later", "ValueError: the fuse was lit"),
        ):
            failed = await client.call_tool("fail", {"how": how})
            assert failed.is_error and text(failed) == said
    await until(lambda: any('tabrelay: Tool "fail" failed.' in line for line in logged))
    written = "\n".join(logged)
    assert "Traceback (most recent call last):" in written and "in fail" in written and "the fuse was lit" in written


async def test_a_value_without_a_json_form_is_an_error_with_what_to_return(small: tuple[Demo, Page]) -> None:
    async with small[0].client() as client:
        for what, where in (("number", "nan has no JSON form. Return "), ("object", "has no JSON form. Return ")):
            failed = await client.call_tool("measure", {"what": what})
            assert failed.is_error and where in text(failed) and "result" in text(failed)
            assert what != "number" or "speed" in text(failed)
        of_set = await client.call_tool("measure", {"what": "set"})
        assert text(of_set) == "[1]" or "result: {1} has no JSON form. Return " in text(of_set)


async def test_a_cancelled_call_ends_inside_the_tool(small: tuple[Demo, Page]) -> None:
    begun = asyncio.Event()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        begun.set()

    async with small[0].client() as client:
        call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=on_progress))
        async with asyncio.timeout(BOUND_S):
            await begun.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            while True:
                if (await client.call_tool("cancellations", {})).structured_content == {"seen": ["cancelled"]}:
                    break
                await asyncio.sleep(0.05)


async def test_pictures_resources_and_prompts(small: tuple[Demo, Page]) -> None:
    async with small[0].client() as client:
        drawn = (await client.call_tool("draw", {})).content
        assert [block.type for block in drawn] == ["text", "image"]
        assert drawn[1].data == "UE5H"  # type: ignore[union-attr]
        [note] = (await client.read_resource("small://notes/a")).contents
        assert (note.text, note.mime_type) == ("Note a", "text/plain")  # type: ignore[union-attr]
        [prompt] = (await client.list_prompts()).prompts
        assert {argument.name: argument.required for argument in prompt.arguments or ()} == {
            "code": True,
            "tone": False,
        }
        asked = (await client.get_prompt("review", {"code": "x = 1"})).messages[0].content
        assert asked.text == "Be kind: x = 1"  # type: ignore[union-attr]


async def test_tools_come_and_go_later(small: tuple[Demo, Page]) -> None:
    async with small[0].client() as client:
        if "title" in [tool.name for tool in (await client.list_tools()).tools]:
            assert text(await client.call_tool("title", {})) == "Small"
            await client.call_tool("drop", {})
        async with asyncio.timeout(BOUND_S):
            while True:
                names = {tool.name for tool in (await client.list_tools()).tools}
                if "title" not in names and "later" in names:
                    break
                await asyncio.sleep(0.05)
        assert text(await client.call_tool("later", {})) == "here I am"
