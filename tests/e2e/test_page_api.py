"""The page's JavaScript API in Chromium, on another origin than the relay's: what a web developer's page can do.

One relay and one page for the whole file; each test offers what it needs, under names of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequestParams,
    ElicitResult,
    ListRootsResult,
    Root,
    TextContent,
)
from playwright.async_api import Browser, Page

from tests.support.demo import Demo
from tests.support.site import Site

SERVER = "notes"
ERAS = pytest.mark.parametrize("mode", ["auto", "legacy"])

PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import * as tabrelay from "RELAY/-/client.js";
globalThis.tabrelay = tabrelay;
globalThis.connection = tabrelay.connect({ server: "notes", worker: "/worker.js", token: "TOKEN" });
</script>
"""

# Resolves when the hub lists the tool NAME.
OFFERED = "name => connection.catalogue?.tools.some((tool) => tool.name === name)"


class App:
    """Somebody's web app, attached to a relay."""

    def __init__(self, relay: Demo, page: Page) -> None:
        self.relay = relay
        self.page = page

    async def offer(self, tool: str) -> None:
        """`tool` is a JavaScript object with a name."""
        name = await self.page.evaluate(
            f"() => {{ const tool = {tool}; connection.offerTool(tool); return tool.name; }}"
        )
        await self.page.wait_for_function(OFFERED, arg=name)


@pytest.fixture(scope="module")
async def app(browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), SERVER, "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        context = await browser.new_context()
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(
                "globalThis.connection?.state.state === 'connected'", timeout=settings.BOOT_TIMEOUT_MS
            )
            yield App(relay, page)
        await context.close()


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert isinstance(content, TextContent)
    return content.text


# -- questions ---------------------------------------------------------------------------------------------------------


async def answer_form(context: Any, params: ElicitRequestParams) -> ElicitResult:
    assert params.message == "Your name?"
    return ElicitResult(action="accept", content={"name": "Alice"})


async def answer_sampling(context: Any, params: CreateMessageRequestParams) -> CreateMessageResult:
    [message] = params.messages
    assert isinstance(message.content, TextContent) and params.max_tokens == 50
    said = TextContent(type="text", text=f"“{message.content.text}” indeed")
    return CreateMessageResult(role="assistant", content=said, model="m", stop_reason="endTurn")


async def answer_roots(context: Any) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri="file:///work", name="Work")])  # type: ignore[arg-type]


ABLE = {
    "elicitation_callback": answer_form,
    "sampling_callback": answer_sampling,
    "list_roots_callback": answer_roots,
}


@ERAS
async def test_a_page_asks_the_client_in_the_middle_of_a_call(app: App, mode: str) -> None:
    await app.offer(
        """{
            name: "interview",
            description: "Asks everything there is to ask.",
            async execute(args, { elicit, sample, roots, can }) {
                const form = { type: "object", properties: { name: { type: "string" } }, required: ["name"] };
                const { action, content } = await elicit("Your name?", form);
                const said = await sample(`Hello ${content.name}`, { maxTokens: 50 });
                const [root] = await roots();
                return [action, said.text, said.model, root.uri, can("sampling")].join(" | ");
            },
        }"""
    )
    async with app.relay.client(mode, **ABLE) as client:
        result = await client.call_tool("interview", {})
    assert text(result) == "accept | “Hello Alice” indeed | m | file:///work | true"


@ERAS
async def test_a_page_can_do_without_what_the_client_lacks(app: App, mode: str) -> None:
    await app.offer(
        """{
            name: "modest",
            description: "Asks, and copes.",
            async execute({ cope }, { elicit, can }) {
                try {
                    await elicit("Your name?", { type: "object", properties: {} });
                } catch (error) {
                    if (!cope) throw error;
                    return `${can("elicitation")} ${error instanceof tabrelay.McpError} ${error.name}`;
                }
            },
        }"""
    )
    async with app.relay.client(mode) as client:
        assert text(await client.call_tool("modest", {"cope": True})) == "false true MissingCapability"
        # Not caught, it is the same error that a tool in the worker would give.
        if mode == "legacy":
            result = await client.call_tool("modest", {})
            assert result.is_error and "does not support elicitation" in text(result)
        else:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("modest", {})
            assert refused.value.error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


async def test_a_question_of_a_cancelled_call_is_rejected_in_the_page(app: App) -> None:
    await app.offer(
        """{
            name: "abandoned",
            description: "Asks and waits.",
            async execute(args, { elicit, signal }) {
                globalThis.abandoned = "waiting";
                try {
                    await elicit("Your name?", { type: "object", properties: {} });
                } catch (error) {
                    globalThis.abandoned = `${error.name} ${error === signal.reason}`;
                    throw error;
                }
            },
        }"""
    )
    asked = asyncio.Event()

    async def never(context: Any, params: ElicitRequestParams) -> ElicitResult:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    async with app.relay.client("legacy", elicitation_callback=never) as client:
        call = asyncio.create_task(client.call_tool("abandoned", {}))
        async with asyncio.timeout(15):
            await asked.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await app.page.wait_for_function("globalThis.abandoned === 'AbortError true'")


async def test_a_page_that_does_not_wait_is_called_again_with_the_answers(app: App) -> None:
    await app.offer(
        """{
            name: "patient",
            description: "Returns its question.",
            execute(args, { inputResponses, requestState }) {
                if (inputResponses.who) return `${inputResponses.who.content.name} ${requestState.step}`;
                const params = { message: "Your name?", requestedSchema: { type: "object", properties: {} } };
                return new tabrelay.InputRequired({ who: { method: "elicitation/create", params } }, { step: 1 });
            },
        }"""
    )
    for mode in ("auto", "legacy"):
        async with app.relay.client(mode, **ABLE) as client:
            assert text(await client.call_tool("patient", {})) == "Alice 1"


# -- results -----------------------------------------------------------------------------------------------------------


async def test_blobs_and_blocks_become_content(app: App, tmp_path: Path) -> None:
    await app.offer(
        """{
            name: "draw",
            description: "A picture of one pixel.",
            async execute() {
                const canvas = new OffscreenCanvas(1, 1);
                canvas.getContext("2d").fillRect(0, 0, 1, 1);
                return ["One pixel:", await canvas.convertToBlob(), new Blob(["a,b"], { type: "text/csv" })];
            },
        }"""
    )
    async with app.relay.client() as client:
        words, picture, table = (await client.call_tool("draw", {})).content
    assert (words.type, picture.type, table.type) == ("text", "image", "resource")
    assert picture.mime_type == "image/png" and picture.data.startswith("iVBOR")  # type: ignore[union-attr]
    assert table.resource.blob == "YSxi"  # type: ignore[union-attr]


@ERAS
async def test_an_output_schema_is_kept(app: App, mode: str) -> None:
    await app.offer(
        """{
            name: "count",
            description: "Counts.",
            outputSchema: { type: "integer" },
            execute: ({ wrong }) => (wrong ? "three" : 3),
        }"""
    )
    async with app.relay.client(mode) as client:
        right = await client.call_tool("count", {})
        assert right.structured_content == (3 if mode == "auto" else {"result": 3}) and text(right) == "3"
        wrong = await client.call_tool("count", {"wrong": True})
        assert wrong.is_error and "result: expected integer, got string" in text(wrong)


@ERAS
async def test_an_error_of_the_protocol_keeps_its_code_and_data(app: App, mode: str) -> None:
    await app.offer(
        """{
            name: "teapot",
            description: "Refuses.",
            execute() { throw new tabrelay.McpError(-31999, "I am a teapot", { short: true }); },
        }"""
    )
    async with app.relay.client(mode) as client:
        with pytest.raises(MCPError) as refused:
            await client.call_tool("teapot", {})
    error = refused.value.error
    assert (error.code, error.message, error.data) == (-31999, "I am a teapot", {"short": True})
