"""Python files of a page, edited while the page is open: the next call runs the new code, and an error keeps the old
code."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import ModuleType
from typing import Any

import httpx2
import pytest
from playwright.async_api import BrowserContext, Page

from tests.e2e.test_page_api import text
from tests.support.demo import Demo
from tests.support.other_origin import Site
from tests.support.waiting import BOUND_S, until

# The promise is 2 s.
EDIT_BOUND_S = 10.0

PAGE = """<!doctype html>
<title>App</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
globalThis.connection = connect({
  server: "notes", worker: "/worker.js", token: "TOKEN", modules: [MODULES], ...OPTIONS
});
</script>
"""
TOOL = '''from tabserver import tool
from words import WORD

@tool
def say() -> str:
    """Say the word."""
    return WORD + "VERSION"
'''
OFFERED = """connection.state.state === "connected"
    && connection.catalogue?.tools.some(({ name }) => name === "say")"""


class App:
    """A developer's folder, and the relay that it names."""

    def __init__(self, folder: Path, site: Site, relay: Demo) -> None:
        self.folder, self.site, self.relay = folder, site, relay
        self.here = f"http://127.0.0.1:{relay.port}"
        self.write("worker.js", f'import "{self.here}/-/worker.js";\n')

    def write(self, name: str, content: str) -> None:
        """As editors do: a new file replaces the old one."""
        draft = self.folder / f".{name}"
        draft.write_text(content, encoding="utf-8")
        draft.replace(self.folder / name)

    def write_tool(self, version: str = "", word: str = "hello") -> None:
        self.write("words.py", f'WORD = "{word}"\n')
        self.write("tools.py", TOOL.replace("VERSION", version))

    async def open(self, page: Page, options: str = "{}", modules: str = '"/tools.py"', boot_ms: float = 0) -> None:
        html = PAGE.replace("RELAY", self.here).replace("TOKEN", self.relay.token)
        self.write("index.html", html.replace("OPTIONS", options).replace("MODULES", modules))
        await page.goto(f"{self.site.origin}/index.html")
        if boot_ms:
            await page.wait_for_function(OFFERED, timeout=boot_ms)

    async def approve(self, code: str) -> None:
        """As `tabrelay pairs approve CODE` does."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            headers = {"Authorization": f"Bearer {self.relay.token}"}
            (await http.post(f"{self.here}/-/pairs", json={"approve": code}, headers=headers)).raise_for_status()

    async def says(self, expected: str, bound_s: float = EDIT_BOUND_S) -> float:
        """Wait until a call has the answer; returns the seconds that took."""
        start = time.monotonic()
        async with self.relay.client() as client:

            async def has_it() -> bool:
                return text(await client.call_tool("say", {})) == expected

            await until(has_it, bound_s)
        return time.monotonic() - start


@pytest.fixture(scope="module")
async def app(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[App]:
    folder = tmp_path_factory.mktemp("app")
    with Site(folder) as site:
        home = tmp_path_factory.mktemp("home")
        async with Demo(home, "notes", "--allow-origin", site.origin, verb="serve") as relay:
            yield App(folder, site, relay)


@pytest.fixture
async def page(profile: BrowserContext) -> Page:
    page = await profile.new_page()
    page.set_default_timeout(BOUND_S * 1000)
    return page


async def test_an_edit_is_in_force_in_the_next_calls_and_clients_are_notified(
    app: App, page: Page, settings: ModuleType
) -> None:
    app.write_tool("1")
    await app.open(page, boot_ms=settings.BOOT_TIMEOUT_MS)
    await app.says("hello1", BOUND_S)
    changed = asyncio.Event()

    async def on_message(message: Any) -> None:
        if "ToolListChanged" in type(getattr(message, "root", message)).__name__:
            changed.set()

    async with app.relay.client("legacy", message_handler=on_message) as client:
        await client.list_tools()
        app.write("tools.py", TOOL.replace("VERSION", "2") + "\n@tool\ndef more() -> str:\n    return ''\n")
        await app.says("hello2")
        async with asyncio.timeout(BOUND_S):
            await changed.wait()
        assert {tool.name for tool in (await client.list_tools()).tools} == {"say", "more"}
    # A second save within the same second has the same Last-Modified.
    for version in "3456":
        app.write("tools.py", TOOL.replace("VERSION", version))
        await app.says(f"hello{version}")
    # A file that the module imports counts too.
    app.write("words.py", 'WORD = "good morning"\n')
    await app.says("good morning6")


async def test_an_error_keeps_the_old_tools_and_is_shown_with_its_line(
    app: App, page: Page, settings: ModuleType
) -> None:
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    app.write_tool("1")
    await app.open(page, boot_ms=settings.BOOT_TIMEOUT_MS)
    await app.says("hello1", BOUND_S)
    app.write("tools.py", TOOL.replace("VERSION", "2").replace("def say()", "def say("))
    panel = page.locator("tabrelay-panel section")
    await panel.wait_for(timeout=BOUND_S * 1000)
    shown = await panel.inner_text()
    assert "/tools.py has an error" in shown and "SyntaxError" in shown and "(tools.py, line 5)" in shown
    assert "The tools of its last version stay in force." in shown
    [line] = [line for line in said if "could not be loaded" in line]
    assert line.startswith(f"tabrelay: {app.site.origin}/tools.py could not be loaded: SyntaxError")
    await app.says("hello1")
    # An error in an imported file: its file name, line and traceback.
    app.write("words.py", 'WORD = "x"\nWORD.missing\n')
    app.write("tools.py", TOOL.replace("VERSION", "3"))
    await page.get_by_text("(words.py, line 2)").wait_for()
    await until(lambda: any("words.py" in line and "WORD.missing" in line for line in said))
    await app.says("hello1")
    app.write("words.py", 'WORD = "mended"\n')
    await app.says("mended3")
    await panel.wait_for(state="detached")
    await until(lambda: any(line.endswith("/tools.py was loaded again.") for line in said))


async def test_without_dev_a_change_is_in_force_after_a_reload(
    app: App, profile: BrowserContext, page: Page, settings: ModuleType
) -> None:
    app.write_tool("1")
    await app.open(page, "{ dev: false }", boot_ms=settings.BOOT_TIMEOUT_MS)
    # Another tab keeps the worker, and its Python, during the reload.
    other = await profile.new_page()
    await app.open(other, "{ dev: false }", boot_ms=settings.BOOT_TIMEOUT_MS)
    await app.says("hello1", BOUND_S)
    app.write_tool("2", "again ")
    await page.reload()
    await app.says("again 2", BOUND_S)


async def test_a_renamed_file_takes_the_tools_of_the_old_one(app: App, page: Page, settings: ModuleType) -> None:
    app.write_tool("1")
    await app.open(page, boot_ms=settings.BOOT_TIMEOUT_MS)
    await app.says("hello1", BOUND_S)
    app.write("renamed.py", TOOL.replace("def say", "def say_it").replace("VERSION", "2"))
    await app.open(page, modules='"/renamed.py"')
    await page.wait_for_function("connection.catalogue?.tools.map(({ name }) => name).join() === 'say_it'")


class TaggedFiles(BaseHTTPRequestHandler):
    """A development server that answers with ETags and with 304; a missing file is answered with its page."""

    protocol_version = "HTTP/1.1"  # Chromium does not use ETags over earlier versions of HTTP
    folder: Path
    answers: list[tuple[str, int]]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        file = self.folder / path.removeprefix("/")
        is_there = file.is_file()
        body = file.read_bytes() if is_there else b"<!doctype html>the page"
        tag = f'W/"{hashlib.sha256(body).hexdigest()[:16]}"'
        status = 304 if self.headers.get("If-None-Match") == tag else 200
        self.answers.append((path, status))
        self.send_response(status)
        kinds = {".js": "text/javascript", ".py": "text/x-python", ".html": "text/html"}
        self.send_header("Content-Type", kinds.get(file.suffix, "text/html") if is_there else "text/html")
        self.send_header("ETag", tag)
        self.send_header("Content-Length", "0" if status == 304 else str(len(body)))
        self.end_headers()
        if status == 200:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No access log: tests report what went wrong."""


async def test_a_development_server_with_etags_is_asked_for_changes_only(
    app: App, profile: BrowserContext, settings: ModuleType
) -> None:
    answers: list[tuple[str, int]] = []
    handler = type("Handler", (TaggedFiles,), {"folder": app.folder, "answers": answers})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        app.write_tool("1")
        tabs = [await profile.new_page() for _ in range(3)]
        for tab in tabs:
            html = PAGE.replace("RELAY", app.here).replace('token: "TOKEN", ', "").replace("OPTIONS", "{}")
            app.write("index.html", html.replace("MODULES", '"/tools.py"'))
            await tab.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        shown = await tabs[0].wait_for_function("connection.state.message?.match(/with code ([\\w-]+)/)?.[1]")
        code = str(await shown.json_value())
        await app.approve(code)
        for tab in tabs:
            await tab.wait_for_function(OFFERED, timeout=settings.BOOT_TIMEOUT_MS)
        await app.says("hello1", BOUND_S)
        answers.clear()
        await until(lambda: answers.count(("/tools.py", 304)) >= 6)
        # Three tabs, one poller: each file is requested once in a round, and unchanged files are not sent.
        asked = (
            [path for path, _ in answers if path == "/tools.py"],
            [path for path, _ in answers if path == "/words.py"],
        )
        assert abs(len(asked[0]) - len(asked[1])) <= 1
        assert {status for path, status in answers if path in ("/tools.py", "/words.py")} == {304}
        start = time.monotonic()
        answers.clear()
        await until(lambda: answers.count(("/tools.py", 304)) >= 4)
        assert time.monotonic() - start > 0.9  # two a second
        app.write_tool("2")
        await app.says("hello2")
    finally:
        server.shutdown()
        server.server_close()
