"""Python packages in a worker that started from the snapshot: pure, compiled, missing, with progress and advice."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import ModuleType

import httpx2
from playwright.async_api import BrowserContext

from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.waiting import BOUND_S, until
from tests.support.wheels import TAG, make_distribution, make_wheel

ROOT = Path(__file__).parents[2]
PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "/-/client.js";
globalThis.told = [];
globalThis.connection = connect({ server: "notes", modules: ["/tools.py"], packages: ["quick-one"], runPython: true });
connection.addEventListener("package", ({ detail }) => told.push([detail.name, detail.stage, detail.loaded ?? 0]));
</script>
"""
TOOLS = '''from typing_inspection import introspection
import quick_one
from tabserver import tool

@tool
def say() -> str:
    """Which packages are there?"""
    return f"{introspection.__name__} {quick_one.WORD}"
'''
PLOT = '''
@tool
def plot() -> str:
    """Import a package during the call."""
    import numpy
    return numpy.__version__
'''


async def packages(home: Path, *words: str) -> str:
    """`tabrelay packages` with the wheelhouse of the build instead of an index."""
    wheelhouse = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(ROOT / "dist"), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", "from tabrelay.cli.main import main; raise SystemExit(main())", "packages"]
    process = await asyncio.create_subprocess_exec(
        *command, "--home", str(home), *words, stdout=-1, stderr=asyncio.subprocess.STDOUT, env=wheelhouse
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return said.decode()


async def test_packages_of_the_relay_can_be_imported(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    home, folder = tmp_path / "home", tmp_path / "app"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE)
    (folder / "tools.py").write_text(TOOLS + PLOT)
    distribution = tmp_path / "pyodide"
    wheel = make_wheel(distribution, "quick-one", tag=TAG)
    make_distribution(distribution, {"quick-one": (wheel, [])})
    await packages(home, "add", "typing-inspection", "quick-one", "--pyodide", str(distribution))
    async with Demo(home, str(folder), verb="dev") as relay:
        page = await context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        await page.goto(relay.url)
        await page.wait_for_function(
            "connection.catalogue?.tools.some(({ name }) => name === 'say') && connection.state.state === 'connected'",
            timeout=settings.BOOT_TIMEOUT_MS,
        )
        assert await page.evaluate("connection.boot.from") == "snapshot"
        async with relay.client() as client:
            assert text(await client.call_tool("say", {})) == "typing_inspection.introspection quick-one 1.0"
            told = await page.evaluate("told")
            assert ["quick-one", "ready", 0] in told and ["typing-extensions", "ready", 0] in told
            assert any(stage == "download" and loaded > 0 for _, stage, loaded in told)
            assert any(line.startswith("tabrelay: downloading quick-one 1.0") for line in said)

            # An import during a call that fails: its caller and the console get the command.
            missing = await client.call_tool("plot", {})
            step = "numpy is compiled. Add it to the relay, and reload the page: "
            wanted = f"{step}tabrelay packages add numpy --pyodide FOLDER_OR_URL"
            assert missing.is_error and text(missing).startswith("ModuleNotFoundError: ")
            assert text(missing).endswith(f". {wanted}")
            await until(lambda: any('Tool "plot" failed.' in line and line.endswith(wanted) for line in said))

            # A package that the relay does not have: the old tools stay, and the command is named.
            (folder / "tools.py").write_text(TOOLS + "import numpy\n")
            wanted = "numpy is compiled. Add it to the relay: tabrelay packages add numpy --pyodide FOLDER_OR_URL"
            await until(lambda: any(wanted in line and "line 9" in line for line in said))
            assert text(await client.call_tool("say", {})).endswith("quick-one 1.0")
            # A module that is written now, with a package that is added now, is loaded without a reload.
            (folder / "tools.py").write_text(TOOLS.replace("quick_one", "late_one"))
            await until(lambda: any("tabrelay packages add late_one" in line for line in said))
            late = make_wheel(distribution, "late-one", tag=TAG)
            make_distribution(distribution, {"late-one": (late, [])})
            await packages(home, "add", "late-one", "--pyodide", str(distribution))

            async def has_it() -> bool:
                return text(await client.call_tool("say", {})).endswith("late-one 1.0")

            await until(has_it, BOUND_S)


async def test_a_damaged_package_is_not_unpacked_and_clients_without_a_token_get_none(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    home, folder, distribution = tmp_path / "home", tmp_path / "app", tmp_path / "pyodide"
    folder.mkdir()
    (folder / "index.html").write_text(PAGE.replace('modules: ["/tools.py"], ', ""))
    wheel = make_wheel(distribution, "quick-one", tag=TAG)
    make_distribution(distribution, {"quick-one": (wheel, [])})
    await packages(home, "add", "quick-one", "--pyodide", str(distribution))
    kept = home / "packages" / wheel.name
    kept.write_bytes(kept.read_bytes()[:-1] + b"x")
    async with Demo(home, str(folder), verb="dev") as relay:
        async with httpx2.AsyncClient(trust_env=False, base_url=f"http://127.0.0.1:{relay.port}") as http:
            for headers in ({}, {"Origin": "https://far.example"}, {"Origin": f"http://127.0.0.1:{relay.port}"}):
                assert (await http.get("/-/packages/index.json", headers=headers)).status_code in (401, 403)
        page = await context.new_page()
        said: list[str] = []
        page.on("console", lambda message: said.append(message.text))
        await page.goto(relay.url)
        await page.wait_for_function("connection.state.state === 'connected'", timeout=settings.BOOT_TIMEOUT_MS)
        await until(lambda: any("quick-one is damaged: its hash is not the one of the index" in line for line in said))
