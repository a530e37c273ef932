"""Python in the browser: one file with every feature, once in the worker and once in a page with PyScript, with the
same results.

The app is on another origin than the relay's, like a web developer's page.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp_types import (
    LoggingMessageNotification,
    PromptReference,
    ResourceTemplateReference,
    ResourceUpdatedNotification,
)
from playwright.async_api import Browser

from tests.e2e.test_page_api import ABLE, ERAS, text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S, pause
from tests.support.worker_modes import carry

SHOWCASE = Path(__file__).parents[1] / "support" / "showcase.py"

IN_WORKER = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({ server: "show", worker: "/worker.js", token: "TOKEN", modules: ["/showcase.py"] });
</script>
"""

IN_PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({ server: "show", worker: "/worker.js", token: "TOKEN" });
</script>
<script type="module" src="RELAY/-/pyscript/core.js"></script>
<script type="py" config='CONFIG'>
import showcase
from pyscript.js_modules import tabrelay
from tabserver.page import offer

offer(tabrelay.connect, server="show")
</script>
"""


@pytest.fixture(scope="module", params=["worker", "page"])
async def show(
    request: pytest.FixtureRequest,
    browser: Browser,
    settings: ModuleType,
    place: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[Demo]:
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(SHOWCASE, folder / "showcase.py")
    site = Site(folder)
    async with Demo(tmp_path_factory.mktemp("home"), "show", "--allow-origin", site.origin, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        config = {
            "interpreter": f"{here}/-/pyodide/pyodide.mjs",
            "files": {f"{here}/-/tabserver.zip": "./*", "/showcase.py": ""},
            "js_modules": {"main": {f"{here}/-/client.js": "tabrelay"}},
        }
        page_text = IN_WORKER if request.param == "worker" else IN_PAGE.replace("CONFIG", json.dumps(config))
        (folder / "index.html").write_text(page_text.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        context = await browser.new_context()
        await carry(context, place)
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            await page.wait_for_function(
                """() => globalThis.connection?.state.state === "connected"
                    && connection.catalogue?.tools.some(({ name }) => name === "announce")""",
                timeout=settings.BOOT_TIMEOUT_MS,
            )
            assert await page.evaluate("connection.mode") == place
            owners = await page.evaluate("() => connection.catalogue.tools.map(({ owner }) => owner)")
            assert all((owner == "worker") == (request.param == "worker") for owner in owners)
            yield relay
        await context.close()


@ERAS
async def test_signatures_are_schemas_and_arguments_are_checked_against_them(show: Demo, mode: str) -> None:
    async with show.client(mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools["count"].description == "Count the words of a text."
        assert tools["count"].input_schema["required"] == ["text"]
        assert tools["count"].annotations is not None and tools["count"].annotations.read_only_hint
        assert tools["count"].output_schema is not None
        assert sorted(tools["count"].output_schema["properties"]) == ["unique", "words"]
        counted = await client.call_tool("count", {"text": "to be or not to be", "unique": True})
        assert counted.structured_content == {"words": 4, "unique": True}
        wrong = await client.call_tool("count", {"text": ["to"], "unique": True})
        assert wrong.is_error and "arguments.text: expected string" in text(wrong)


@ERAS
async def test_the_client_is_asked_in_the_middle_of_a_call(show: Demo, mode: str) -> None:
    async with show.client(mode, **ABLE) as client:
        told = text(await client.call_tool("interview", {}))
        assert told == "accept | “Hello Alice” indeed | m | file:///work | True"
        assert text(await client.call_tool("patient", {})) == "Alice 1"


@ERAS
async def test_a_client_that_cannot_be_asked_gets_an_error_that_names_the_missing_capability(
    show: Demo, mode: str
) -> None:
    async with show.client(mode) as client:
        assert "does not support elicitation" in text(await client.call_tool("modest", {"cope": True}))
        if mode == "legacy":
            refused = await client.call_tool("modest", {})
            assert refused.is_error and "does not support elicitation" in text(refused)
        else:
            with pytest.raises(MCPError) as missing:
                await client.call_tool("modest", {})
            assert missing.value.error.data["requiredCapabilities"] == {"elicitation": {"form": {}}}


@ERAS
async def test_progress_log_cancellation_and_state_belong_to_the_caller(show: Demo, mode: str) -> None:
    received: asyncio.Queue[tuple[float, float | None, str | None]] = asyncio.Queue()
    logged: asyncio.Queue[Any] = asyncio.Queue()

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        received.put_nowait((progress, total, message))

    async def on_message(message: Any) -> None:
        if isinstance(message, LoggingMessageNotification):
            logged.put_nowait((message.params.level, message.params.logger, message.params.data))

    async with show.client(mode, message_handler=on_message) as client:
        call = asyncio.create_task(client.call_tool("wait", {}, progress_callback=on_progress))
        async with asyncio.timeout(BOUND_S):
            assert await received.get() == (1, 2, "half")
            if mode == "legacy":  # a modern caller states a level in its request, which this client does not do
                assert await logged.get() == ("warning", "showcase", {"waiting": True})
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        async with asyncio.timeout(BOUND_S):
            while True:
                told = (await client.call_tool("remember", {})).structured_content
                assert told is not None
                if told.get("cancelled"):
                    break
        assert told["calls"] >= 1 and told["era"] == ("modern" if mode == "auto" else "legacy")
        assert told["client"] == "mcp" and told["principal"]
    if mode == "legacy":
        async with show.client(mode) as client:  # another session, another caller
            other = (await client.call_tool("remember", {})).structured_content
            assert other is not None and other["calls"] == 1


async def test_results_may_be_content(show: Demo) -> None:
    async with show.client() as client:
        kinds = [block.type for block in (await client.call_tool("draw", {})).content]
    assert kinds == ["text", "image", "audio", "resource"]


@ERAS
async def test_errors_are_reported_without_a_traceback(show: Demo, mode: str) -> None:
    async with show.client(mode) as client:
        kindly = await client.call_tool("explode", {"how": "kindly"})
        assert kindly.is_error and text(kindly) == "out of ink"
        badly = await client.call_tool("explode", {"how": "badly"})
        assert badly.is_error and text(badly) == "ValueError: the fuse was lit"


@ERAS
async def test_resources_prompts_and_completions(show: Demo, mode: str) -> None:
    async with show.client(mode) as client:
        assert [str(item.uri) for item in (await client.list_resources()).resources] == ["show://today"]
        [today] = (await client.read_resource("show://today")).contents
        assert (today.text, today.mime_type) == ("# Buy milk", "text/markdown")  # type: ignore[union-attr]
        [note] = (await client.read_resource("show://notes/alpha")).contents
        assert note.blob == "YWxwaGE="  # type: ignore[union-attr]
        with pytest.raises(MCPError) as missing:
            await client.read_resource("show://notes/missing")
        assert missing.value.error.code == (-32602 if mode == "auto" else -32002)
        template = ResourceTemplateReference(type="ref/resource", uri="show://notes/{name}")
        assert (await client.complete(template, {"name": "name", "value": "b"})).completion.values == ["beta"]
        got = await client.get_prompt("review", {"code": "x = 1"})
        assert [message.content.text for message in got.messages] == ["Be kind.", "x = 1"]  # type: ignore[union-attr]
        reference = PromptReference(type="ref/prompt", name="review")
        assert (await client.complete(reference, {"name": "tone", "value": "s"})).completion.values == ["strict"]
        with pytest.raises(MCPError) as wrong:
            await client.get_prompt("review", {"code": "x", "tone": "rude"})
        assert "arguments.tone" in wrong.value.error.message


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")  # modern era only: this client uses the other
async def test_subscribers_are_notified_of_changes(show: Demo) -> None:
    updated: asyncio.Queue[str] = asyncio.Queue()

    async def on_message(message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            updated.put_nowait(str(message.params.uri))

    async def tools(client: Any) -> list[str]:
        return [tool.name for tool in (await client.list_tools()).tools]

    async with show.client("legacy", message_handler=on_message) as client, asyncio.timeout(BOUND_S):
        await client.subscribe_resource("show://today")
        await client.call_tool("announce", {})
        assert await updated.get() == "show://today"
        while "brief" not in await tools(client):
            await pause()
        assert text(await client.call_tool("brief", {})) == "gone"
        while "brief" in await tools(client):
            await pause()
