"""Chromium process that records what it downloads, with sizes on the wire, including requests of shared workers.

It uses the browser's debugging protocol over a WebSocket, because Playwright does not report requests of shared
workers. New pages and workers wait until recording has started for them. `pss_by_type` reads the memory of its
processes. It neither changes nor blocks requests.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.support.playwright_settings import load_settings
from tests.support.waiting import BOUND_S, until

PREFIX = b"DevTools listening on "
# Only the processes that a page needs: no window, no extensions, no pages of the browser's own, no spare renderer.
FLAGS = (
    "--headless",
    "--no-startup-window",
    "--remote-debugging-port=0",
    "--disable-extensions",
    "--disable-features=AimEnabled,OptimizationHints,Translate,MediaRouter,SpareRendererForSitePerProcess",
)
AUTO_ATTACH: dict[str, Any] = {"autoAttach": True, "waitForDebuggerOnStart": True, "flatten": True}
RELEASES: dict[str, dict[str, Any]] = {
    "HeapProfiler.collectGarbage": {},
    "Memory.simulatePressureNotification": {"level": "critical"},
}
MAX_MESSAGE = 64 * 1024 * 1024


@dataclass(slots=True)
class Download:
    """One response. Of the bytes on the wire, `body_bytes` are the encoded body; a response from a cache has none."""

    url: str
    encoding: str
    header_bytes: int
    total_bytes: int = 0
    is_finished: bool = False

    @property
    def body_bytes(self) -> int:
        return max(0, self.total_bytes - self.header_bytes)


class RecordingChromium:
    """A Chromium with an empty profile. `downloads` has all responses that pages and workers got so far."""

    def __init__(self, socket: ClientConnection, pid: int, is_recording: bool) -> None:
        self._socket = socket
        self._is_recording = is_recording
        self._ids = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._downloads: dict[tuple[str, str], Download] = {}
        self._sessions: dict[str, str] = {}  # by target
        self.pid = pid

    @property
    def downloads(self) -> list[Download]:
        """Without the browser's own pages."""
        return [download for download in self._downloads.values() if download.url.startswith("http")]

    async def open(self, url: str) -> str:
        """A new page; returns its session."""
        target = (await self.send("Target.createTarget", {"url": "about:blank"}))["targetId"]
        session = self._sessions[target]
        await self.send("Page.navigate", {"url": url}, session)
        return session

    async def wait_for(self, session: str, condition: str) -> None:
        """Wait until a JavaScript expression of a page is true."""

        async def is_so() -> bool:
            return bool(await self.evaluate(session, condition))

        await until(is_so)

    async def release_memory(self) -> None:
        """Collect garbage and give free memory back, which an idle browser does after up to half a minute."""
        for session in self._sessions.values():
            for method, params in RELEASES.items():
                with suppress(RuntimeError):  # a worker has no domain Memory
                    await self.send(method, params, session)

    async def evaluate(self, session: str, expression: str) -> Any:
        options = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        return (await self.send("Runtime.evaluate", options, session))["result"].get("value")

    async def send(self, method: str, params: dict[str, Any], session: str = "") -> dict[str, Any]:
        number = next(self._ids)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        await self._socket.send(json.dumps(message))
        reply = await asyncio.wait_for(answer, BOUND_S)
        if "error" in reply:
            raise RuntimeError(f"{method}: {reply['error']['message']}")
        result: dict[str, Any] = reply["result"]
        return result

    async def receive(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            async for text in _messages(self._socket):
                message = json.loads(text)
                if (answer := self._answers.pop(message.get("id"), None)) is not None:
                    answer.set_result(message)
                elif message.get("method") == "Target.attachedToTarget":
                    found = message["params"]
                    self._sessions[found["targetInfo"]["targetId"]] = found["sessionId"]
                    tasks.create_task(self._record(found["sessionId"]))
                else:
                    self._note(message)

    async def _record(self, session: str) -> None:
        messages = {"Target.setAutoAttach": AUTO_ATTACH, "Runtime.runIfWaitingForDebugger": {}}
        if self._is_recording:
            messages = {"Network.enable": {}, **messages}
        for method, params in messages.items():
            with suppress(RuntimeError, TimeoutError):  # the target is closed, or has no such domain
                await self.send(method, params, session)

    def _note(self, message: dict[str, Any]) -> None:
        params = message.get("params", {})
        key = (message.get("sessionId", ""), params.get("requestId", ""))
        if message.get("method") == "Network.responseReceived":
            response = params["response"]
            headers = {name.lower(): value for name, value in response["headers"].items()}
            encoding = headers.get("content-encoding", "")
            self._downloads[key] = Download(response["url"], encoding, int(response["encodedDataLength"]))
        elif message.get("method") == "Network.loadingFinished" and key in self._downloads:
            self._downloads[key].total_bytes = int(params["encodedDataLength"])
            self._downloads[key].is_finished = True


@asynccontextmanager
async def recording_chromium(is_recording: bool = True) -> AsyncIterator[RecordingChromium]:
    """`is_recording=False`: for memory figures, because Chromium keeps the bodies of recorded responses."""
    options = load_settings().launch_options()
    with tempfile.TemporaryDirectory(prefix="tabrelay-chromium-", ignore_cleanup_errors=True) as profile:
        flags = [*options["args"], *FLAGS, f"--user-data-dir={profile}"]
        process = await asyncio.create_subprocess_exec(
            options["executable_path"], *flags, stderr=asyncio.subprocess.PIPE
        )
        try:
            address = await asyncio.wait_for(_address(process), BOUND_S)
            async with connect(address, max_size=MAX_MESSAGE, compression=None, proxy=None) as socket:
                chromium = RecordingChromium(socket, process.pid, is_recording)
                receiving = asyncio.create_task(chromium.receive())
                await chromium.send("Target.setAutoAttach", AUTO_ATTACH)
                yield chromium
                with suppress(RuntimeError):
                    await chromium.send("Browser.close", {})
                receiving.cancel()
        finally:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), 5)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _messages(socket: ClientConnection) -> AsyncIterator[str | bytes]:
    with suppress(ConnectionClosed):  # a browser that ends does not close its sockets properly
        async for message in socket:
            yield message


async def _address(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None
    async for line in process.stderr:
        if line.startswith(PREFIX):
            return line.removeprefix(PREFIX).decode().strip()
    raise RuntimeError("Chromium ended before it was ready")


def pss_by_type(ancestor: int) -> dict[str, int]:
    """Proportional memory in bytes of a browser's processes, added up by their type. `renderer` has only pages and
    workers; the browser's own pages are `interface`, and the process that was started is `browser`."""
    parents: dict[int, int] = {}
    totals: dict[str, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    for pid in parents:
        if _descends(pid, ancestor, parents):
            with suppress(OSError):
                kind, pss = _kind(pid), _pss(pid)
                totals[kind] = totals.get(kind, 0) + pss
    return totals


def _descends(pid: int, ancestor: int, parents: dict[int, int]) -> bool:
    while pid != ancestor and pid in parents:
        pid = parents[pid]
    return pid == ancestor


def _kind(pid: int) -> str:
    flags = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").split()
    if "--top-chrome-webui" in flags:
        return "interface"
    return next((flag.removeprefix("--type=") for flag in flags if flag.startswith("--type=")), "browser")


def _pss(pid: int) -> int:
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return next(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss:"))
