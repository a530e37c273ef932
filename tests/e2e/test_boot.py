"""Start of Python in a worker: from the snapshot as a rule, and from the files if the snapshot can't be used."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import struct
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page

from tabrelay.assets.files import Asset, Assets, read_all
from tests.support.other_origin import Site
from tests.support.running_relay import RunningRelay

SERVER = "boot"
PATIENCE_MS = 10_000
LIBRARY = "/python_stdlib.zip"
OTHER_HOST = "relay.example"

PAGE = """<!doctype html>
<title>Booting</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const options = { server: "boot", relay: "RELAY", token: "TOKEN", worker: "/WORKER", modules: ["/tools.py"] };
globalThis.connection = connect(options);
connection.offerTool({ name: "title", description: "The page's title.", execute: () => document.title });
</script>
"""
CONNECTED = "connection.state.state === 'connected' && connection.catalogue?.tools.some(({ name }) => name === 'title')"

TOOLS = '''"""What a snapshot could have frozen."""

import random
import secrets
import time
import uuid
from datetime import datetime

import pyodide_js
from tabserver import tool


@tool
def chance() -> list[str]:
    """Three kinds of chance."""
    return [str(random.random()), secrets.token_hex(), str(uuid.uuid4())]


@tool
def clock() -> dict[str, object]:
    """What time it is, and where."""
    now = datetime.now().astimezone()
    return {
        "offset_s": now.utcoffset().total_seconds(),
        "name": now.tzname(),
        "constants": [time.timezone, time.altzone, time.daylight, *time.tzname],
        "age_s": abs(time.time() - now.timestamp()),
    }


@tool
def late_import() -> list[str]:
    """A module of the library that no snapshot contains."""
    import colorsys

    return [colorsys.__name__]


@tool
def trampoline() -> int:
    """How Python calls C functions of fewer arguments: by this function or, if it is 0, through JavaScript."""
    c = pyodide_js._module
    at = c.__PyRuntime + c.HEAPU32[c.__PyEM_EMSCRIPTEN_TRAMPOLINE_OFFSET // 4]
    return c.HEAPU32[at // 4]
'''


class Tampered(Assets):
    """The real files, except the one whose address contains `marked`, which a test alters."""

    marked = "/snapshot-"
    tamper: Callable[[Asset], Asset | None] = staticmethod(lambda asset: asset)
    about: Callable[[dict[str, Any]], dict[str, Any]] = staticmethod(lambda manifest: manifest)

    def lookup(self, path: str) -> Asset | None:
        asset = super().lookup(path)
        return self.tamper(asset) if asset is not None and self.marked in path else asset

    def manifest(self) -> dict[str, Any]:
        return self.about(super().manifest())


def tampered() -> Tampered:
    assets = Tampered.find()
    assert isinstance(assets, Tampered)
    assert assets.snapshot is not None, "no snapshot fits these files: python3 .ci/setup.py snapshot"
    return assets


def held_back() -> tuple[Tampered, threading.Event, threading.Event]:
    """Files whose snapshot is withheld; returns an event for its request and one that releases it."""
    assets, arrived, goes_on = tampered(), threading.Event(), threading.Event()

    def hold(asset: Asset) -> Asset:
        arrived.set()
        assert goes_on.wait(60)
        return asset

    assets.tamper = hold
    return assets, arrived, goes_on


def with_library_noted() -> tuple[Tampered, list[str]]:
    """Files, and the requests for Python's library so far."""
    assets = tampered()
    requested: list[str] = []

    def note(asset: Asset) -> Asset:
        requested.append(asset.etag)
        return asset

    assets.marked, assets.tamper = LIBRARY, note
    return assets, requested


class BootSetup:
    """A relay with the given assets, and a web app of another origin whose pages boot a worker."""

    def __init__(self, relay: RunningRelay, site: Site, host: str) -> None:
        self._site = site
        self.relay = relay
        url = f"http://{host}:{relay.port}"
        for name, query in (("patient", ""), ("impatient", f"?boot_ms={PATIENCE_MS}")):
            (site.folder / f"{name}.js").write_text(f'import "{url}/-/worker.js{query}";')
            filled = PAGE.replace("RELAY", url).replace("TOKEN", relay.token)
            (site.folder / f"{name}.html").write_text(filled.replace("WORKER", f"{name}.js"))
        (site.folder / "tools.py").write_text(TOOLS)

    async def visit(self, context: BrowserContext, name: str = "patient") -> Page:
        """Open a page and do not wait for Python."""
        page = await context.new_page()
        await page.goto(f"{self._site.origin}/{name}.html")
        await page.wait_for_function("globalThis.connection !== undefined")
        return page

    async def call(self, tool: str) -> Any:
        response = await self.relay.call(SERVER, tool)
        return json.loads(response.json()["result"]["content"][0]["text"])

    async def tools(self) -> set[str]:
        response = await self.relay.http.post(f"/{SERVER}", **self.relay.modern("tools/list"))
        return {tool["name"] for tool in response.json()["result"]["tools"]}

    async def works(self) -> None:
        response = await self.relay.call(SERVER, "title")
        assert response.json()["result"]["content"][0]["text"] == "Booting"


@asynccontextmanager
async def boot_setup(folder: Path, assets: Assets | None = None, host: str = "127.0.0.1") -> AsyncIterator[BootSetup]:
    (folder / "app").mkdir()
    with Site(folder / "app") as site:
        allowed: dict[str, Any] = {"allow_origins": (site.origin,), "allow_hosts": (host,)}
        async with RunningRelay(folder / "home", assets=assets, servers=(SERVER,), **allowed) as relay:
            yield BootSetup(relay, site, host)


async def booted(page: Page, settings: ModuleType) -> dict[str, Any]:
    """Wait until it is connected; returns the worker's report of its boot."""
    await page.wait_for_function(CONNECTED, timeout=settings.BOOT_TIMEOUT_MS)
    boot: dict[str, Any] = await page.evaluate("connection.boot")
    assert boot["stage"] == "ready"
    return boot


# -- from the snapshot -------------------------------------------------------------------------------------------------


async def test_a_worker_starts_from_the_snapshot_with_chance_and_time_of_its_own(
    browser: Browser, settings: ModuleType, tmp_path: Path
) -> None:
    chances = []
    async with boot_setup(tmp_path) as stand:
        for zone, offset_h, constants in (
            ("Asia/Tokyo", 9, [-32400, -32400, 0, "UTC+0900", "UTC+0900"]),
            ("America/Phoenix", -7, [25200, 25200, 0, "UTC-0700", "UTC-0700"]),
        ):
            context = await browser.new_context(timezone_id=zone)
            page = await stand.visit(context)
            assert (await booted(page, settings))["from"] == "snapshot"
            await stand.works()
            clock = await stand.call("clock")
            assert clock["offset_s"] == offset_h * 3600
            assert clock["constants"] == constants
            assert clock["name"] == constants[-1]
            assert clock["age_s"] < 60
            chances.append(await stand.call("chance"))
            await context.close()
    assert all(one != other for one, other in zip(*chances, strict=True))


async def test_python_from_a_snapshot_calls_functions_the_way_this_browser_can(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    """The Node that makes snapshots can't do this; a loop over `text.isascii()` then takes two and a half times as
    long."""
    async with boot_setup(tmp_path) as stand:
        page = await stand.visit(context)
        assert (await booted(page, settings))["from"] == "snapshot"
        assert await stand.call("trampoline") > 0


async def test_the_library_is_downloaded_when_a_tool_imports_a_module_that_is_not_in_the_snapshot(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets, requested = with_library_noted()
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        assert (await booted(page, settings))["from"] == "snapshot"
        await stand.call("chance")
        assert requested == []
        for _ in range(2):
            assert (await stand.call("late_import"))[0] == "colorsys"
        assert len(requested) == 1


async def test_from_another_computer_the_library_is_downloaded_before_python_runs(
    browser: Browser, settings: ModuleType, tmp_path: Path
) -> None:
    """An import is synchronous: on a slow network it would stop the worker until the download ends."""
    assets, requested = with_library_noted()
    flags = [f"--host-resolver-rules=MAP {OTHER_HOST} 127.0.0.1"]
    distant = await browser.browser_type.launch(**settings.launch_options(args=flags))
    try:
        async with boot_setup(tmp_path, assets, OTHER_HOST) as stand:
            page = await stand.visit(await distant.new_context())
            assert (await booted(page, settings))["from"] == "snapshot"
            assert len(requested) == 1
            assert (await stand.call("late_import"))[0] == "colorsys"
            assert len(requested) == 1
    finally:
        await distant.close()


async def test_an_import_fails_alone_while_the_library_cannot_be_downloaded(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets = tampered()
    assets.marked, assets.tamper = LIBRARY, missing
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        assert (await booted(page, settings))["from"] == "snapshot"
        refused = (await stand.relay.call(SERVER, "late_import")).json()["result"]
        assert refused["isError"]
        await stand.works()
        del assets.tamper
        assert (await stand.call("late_import"))[0] == "colorsys"


async def test_without_a_snapshot_that_fits_a_worker_starts_from_the_files(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets = tampered()
    assets.about = lambda manifest: {key: value for key, value in manifest.items() if key != "snapshot"}
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        assert await booted(page, settings) == {"t": "boot", "stage": "ready", "from": "files"}
        await stand.works()


async def test_a_call_that_comes_while_python_starts_waits_and_is_answered(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets, arrived, goes_on = held_back()
    async with boot_setup(tmp_path, assets) as stand:
        try:
            page = await stand.visit(context)
            assert await asyncio.to_thread(arrived.wait, settings.BOOT_TIMEOUT_MS / 1000)
            calling = asyncio.create_task(stand.relay.call(SERVER, "title"))
            # The worker runs and reports it, Python does not run yet, and no page has given up.
            await page.wait_for_function("connection.boot?.stage === 'download'")
            await stand.relay.http.get("/-/status")
            assert not calling.done()
        finally:
            goes_on.set()
        assert (await calling).json()["result"]["content"][0]["text"] == "Booting"
        assert (await booted(page, settings))["from"] == "snapshot"


async def test_the_tools_of_a_page_that_came_before_python_are_listed_as_soon_as_there_is_one(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets, arrived, goes_on = held_back()
    async with boot_setup(tmp_path, assets) as stand:
        try:
            await stand.visit(context)
            assert await asyncio.to_thread(arrived.wait, settings.BOOT_TIMEOUT_MS / 1000)
            assert await stand.tools() == set()
            calling = asyncio.create_task(stand.call("chance"))
            await stand.relay.http.get("/-/status")
        finally:
            goes_on.set()
        # A built-in Python tool answers, so the worker runs. The test waits for nothing from here on.
        await calling
        assert await stand.tools() == {"title", "chance", "clock", "late_import", "trampoline"}


# -- faults ------------------------------------------------------------------------------------------------------------


def missing(_asset: Asset) -> None:
    return None


def damaged(asset: Asset) -> Asset:
    body = bytearray(read_all(asset.body))
    body[len(body) // 2] ^= 1
    return replace(asset, body=bytes(body), encoded={})


def emptied(asset: Asset) -> Asset:
    """A memory image with a correct header and no data: Python fails as soon as it runs in it."""
    body = read_all(asset.body)
    head, length, _, count = struct.unpack_from("<IIII", body)
    start = 16 + 12 * count
    return replace(asset, body=struct.pack("<IIII", head, length, 0, 0) + body[start : start + head], encoded={})


def of_another_wasm(asset: Asset) -> Asset:
    """A memory image in which a part that is not stored has the contents of another wasm file."""
    body = read_all(asset.body)
    (checksum,) = struct.unpack_from("<I", body, 8)
    return replace(asset, body=body[:8] + struct.pack("<I", checksum ^ 1) + body[12:], encoded={})


def cut_short(asset: Asset) -> Asset:
    body = read_all(asset.body)
    return replace(asset, body=body[: len(body) // 2], encoded={})


def integrity(body: bytes) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(body).digest()).decode()


BAD = [missing, damaged, emptied, of_another_wasm, cut_short]


@pytest.mark.parametrize("tamper", BAD, ids=lambda tamper: str(tamper.__name__))
async def test_a_bad_snapshot_costs_time_and_nothing_else(
    context: BrowserContext, settings: ModuleType, tmp_path: Path, tamper: Callable[[Asset], Asset | None]
) -> None:
    assets = tampered()
    assets.tamper = tamper
    if tamper not in (missing, damaged):  # its hash is listed, and its contents are wrong
        url = assets.manifest()["snapshot"]["url"]
        bad = assets.lookup(url.removeprefix("/-/"))
        assert bad is not None
        snapshot = {"url": url, "integrity": integrity(read_all(bad.body))}
        assets.about = lambda manifest: {**manifest, "snapshot": snapshot}
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        boot = await booted(page, settings)
        assert boot["from"] == "stock"
        assert boot["detail"]
        if tamper is damaged:
            assert boot["detail"] == "The memory snapshot is damaged."
        if tamper is of_another_wasm:
            assert "does not fit the memory" in boot["detail"]
        await stand.works()


async def test_the_wait_for_a_snapshot_has_a_deadline(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets, ends = tampered(), threading.Event()

    def stall(asset: Asset) -> Asset:
        ends.wait(settings.BOOT_TIMEOUT_MS / 1000)
        return asset

    assets.tamper = stall
    async with boot_setup(tmp_path, assets) as stand:
        try:
            page = await stand.visit(context, "impatient")
            boot = await booted(page, settings)
            assert boot["from"] == "stock"
            assert "no progress for 10 s" in boot["detail"]
            await stand.works()
        finally:
            ends.set()


async def test_if_all_attempts_fail_the_page_shows_why_and_a_retry_starts_again(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets = tampered()
    assets.marked = "pyodide.asm.wasm"
    assets.tamper = missing
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        await page.wait_for_function("connection.state.why === 'boot_failed'", timeout=settings.BOOT_TIMEOUT_MS)
        assert "pyodide.asm.wasm: the relay answered 404" in await page.evaluate("connection.state.message")
        del assets.tamper
        await page.evaluate("connection.retry()")
        assert (await booted(page, settings))["from"] == "snapshot"
        await stand.works()


async def test_a_worker_that_failed_to_start_is_started_again_by_itself(
    context: BrowserContext, settings: ModuleType, tmp_path: Path
) -> None:
    assets = tampered()
    assets.marked = "pyodide.asm.wasm"
    assets.tamper = missing
    async with boot_setup(tmp_path, assets) as stand:
        page = await stand.visit(context)
        await page.wait_for_function("connection.state.why === 'boot_failed'", timeout=settings.BOOT_TIMEOUT_MS)
        del assets.tamper
        await page.wait_for_function("connection.boot.stage === 'ready'", timeout=settings.BOOT_TIMEOUT_MS)
        await stand.works()
