"""Faults of tools in the console of their page: exceptions, values without a JSON form, printed text, and missing parts
of definitions.

One relay and one page for the whole file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import ModuleType

import pytest
from mcp import MCPError
from playwright.async_api import Browser

from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.reported_page import ReportedPage, visit, write_app

TOOLS = '''"""Tools of the worker."""

import asyncio

from tabserver import prompt, resource, tool

print("tools are loaded")


def divide_by(number: int) -> float:
    return 1 / number


@tool
def divide(number: int) -> float:
    """Divide one by a number."""
    print("dividing by", number)
    return divide_by(number)


@tool
async def later(number: int) -> float:
    """Divide later."""
    await asyncio.sleep(0)
    return divide_by(number)


@tool
def undescribed() -> str:
    return "fine"


@tool
def give_python(what: str):
    """Return something without a JSON form."""
    loop = []
    loop.append(loop)
    return {"nan": float("nan"), "loop": loop, "object": {"a": object()}, "function": divide}[what]


@resource("odd://value")
def odd():
    """A resource without a JSON form."""
    return {"a": float("inf")}


@prompt
def strange():
    """A prompt that is no text."""
    return object()
'''
OFFER = """() => {
  const offer = (name, execute, more = {}) => connection.offerTool({ name, description: "Does it.", execute, ...more });
  offer("boom", () => { throw new RangeError("out of range"); });
  offer("boom_later", async () => { throw new Error("later"); });
  offer("give_js", ({ what }) => ({
    node: () => document.body,
    nodes: () => ({ found: document.querySelectorAll("h1") }),
    map: () => ({ rows: new Map([[1, 2]]) }),
    content: () => ({ content: [], structuredContent: { score: NaN } }),
    window: () => globalThis,
    fine: () => ({ a: [1, null, "x"], when: new Date(0), nothing: undefined }),
  })[what]());
  offer("typed", () => new Set([1]), { outputSchema: { type: "array" } });
  connection.offerTool({ name: "bare", execute: () => "" });
  offer("twice", () => 1);
  offer("twice", () => 2);
  offer("divide", () => 1);
  offer("misspelled", () => 1, { inputschema: {} });
  offer("careless", () => 1, { annotations: { readonlyHint: true }, inputSchema: { type: "object", required: "a" } });
  connection.offerResource({ uri: "page://odd", read: () => new Map() });
}"""


@pytest.fixture(scope="module")
async def console(
    browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[ReportedPage, Demo]]:
    folder = tmp_path_factory.mktemp("app")
    context = await browser.new_context()
    context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), "notes", "--allow-origin", site.origin, verb="serve") as relay:
        write_app(site, f"http://127.0.0.1:{relay.port}", {"tools.py": TOOLS})
        with site:
            options = {"server": "notes", "worker": "/tabrelay.js", "token": relay.token, "modules": ["/tools.py"]}
            opened = await visit(context, site.origin, options)
            await opened.page.wait_for_function("globalThis.connection?.state.state === 'connected'")
            await opened.page.evaluate(OFFER)
            offered = "connection.catalogue?.tools.some(({ name }) => name === 'misspelled')"
            await opened.page.wait_for_function(offered)
            yield opened, relay
    await context.close()


async def test_a_tool_that_throws_is_in_the_console_with_its_stack(console: tuple[ReportedPage, Demo]) -> None:
    page, relay = console
    async with relay.client() as client:
        failed = await client.call_tool("boom", {})
        assert failed.is_error and text(failed) == "out of range"
        thrown = await page.line('Tool "boom" failed.')
        assert thrown.startswith('tabrelay: Tool "boom" failed. [TR474] RangeError: out of range\n') and "at " in thrown
        await client.call_tool("boom_later", {})
        assert "Error: later" in await page.line('Tool "boom_later" failed.')


async def test_python_in_the_worker_prints_and_fails_in_the_console(console: tuple[ReportedPage, Demo]) -> None:
    page, relay = console
    assert await page.line("tools are loaded") == "tabrelay: tools.py: tools are loaded"
    async with relay.client() as client:
        assert text(await client.call_tool("divide", {"number": 4})) == "0.25"
        assert await page.line("dividing by 4") == "tabrelay: tools.py: dividing by 4"
        assert "ZeroDivisionError" in text(await client.call_tool("divide", {"number": 0}))
        for name in ("divide", "later"):
            await client.call_tool(name, {"number": 0})
            failed = await page.line(f'Tool "{name}" failed.')
            line = TOOLS.splitlines().index("    return 1 / number") + 1
            assert f'/tools.py", line {line}, in divide_by' in failed and "return 1 / number" in failed
            assert failed.endswith("ZeroDivisionError: division by zero") and "tabserver/" not in failed


async def test_values_of_python_without_a_json_form_are_named(console: tuple[ReportedPage, Demo]) -> None:
    page, relay = console
    expected = {
        "nan": "result: nan has no JSON form. Return a finite number, None or a text.",
        "loop": "it contains itself, or nests deeper than 100 levels",
        "object": "result.a: an object has no JSON form. Return a dict, a list or a dataclass",
        "function": "result: a function has no JSON form. Return what it returns.",
    }
    async with relay.client() as client:
        for what, told in expected.items():
            given = await client.call_tool("give_python", {"what": what})
            assert given.is_error and told in text(given), text(given)
            assert told in await page.line(told[:40])
        with pytest.raises(MCPError, match="inf has no JSON form"):
            await client.read_resource("odd://value")
        assert "inf has no JSON form" in await page.line('Resource "odd://value"')
        with pytest.raises(MCPError, match="a prompt returns text"):
            await client.get_prompt("strange")


async def test_values_of_javascript_without_a_json_form_are_named(console: tuple[ReportedPage, Demo]) -> None:
    page, relay = console
    expected = {
        "node": 'Tool "give_js" returned a HTMLBodyElement, which has no JSON form. Return its text',
        "nodes": "a NodeList at result.found",
        "map": "a Map at result.rows, which has no JSON form. Return Object.fromEntries(map)",
        "content": "NaN at result.structuredContent.score",
        "window": "a Window",
    }
    async with relay.client() as client:
        for what, told in expected.items():
            given = await client.call_tool("give_js", {"what": what})
            assert given.is_error and told in text(given), text(given)
            assert await page.line(told) == f"tabrelay: {text(given)}"
        fine = await client.call_tool("give_js", {"what": "fine"})
        assert fine.structured_content == {"a": [1, None, "x"], "when": "1970-01-01T00:00:00.000Z"}
        assert "a Set" in text(await client.call_tool("typed", {}))
        with pytest.raises(MCPError, match="Resource page://odd returned a Map"):
            await client.read_resource("page://odd")


async def test_what_is_missing_in_a_definition_is_a_warning(console: tuple[ReportedPage, Demo]) -> None:
    page, _ = console
    assert "has no description. Models choose tools by it" in await page.line('Tool "bare"')
    assert "has no description" in await page.line('Tool "undescribed"')
    assert "replaces another one of this name" in await page.line('Tool "twice"')
    assert 'unknown member "inputschema". Did you mean "inputSchema"?' in await page.line('Tool "misspelled"')
    careless = await page.line('Tool "careless" has an unknown')
    assert 'member "readonlyHint". Did you mean "readOnlyHint"?' in careless
    refused = await page.line('"careless" (tools) was refused')
    assert 'The member "required" of its inputSchema must be a list of names' in refused
    clash = await page.line('Tool "divide" has the name of a tool of the worker')
    assert clash.endswith("Give one of them another name.")
    assert len([line for line in page.lines if 'Tool "divide" has' in line]) == 1
    assert not [line for line in page.lines if 'Tool "boom" has' in line]
