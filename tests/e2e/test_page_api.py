"""The page's JavaScript API in Chromium, on another origin than the relay's.

One relay and one page for the whole file; each test offers what it needs, under its own names.
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
    PromptReference,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
    Root,
    TextContent,
)
from playwright.async_api import Browser, Page

from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S
from tests.support.worker_modes import carry

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
    """A web app that is attached to a relay."""

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
async def app(
    browser: Browser, settings: ModuleType, place: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), SERVER, "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        context = await browser.new_context()
        await carry(context, place)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(
                "globalThis.connection?.state.state === 'connected'", timeout=settings.BOOT_TIMEOUT_MS
            )
            assert await page.evaluate("connection.mode") == place
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
        # Uncaught, it becomes the same error as in a tool of the worker.
        if mode == "legacy":
            result = await client.call_tool("modest", {})
            assert result.is_error and "does not support elicitation" in text(result)
        else:
            with pytest.raises(MCPError) as refused:
                await client.call_tool("modest", {})
            assert refused.value.error.data["requiredCapabilities"] == {"elicitation": {"form": {}}}


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
        raise AssertionError("it is never set")

    async with app.relay.client("legacy", elicitation_callback=never) as client:
        call = asyncio.create_task(client.call_tool("abandoned", {}))
        async with asyncio.timeout(BOUND_S):
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


# -- resources, prompts, completions -----------------------------------------------------------------------------------


async def test_a_page_offers_resources_and_templates(app: App) -> None:
    await app.page.evaluate(
        """() => {
            connection.offerResource({
                uri: "notes://today", mimeType: "text/markdown", description: "The note.", read: () => "# Buy milk",
            });
            connection.offerResource({ uri: "notes://bytes", read: () => new Uint8Array([1, 2, 255]) });
            connection.offerResource({ uri: "notes://json", read: () => ({ milk: 2 }) });
            connection.offerResource({
                uri: "notes://by/{name}",
                name: "note",
                complete: { name: (typed, args) => ["alpha", "beta"].filter((word) => word.startsWith(typed)) },
                async read(uri, { variables: { name }, progress }) {
                    if (name === "missing") throw new tabrelay.ResourceNotFound(uri);
                    return `${uri} by ${name}`;
                },
            });
        }"""
    )
    await app.page.wait_for_function("connection.catalogue?.templates.length === 1")
    async with app.relay.client() as client:
        listed = {str(item.uri): item for item in (await client.list_resources()).resources}
        assert sorted(listed) == ["notes://bytes", "notes://json", "notes://today"]
        assert listed["notes://today"].description == "The note."
        [template] = (await client.list_resource_templates()).resource_templates
        assert (template.uri_template, template.name) == ("notes://by/{name}", "note")
        [note] = (await client.read_resource("notes://today")).contents
        assert (note.text, note.mime_type) == ("# Buy milk", "text/markdown")  # type: ignore[union-attr]
        [raw] = (await client.read_resource("notes://bytes")).contents
        assert raw.blob == "AQL/"  # type: ignore[union-attr]
        [data] = (await client.read_resource("notes://json")).contents
        assert (data.text, data.mime_type) == ('{"milk":2}', "application/json")  # type: ignore[union-attr]
        [made] = (await client.read_resource("notes://by/B%C3%A4r")).contents
        assert made.text == "notes://by/B%C3%A4r by Bär"  # type: ignore[union-attr]
        with pytest.raises(MCPError) as missing:
            await client.read_resource("notes://by/missing")
        assert missing.value.error.data["uri"] == "notes://by/missing"
        ref = ResourceTemplateReference(type="ref/resource", uri="notes://by/{name}")
        found = await client.complete(ref, {"name": "name", "value": "al"})
        assert found.completion.values == ["alpha"]


@ERAS
async def test_a_page_offers_prompts_and_completes_their_arguments(app: App, mode: str) -> None:
    await app.page.evaluate(
        """() => connection.offerPrompt({
            name: "review",
            description: "Review code.",
            arguments: [{ name: "code", required: true }, { name: "tone" }],
            complete: { tone: ["kind", "keen", "strict"] },
            get: ({ code, tone = "kind" }) => [`Be ${tone}.`, { role: "assistant", content: "Show me." }, code],
        })"""
    )
    await app.page.wait_for_function("connection.catalogue?.prompts.length === 1")
    async with app.relay.client(mode) as client:
        [listed] = (await client.list_prompts()).prompts
        assert listed.arguments is not None and [a.name for a in listed.arguments] == ["code", "tone"]
        got = await client.get_prompt("review", {"code": "x = 1", "tone": "strict"})
        said = [(message.role, message.content.text) for message in got.messages]  # type: ignore[union-attr]
        assert said == [("user", "Be strict."), ("assistant", "Show me."), ("user", "x = 1")]
        with pytest.raises(MCPError) as wrong:
            await client.get_prompt("review", {"tune": "x"})
        assert wrong.value.error.code == -32602
        assert "arguments.tune: unknown" in wrong.value.error.message
        assert "arguments.code: missing" in wrong.value.error.message
        ref = PromptReference(type="ref/prompt", name="review")
        found = await client.complete(ref, {"name": "tone", "value": "K"})
        assert found.completion.values == ["kind", "keen"]


async def test_an_offer_is_withdrawn_by_its_signal_and_the_one_that_replaced_it_stays(app: App) -> None:
    await app.page.evaluate(
        """() => {
            globalThis.first = new AbortController();
            globalThis.second = new AbortController();
            const note = (text) => ({ uri: "draft://one", read: () => text });
            connection.offerResource(note("old"), { signal: first.signal });
            connection.offerResource(note("new"), { signal: second.signal });
            connection.offerResource({ uri: "draft://never", read: () => "" }, { signal: AbortSignal.abort() });
            first.abort();
        }"""
    )
    await app.page.wait_for_function("connection.catalogue?.resources.some(({ uri }) => uri === 'draft://one')")
    async with app.relay.client() as client:
        [draft] = (await client.read_resource("draft://one")).contents
        assert draft.text == "new"  # type: ignore[union-attr]
        await app.page.evaluate("() => second.abort()")
        await app.page.wait_for_function("!connection.catalogue.resources.some(({ uri }) => uri.startsWith('draft:'))")
        uris = [str(item.uri) for item in (await client.list_resources()).resources]
        assert not [uri for uri in uris if uri.startswith("draft:")]


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")  # modern era only: this client uses the other
async def test_subscribers_are_notified_of_an_update(app: App) -> None:
    await app.page.evaluate("() => connection.offerResource({ uri: 'live://news', read: () => 'now' })")
    await app.page.wait_for_function("connection.catalogue?.resources.some(({ uri }) => uri === 'live://news')")
    received: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            received.put_nowait(str(message.params.uri))

    async with app.relay.client("legacy", message_handler=on_message) as client:
        await client.subscribe_resource("live://news")
        await app.page.evaluate("() => connection.resourceUpdated('live://news')")
        async with asyncio.timeout(BOUND_S):
            assert await received.get() == "live://news"


async def test_an_offer_that_is_none_is_refused_at_once(app: App) -> None:
    problems = await app.page.evaluate(
        """() => {
            const attempts = [
                () => connection.offerTool({ name: "two words", execute() {} }),
                () => connection.offerTool({ name: "lazy" }),
                () => connection.offerResource({ uri: "nowhere", read() {} }),
                () => connection.offerResource({ uri: "notes://x" }),
                () => connection.offerPrompt({ get() {} }),
                () => connection.offerPrompt({ name: "empty" }),
                () => tabrelay.connect({}),
            ];
            return attempts.map((attempt) => {
                try { attempt(); return "none"; } catch (error) { return `${error.name}: ${error.message}`; }
            });
        }"""
    )
    assert all(problem.startswith("TypeError: ") for problem in problems), problems
    for problem, word in zip(problems, ("name", "execute", "scheme", "read", "name", "get", "server"), strict=True):
        assert word in problem
    assert [problem for problem in problems[:-1] if not problem.endswith(". [TR473]")] == []


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


async def test_a_result_comes_at_once_or_later_and_an_error_too(app: App) -> None:
    await app.offer(
        """{
            name: "whenever",
            description: "Answers in many ways.",
            execute: ({ how }) => ({
                now: () => "done",
                promised: async () => "done",
                thenable: () => ({ then(resolve) { setTimeout(() => resolve("done")); } }),
                blob: () => new Blob(["done"], { type: "image/png" }),
                thrown: () => { throw new Error("broken"); },
                rejected: async () => { throw new Error("broken"); },
                unwritable: () => ({ content: [{ type: "text", text: 1n }] }),
            })[how](),
        }"""
    )
    async with app.relay.client() as client:
        for how in ("now", "promised", "thenable"):
            assert text(await client.call_tool("whenever", {"how": how})) == "done"
        [picture] = (await client.call_tool("whenever", {"how": "blob"})).content
        assert picture.type == "image" and picture.data == "ZG9uZQ=="
        for how, problem in (("thrown", "broken"), ("rejected", "broken"), ("unwritable", "BigInt")):
            failed = await client.call_tool("whenever", {"how": how})
            assert failed.is_error and problem in text(failed)


async def test_a_promised_result_is_checked_when_its_blobs_are_read(app: App) -> None:
    await app.offer(
        """{
            name: "scan",
            description: "A picture, but its schema wants a number.",
            outputSchema: { type: "integer" },
            execute: () => new Blob(["x"], { type: "image/png" }),
        }"""
    )
    async with app.relay.client() as client:
        scanned = await client.call_tool("scan", {})
    assert scanned.is_error and "result: expected integer, got null" in text(scanned)


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
        assert right.structured_content == {"result": 3} and text(right) == "3"
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


async def test_a_page_is_notified_of_calls_as_soon_as_it_listens(app: App) -> None:
    await app.offer('{ name: "tick", description: "Ticks.", execute: () => "tock" }')
    async with app.relay.client() as client:
        await client.call_tool("tick", {})
        await app.page.evaluate(
            """() => {
                globalThis.seen = [];
                connection.addEventListener("activity", ({ detail }) => seen.push(`${detail.name} ${detail.phase}`));
            }"""
        )
        # Calls take another path than the page's request for notifications.
        for _ in range(50):
            await client.call_tool("tick", {})
            if await app.page.evaluate("() => seen.includes('tick done')"):
                break
    await app.page.wait_for_function("() => seen.includes('tick started') && seen.includes('tick done')")
