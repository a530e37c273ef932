"""`tabrelay demo` as a separate process, its page in a browser, and MCP clients for it."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from playwright.async_api import Page

from tests import canary
from tests.support.recorder import Wiretap
from tests.support.waiting import BOUND_S

TOOLS = (
    *("add", "clear_drawing", "draw_circle", "draw_line", "draw_rectangle", "draw_spiral", "find_areas", "list_shapes"),
    *("look_at_drawing", "measure_drawing", "undo", "write_text"),
)


def blocked(log: list[str]) -> list[str]:
    """Violations of the content security policy that browsers have reported."""
    return [line.strip() for line in log if "content security policy:" in line]


class Demo:
    """A demo that can be stopped and started again; the address and the state directory remain.

    Every message of the relay and of the browsers is checked against the official models.
    """

    def __init__(self, home: Path, *flags: str, verb: str = "demo", **settings: object) -> None:
        """`settings`: those without a flag, by their names in `tabrelay.config.settings`."""
        self._home = home
        self._env = {f"TABRELAY_{name.upper()}": str(value) for name, value in settings.items()}
        self._flags = flags
        self._verb = verb
        self.recorder = Wiretap()
        # A copy of the source tree to run instead of this one: another version.
        self.tree: Path | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._log: asyncio.Task[None] | None = None
        self.log: list[str] = []
        self._logged = asyncio.Event()
        self.expects_reports = False
        self.url = ""
        self.mcp_url = ""
        self.relay_url = ""  # with `dev`: the address of the relay's own pages
        self.token = ""
        self.port = 0

    async def __aenter__(self) -> Demo:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
        if exc[0] is None:
            self.recorder.finish()

    async def start(self) -> None:
        # The same port after a restart: the page's address must not change.
        command = ["-m", "tabrelay", self._verb, "--json", "--port", str(self.port), "--home", str(self._home)]
        command += ["--log-level", "trace"]  # logs each accepted socket, and does not hide tokens
        env = {**os.environ, **self.recorder.env, **self._env}
        if self.tree is not None:
            env["PYTHONPATH"] = os.pathsep.join(
                [str(self.tree / name) for name in ("relay", "browser_pkg")] + [env["PYTHONPATH"]]
            )
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *command,
            *self._flags,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=env,
        )
        assert self._process.stdout is not None
        try:
            async with asyncio.timeout(BOUND_S):
                line = await self._process.stdout.readline()
        except BaseException:
            self._process.kill()
            raise
        self._log = asyncio.create_task(self._read_log(self._process))
        if not line:
            await self._log
            raise RuntimeError("the relay did not start:\n" + "".join(self.log))
        ready = json.loads(line)
        self.url, self.mcp_url, self.token = ready["url"], ready["mcp_url"], ready["token"]
        self.relay_url = ready.get("relay_url", self.url)
        canary.register(self.token)
        self.port = httpx2.URL(self.url).port or 0

    async def _read_log(self, process: asyncio.subprocess.Process) -> None:
        assert process.stderr is not None
        async for line in process.stderr:
            self.log.append(line.decode())
            self._logged.set()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def until(self, condition: Callable[[], bool], timeout_s: float = BOUND_S) -> None:
        """Wait until the log satisfies a condition."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._logged.clear()
                await self._logged.wait()

    async def stop(self) -> int:
        """Stop as Ctrl+C does; returns the exit code."""
        canary.saw_processes()
        self.signal()
        code = await self.ended()
        # In every test: the relay's pages and workers never attempt what their policy forbids.
        assert self.expects_reports or blocked(self.log) == [], blocked(self.log)
        return code

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Request a stop without waiting for it."""
        assert self._process is not None
        if self._process.returncode is None:
            self._process.send_signal(number)

    async def ended(self) -> int:
        assert self._process is not None and self._log is not None
        async with asyncio.timeout(BOUND_S):
            code = await self._process.wait()
        await self._log
        self.recorder.read()
        canary.saw("stderr of a relay", "".join(self.log))
        canary.saw_files(self._home)
        return code

    async def kill(self) -> None:
        """End the process as a crash does."""
        assert self._process is not None and self._log is not None
        self._process.kill()
        await self._process.wait()
        await self._log
        self.recorder.read()

    async def open(self, page: Page, boot_timeout_ms: float, *, url: str | None = None) -> None:
        """Open the demo page and wait until all of its tools are offered."""
        await page.goto(url or self.url)
        await page.locator("#state[data-state=connected]").wait_for(timeout=boot_timeout_ms)
        for tool in TOOLS:
            await page.locator(f"#tools [data-tool={tool}]").first.wait_for(timeout=boot_timeout_ms)

    @property
    def address(self) -> str:
        """The address of the demo page, for a browser that is paired."""
        return f"http://127.0.0.1:{self.port}/-/demo/"

    async def pair(self) -> str:
        """An address of the demo page that pairs one more browser, as `tabrelay pair` prints it."""
        async with httpx2.AsyncClient(trust_env=False) as http:
            codes = str(httpx2.URL(self.mcp_url).join("/-/codes"))
            response = await http.post(codes, headers={"Authorization": f"Bearer {self.token}"})
            fragment = response.json()["url"].partition("#")[2]
            return str(httpx2.URL(self.mcp_url).join(f"/-/demo/#{fragment}"))

    @asynccontextmanager
    async def client(self, mode: str = "auto", **options: Any) -> AsyncIterator[Client]:
        """The official Python SDK's client. `mode`: "auto" (modern here), "legacy" or a version. `instance`: which of
        the browsers with this name."""
        instance = options.pop("instance", None)
        url = self.mcp_url if instance is None else f"{self.mcp_url}~{instance}"
        headers = {"Authorization": f"Bearer {self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False, timeout=60) as http,
            # Its default refuses events over 1 MiB; here the relay limits the size of results.
            Client(
                streamable_http_client(url, http_client=http, max_sse_event_size=None), mode=mode, **options
            ) as client,
        ):
            yield client

    async def status(self) -> dict[str, Any]:
        base = str(httpx2.URL(self.mcp_url).join("/-/status"))
        async with httpx2.AsyncClient(trust_env=False) as http:
            response = await http.get(base, headers={"Authorization": f"Bearer {self.token}"})
            response.raise_for_status()
            status: dict[str, Any] = response.json()
            return status
