"""Python code sent by callers, run in the real worker: off by default, with a time limit, and with separate names for
each caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import pytest
from mcp import MCPError
from mcp.client.client import Client
from playwright.async_api import Browser

from tests.e2e.test_page_api import ERAS, text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S

PAGE = """<!doctype html>
<title>Notebook</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const connection = connect({ server: "lab", worker: "/worker.js", token: "TOKEN" });
connection.offerTool({ name: "turn_on", execute() {
  connect({ server: "lab", runPython: { timeoutMs: 2_000, maxOutput: 500 } });
} });
</script>
"""

ENDLESS = "import sys\nsys.setrecursionlimit(10**6)\n"


async def names(client: Client) -> list[str]:
    return sorted(tool.name for tool in (await client.list_tools()).tools)


async def until_offered(client: Client, wanted: str) -> None:
    async with asyncio.timeout(60):
        while True:
            if wanted in await names(client):
                return
            await asyncio.sleep(0.05)


@pytest.fixture(scope="module")
async def lab(browser: Browser, settings: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Demo]:
    folder = tmp_path_factory.mktemp("app")
    site = Site(folder)
    # No user is present to allow each run.
    flags = ("--allow-origin", site.origin, "--approve", "none")
    async with Demo(tmp_path_factory.mktemp("home"), "lab", *flags, verb="serve") as relay:
        here = f"http://127.0.0.1:{relay.port}"
        (folder / "index.html").write_text(PAGE.replace("RELAY", here).replace("TOKEN", relay.token))
        (folder / "worker.js").write_text(f'import "{here}/-/worker.js";\n')
        context = await browser.new_context()
        with site:
            page = await context.new_page()
            await page.goto(site.origin)
            async with relay.client() as client:
                await until_offered(client, "turn_on")
                assert await names(client) == ["turn_on"], "no caller runs Python unless the page allows it"
                await client.call_tool("turn_on", {})
                await until_offered(client, "run_python")
            yield relay
        await context.close()


async def run(client: Client, code: str, **more: Any) -> dict[str, Any]:
    result = await client.call_tool("run_python", {"code": code, **more})
    assert result.structured_content is not None
    assert bool(result.is_error) == (result.structured_content["error"] is not None)
    content: dict[str, Any] = result.structured_content
    return content


@ERAS
async def test_output_result_and_traceback_arrive(lab: Demo, mode: str) -> None:
    async with lab.client(mode) as client:
        [tool] = [tool for tool in (await client.list_tools()).tools if tool.name == "run_python"]
        assert tool.annotations is not None
        assert tool.annotations.destructive_hint and tool.annotations.open_world_hint
        code = "import js, sys\nprint('hello')\nprint('oh', file=sys.stderr)\nawait js.Promise.resolve(6 * 7)"
        assert await run(client, code) == {"stdout": "hello\n", "stderr": "oh\n", "result": "42", "error": None}
        failed = await client.call_tool("run_python", {"code": "def f():\n    return {}['x']\nf()"})
        assert failed.is_error
        assert "    return {}['x']" in text(failed) and text(failed).endswith("KeyError: 'x'")
        printed = await run(client, "print('x' * 1000)")
        assert printed["stdout"] == "x" * 500 + "… (501 characters left out)"


async def test_names_belong_to_the_caller(lab: Demo) -> None:
    async with lab.client("legacy") as one, lab.client("legacy") as other:
        await run(one, "x = 1")
        assert (await run(one, "x + 1"))["result"] == "2"
        assert "NameError" in (await run(other, "x"))["error"]
        assert "NameError" in (await run(one, "x", reset=True))["error"]


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import asyncio\nawait asyncio.sleep(0)\nwhile True: pass",
        "def f(n):\n    for _ in range(10): f(n + 1) if n < 9 else None\nf(0)",
        "import asyncio\nawait asyncio.sleep(60)",
        "while True:\n    try:\n        while True: pass\n    except Exception: pass",
    ],
)
async def test_what_runs_too_long_is_stopped_and_the_worker_lives(lab: Demo, code: str) -> None:
    async with lab.client() as client:
        assert (await run(client, code))["error"] == "TimeoutError: the code was stopped after 2 s"
        assert (await run(client, "1 + 1"))["result"] == "2"


async def test_a_cancelled_call_ends_in_the_code(lab: Demo) -> None:
    waits = "import asyncio, builtins\ntry: await asyncio.sleep(1.5)\nexcept BaseException: builtins.ended = 1; raise"
    async with lab.client() as client, asyncio.timeout(BOUND_S):
        call = asyncio.create_task(client.call_tool("run_python", {"code": waits}))
        while True:  # the earlier run ends first: this one is answered after it
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            seen = await run(client, "import builtins\ngetattr(builtins, 'ended', 0)")
            if seen["result"] == "1":
                break
            call = asyncio.create_task(client.call_tool("run_python", {"code": waits}))
            await asyncio.sleep(0.1)


async def test_a_python_that_breaks_down_is_replaced(lab: Demo) -> None:
    """Unlimited recursion through C overflows the browser's stack, which Pyodide can't recover from."""
    async with lab.client() as client:
        with pytest.raises(MCPError) as lost:
            await run(client, ENDLESS + "class A:\n    def __repr__(self): return repr(A())\nrepr(A())")
        assert lost.value.error.data is not None and lost.value.error.data["reason"] == "browser_gone"
        await until_offered(client, "run_python")
        assert (await run(client, "1 + 1"))["result"] == "2"


async def test_recursion_without_an_end_is_over_in_time(lab: Demo) -> None:
    """Python's own recursion uses no stack: it ends at the limit or at the deadline, unless unwinding takes too
    long."""
    async with lab.client() as client, asyncio.timeout(60):
        try:
            error = (await run(client, ENDLESS + "def f(n): return f(n + 1)\nf(0)"))["error"]
            assert "RecursionError" in error or error == "TimeoutError: the code was stopped after 2 s"
        except MCPError as lost:
            assert lost.error.data is not None and lost.error.data["reason"] == "browser_gone"
        await until_offered(client, "run_python")
        assert (await run(client, "1 + 1"))["result"] == "2"
