"""Browsers of every engine, behind the operations that the core tests need.

Playwright drives Chromium and Firefox. WebKit is WebKitGTK's own, over WebDriver: no user has Playwright's build of
WebKit.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.support.waiting import BOUND_S

if TYPE_CHECKING:
    from selenium.webdriver.remote.webdriver import WebDriver

T = TypeVar("T")


class Tab(Protocol):
    async def run(self, function: str, argument: Any = None) -> Any:
        """Call a JavaScript function, which may be asynchronous."""

    async def reload(self) -> None: ...
    async def close(self) -> None: ...


class Engine(Protocol):
    name: str
    version: str

    async def renew(self) -> None:
        """Start with an empty profile: no tab, storage or worker remains. Call it first."""

    async def open(self, url: str) -> Tab: ...


async def until(tab: Tab, expression: str, timeout_s: float) -> None:
    """Wait for an expression to be true. The test polls from outside the page, because timers of background pages are
    slow."""
    try:
        async with asyncio.timeout(timeout_s):
            while not await tab.run(f"() => Boolean({expression})"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
    except TimeoutError:
        state = await tab.run("() => JSON.stringify(globalThis.connection?.state)")
        raise AssertionError(f"still not true after {timeout_s} s: {expression}\n{state}") from None


@asynccontextmanager
async def engine(name: str, settings: ModuleType) -> AsyncIterator[Engine]:
    opened = _webkit(settings) if name == "webkit" else _playwright(name, settings)
    async with opened as engine:
        yield engine


# -- Chromium and Firefox ----------------------------------------------------------------------------------------------


class _PageTab:
    def __init__(self, page: Page) -> None:
        self._page = page

    async def run(self, function: str, argument: Any = None) -> Any:
        return await self._page.evaluate(function, argument)

    async def reload(self) -> None:
        await self._page.reload()

    async def close(self) -> None:
        await self._page.close()


class _Playwright:
    def __init__(self, name: str, browser: Browser, settings: ModuleType) -> None:
        self.name = name
        self.version = browser.version
        self._browser = browser
        self._settings = settings
        self._context: BrowserContext | None = None

    async def renew(self) -> None:
        if self._context is not None:
            await self._context.close()
        self._context = await self._browser.new_context()
        self._context.set_default_timeout(self._settings.ACTION_TIMEOUT_MS)
        self._context.set_default_navigation_timeout(self._settings.NAVIGATION_TIMEOUT_MS)

    async def open(self, url: str) -> Tab:
        assert self._context is not None
        page = await self._context.new_page()
        await page.goto(url)
        return _PageTab(page)


@asynccontextmanager
async def _playwright(name: str, settings: ModuleType) -> AsyncIterator[Engine]:
    async with async_playwright() as playwright:
        launch = settings.firefox_options if name == "firefox" else settings.launch_options
        browser = await getattr(playwright, name).launch(**launch())
        try:
            yield _Playwright(name, browser, settings)
        finally:
            await browser.close()


# -- WebKit ------------------------------------------------------------------------------------------------------------

_CALL = """const [argument, done] = arguments;
Promise.resolve((FUNCTION)(argument)).then((value) => done({ value }), (error) => done({ error: String(error) }));"""


class _WebKit:
    """Runs one command at a time, each in the window that it is for."""

    name = "webkit"

    def __init__(self, connect: Callable[[], WebDriver]) -> None:
        self._connect = connect
        self._turn = asyncio.Lock()
        self._driver = connect()
        self._first: str | None = None
        self.version = str(self._driver.capabilities["browserVersion"])

    async def renew(self) -> None:
        await self.do(self._new_session)

    def _new_session(self) -> None:
        self._driver.quit()
        self._driver = self._connect()
        self._first = self._driver.current_window_handle

    def quit(self) -> None:
        self._driver.quit()

    async def open(self, url: str) -> Tab:
        handle = await self.do(self._new_window)
        tab = _WindowTab(self, handle)
        await tab.do(lambda: self._driver.get(url))
        return tab

    def _new_window(self) -> str:
        if self._first is not None:
            handle, self._first = self._first, None
            return handle
        self._driver.switch_to.window(self._driver.window_handles[-1])
        self._driver.switch_to.new_window("tab")
        return self._driver.current_window_handle

    def script(self, function: str, argument: Any) -> Any:
        said = self._driver.execute_async_script(_CALL.replace("FUNCTION", function), argument)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said.get("value")

    async def do(self, work: Callable[[], T], window: str | None = None) -> T:
        def there() -> T:
            if window is not None:
                self._driver.switch_to.window(window)
            return work()

        async with self._turn:
            return await asyncio.to_thread(there)

    def refresh(self) -> None:
        self._driver.refresh()

    def close_window(self) -> None:
        if len(self._driver.window_handles) == 1:  # closing the last one would end the whole browser
            self._driver.get("about:blank")
            self._first = self._driver.current_window_handle
        else:
            self._driver.close()


class _WindowTab:
    def __init__(self, engine: _WebKit, window: str) -> None:
        self._engine = engine
        self._window = window

    async def do(self, work: Callable[[], T]) -> T:
        return await self._engine.do(work, self._window)

    async def run(self, function: str, argument: Any = None) -> Any:
        return await self.do(lambda: self._engine.script(function, argument))

    async def reload(self) -> None:
        await self.do(self._engine.refresh)

    async def close(self) -> None:
        await self.do(self._engine.close_window)


@asynccontextmanager
async def _webkit(settings: ModuleType) -> AsyncIterator[Engine]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = settings.find_webkit()
    if found is None:
        raise FileNotFoundError("no WebKitGTK with its driver found; `make test-browsers` installs it")
    driver_path, browser_path = found
    # It needs a display and a message bus, which are started here.
    wrappers = ["xvfb-run", "-a", "dbus-run-session", "--"]
    process = await asyncio.create_subprocess_exec(
        *wrappers,
        driver_path,
        f"--port={port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        await _listening(port, settings.LAUNCH_TIMEOUT_MS / 1000)

        def connect() -> WebDriver:
            # The import takes half a second, so only runs that drive WebKitGTK do it.
            from selenium import webdriver
            from selenium.webdriver.remote.client_config import ClientConfig
            from selenium.webdriver.remote.remote_connection import RemoteConnection
            from selenium.webdriver.webkitgtk.options import Options

            options = Options()
            options.binary_location = browser_path
            options.add_argument("--automation")
            there = RemoteConnection(client_config=ClientConfig(remote_server_addr=f"http://127.0.0.1:{port}"))
            driver = webdriver.Remote(there, options=options)
            driver.set_script_timeout(settings.BOOT_TIMEOUT_MS / 1000)
            return driver

        opened = await asyncio.to_thread(_WebKit, connect)
        try:
            yield opened
        finally:
            await asyncio.to_thread(opened.quit)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        async with asyncio.timeout(BOUND_S):
            await process.wait()


async def _listening(port: int, timeout_s: float) -> None:
    async with asyncio.timeout(timeout_s):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return
