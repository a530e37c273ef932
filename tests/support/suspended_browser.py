"""A relay process and a real Chromium that are suspended with SIGSTOP and resumed, with calls that are counted.

One `Cell` of the matrix is one experiment: which processes stop, for how long, and whether calls are in flight. The
result lists violations: each call gets one answer, a result means that its tool ran once, an error is right about
delivery, a call made after waking is answered in time, and no log has an exception.

Errors are permitted in one case. If only the browser is suspended, the relay ends its session when its pings are
unanswered and the grace period is over (61 s by default). Its calls then fail with `browser_gone` and `delivered:
unknown`, or with `server_offline` and `delivered: no` if they were never sent.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import httpx2
from playwright.async_api import CDPSession, Playwright

from tests.support.chaos_app import SERVER, DirectApp, expected
from tests.support.playwright_settings import load_settings
from tests.support.running_relay import ACCEPT, modern

# Every call has an answer by then: the relay's own deadline is far longer than any suspension here.
ANSWERED_WITHIN_S: Final = 150.0
# The relay ends a silent session when a ping was due (0 to 15 s) and unanswered (15 s), and grace_s (30 s) is over.
GIVEN_UP_AFTER_S: Final = 45.0
PERMITTED: Final = {("browser_gone", "unknown"), ("server_offline", "no")}
IN_A_LOG: Final = ("Traceback (most recent call last)", " ERROR ", " CRITICAL ")
LARGE: Final = 300_000


class Who(StrEnum):
    RELAY = "relay"
    BROWSER = "browser"
    BOTH = "both"


@dataclass(frozen=True, slots=True)
class Cell:
    """`has_calls`: calls are in flight when the processes stop, and more are made meanwhile."""

    who: Who
    seconds: int
    has_calls: bool

    @property
    def name(self) -> str:
        return f"{self.who}-{self.seconds}s-{'calls' if self.has_calls else 'idle'}"

    @property
    def permits_errors(self) -> bool:
        return self.who is Who.BROWSER and self.seconds > GIVEN_UP_AFTER_S


CELLS: Final = tuple(Cell(who, seconds, calls) for seconds in (1, 20, 90) for who in Who for calls in (False, True))


@dataclass(slots=True)
class Call:
    """One call and every message that answered it. `ran`: how often its tool ran, known at the end of the
    experiment."""

    key: str
    tool: str
    size: int = 0
    answers: list[dict[str, Any]] = field(default_factory=list)
    ran: int = 0
    failure: str = ""

    @property
    def error(self) -> tuple[str, str] | None:
        """The reason and `delivered` of an error of the relay's."""
        error = self.answers[0].get("error") if self.answers else None
        if error is None:
            return None
        data = error.get("data") or {}
        return str(data.get("reason", error["code"])), str(data.get("delivered"))

    def violations(self, permits_errors: bool) -> list[str]:
        if len(self.answers) != 1:
            return [f"{self.key}: {len(self.answers)} answers, ran {self.ran} times {self.failure}".rstrip()]
        if self.error is not None:
            most = 0 if self.error[1] == "no" else 1
            is_permitted = permits_errors and self.error in PERMITTED
            found = [] if is_permitted else [f"{self.key}: {self.error[0]}, delivered: {self.error[1]}"]
            return found + ([f"{self.key}: delivered: {self.error[1]}, ran {self.ran}"] if self.ran > most else [])
        result = self.answers[0]["result"]
        text = result["content"][0]["text"]
        if result.get("isError") or text != expected(self.key, self.size):
            return [f"{self.key}: {text[:200]}"]
        return [f"{self.key}: ran {self.ran} times"] if self.ran != 1 else []


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of an experiment. `up_s`: from waking until a call made then was answered."""

    cell: str
    up_s: float
    calls: int
    errors: dict[str, int]
    violations: list[str]


class SuspendablePair:
    """A relay and a browser. Start it with `async with`; then run one experiment after another."""

    def __init__(
        self,
        folder: Path,
        playwright: Playwright,
        up_within_s: float,
        timing: dict[str, Any] | None = None,
        **settings: object,
    ) -> None:
        """`up_within_s`: a call that is made after waking must be answered within this. `timing` is the worker's,
        `settings` are the relay's."""
        self._folder, self._playwright = folder, playwright
        self._timing, self._settings = timing, settings
        self._up_within_s = up_within_s
        self._stack = AsyncExitStack()
        self._seen: list[str] = []
        self._log_read = 0
        self._count = 0

    async def __aenter__(self) -> SuspendablePair:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        settings = load_settings()
        mark = f"--tabrelay-test={uuid.uuid4().hex}"
        # Playwright starts Chromium as the leader of a process group.
        browser = await self._playwright.chromium.launch(**settings.quick_boot_options(args=[mark]))
        self._stack.push_async_callback(browser.close)
        self._browser_pid = leader(mark)
        context = await browser.new_context()
        context.set_default_timeout(settings.BOOT_TIMEOUT_MS)
        self._stage = DirectApp(self._folder, context, timing=self._timing, **self._settings)
        await self._stack.enter_async_context(self._stage)
        self._page = await self._stage.open(settings.BOOT_TIMEOUT_MS)
        self._page.on("pageerror", lambda error: self._seen.append(f"exception in the page: {error}"))
        self._page.on("console", lambda said: self._log("page", said.type, said.text))
        await WorkerConsole(await browser.new_browser_cdp_session(), self._log, self._seen).attach()
        headers = {"Authorization": f"Bearer {self._stage.relay.token}", "Accept": ACCEPT}
        limits = httpx2.Limits(max_connections=None)
        self._http = httpx2.AsyncClient(
            base_url=self._stage.origin, headers=headers, timeout=None, trust_env=False, limits=limits
        )
        await self._stack.enter_async_context(self._http)
        self._session = await self._new_session()

    def _log(self, where: str, kind: str, text: str) -> None:
        # Chromium itself reports each socket that it could not open; that is not an exception.
        if kind == "error" and "WebSocket connection to" not in text and "net::ERR" not in text:
            self._seen.append(f"error in the {where}'s console: {text}")

    async def _new_session(self) -> dict[str, str]:
        info = {"name": "sleep", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self._http.post(f"/{SERVER}", json=body)
        return {"Mcp-Session-Id": response.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}

    # -- one experiment ------------------------------------------------------------------------------------------------

    async def run(self, cell: Cell) -> Outcome:
        """Suspend, wait, resume, and check."""
        self._count += 1
        calls: list[Call] = []
        async with asyncio.TaskGroup() as tasks:

            def start(kind: str, ms: int = 0, size: int = 0) -> None:
                for tool in ("work", "work_in_worker"):
                    for era in ("modern", "session"):
                        call = Call(f"{self._count}-{kind}-{tool}-{era}", tool, size)
                        calls.append(call)
                        tasks.create_task(self._call(call, era, ms))

            if cell.has_calls:
                start("ends-asleep", ms=500)
                start("ends-awake", ms=cell.seconds * 1000 + 1500)
                start("large", ms=500, size=LARGE)
                await self._have_begun(calls)
                start("just-before")
                await asyncio.sleep(0.005)  # some of these are in flight by then, in one direction or the other
            with self._suspended(cell.who):
                await asyncio.sleep(cell.seconds / 2)
                if cell.has_calls:
                    start("meanwhile")
                await asyncio.sleep(cell.seconds / 2)
            up_s, probe = await self._probe()
            calls.append(probe)
        await self._count_runs(calls)
        violations = [line for call in calls for line in call.violations(cell.permits_errors and call is not probe)]
        if up_s > self._up_within_s:
            violations.append(f"the first call after waking took {up_s:.1f} s")
        violations += self._logged()
        errors = Counter("/".join(call.error) for call in calls if call.error is not None)
        return Outcome(cell.name, round(up_s, 2), len(calls), dict(errors), violations)

    async def _call(self, call: Call, era: str, ms: int = 0) -> None:
        params = {"name": call.tool, "arguments": {"key": call.key, "ms": ms, "size": call.size}}
        request = modern("tools/call", params, id=call.key)
        if era == "session":
            body = {"jsonrpc": "2.0", "id": call.key, "method": "tools/call", "params": params}
            request = {"json": body, "headers": self._session}
        try:
            async with asyncio.timeout(ANSWERED_WITHIN_S):
                response = await self._http.post(f"/{SERVER}", **request)
                call.answers += [said for said in messages(response) if said.get("id") == call.key]
        except (TimeoutError, httpx2.TransportError, ValueError) as error:
            call.failure = f"({type(error).__name__})"

    async def _probe(self) -> tuple[float, Call]:
        began = asyncio.get_running_loop().time()
        call = Call(f"{self._count}-probe", "work")
        await self._call(call, "modern")
        return asyncio.get_running_loop().time() - began, call

    async def _have_begun(self, calls: list[Call]) -> None:
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            while not all(call.ran for call in calls):
                await self._count_runs(calls)

    async def _count_runs(self, calls: list[Call]) -> None:
        response = await self._http.post(f"/{SERVER}", **modern("tools/call", {"name": "worker_runs", "arguments": {}}))
        [counted] = messages(response)
        ran = {**await self._page.evaluate("runs"), **counted["result"]["structuredContent"]}
        for call in calls:
            call.ran = ran.get(call.key, 0)

    async def attempts(self) -> int:
        """The most dials that the worker needed for one connection."""
        return int(await self._page.evaluate("Math.max(0, ...states.map(({ attempts }) => attempts ?? 0))"))

    def _logged(self) -> list[str]:
        """Entries of logs and consoles that violate the experiment's conditions."""
        lines = self._stage.relay.log[self._log_read :]
        self._log_read += len(lines)
        found = ["relay's log: " + line.strip() for line in lines if any(word in line for word in IN_A_LOG)]
        found += self._seen
        self._seen.clear()
        return found

    @contextmanager
    def _suspended(self, who: Who) -> Iterator[None]:
        relay, browser = {self._stage.relay.pid}, family(self._browser_pid)
        pids = {Who.RELAY: relay, Who.BROWSER: browser, Who.BOTH: relay | browser}[who]
        try:
            send(signal.SIGSTOP, pids)
            yield
        finally:
            # The relay resumes before the browser in one half of the cells, and after it in the other.
            send(signal.SIGCONT, sorted(pids, key=lambda pid: (pid in relay) == (self._count % 2 == 0)))


class WorkerConsole:
    """The shared worker's console, which Playwright does not report."""

    def __init__(self, session: CDPSession, log: Any, seen: list[str]) -> None:
        self._session, self._log, self._seen = session, log, seen
        session.on("Target.receivedMessageFromTarget", self._received)

    async def attach(self) -> None:
        targets = (await self._session.send("Target.getTargets"))["targetInfos"]
        [worker] = [target["targetId"] for target in targets if target["type"] == "shared_worker"]
        attached = await self._session.send("Target.attachToTarget", {"targetId": worker, "flatten": False})
        enable = json.dumps({"id": 1, "method": "Runtime.enable", "params": {}})
        await self._session.send("Target.sendMessageToTarget", {"sessionId": attached["sessionId"], "message": enable})

    def _received(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        params = message.get("params", {})
        if message.get("method") == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            about = details.get("exception", {}).get("description", details["text"])
            self._seen.append(f"exception in the worker: {about[-1000:]}")
        elif message.get("method") == "Runtime.consoleAPICalled":
            text = " ".join(str(part.get("value", part.get("description", ""))) for part in params["args"])
            self._log("worker", params["type"], text)


def messages(response: httpx2.Response) -> list[dict[str, Any]]:
    """The messages of a response: JSON or an event stream."""
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ")]
        return [json.loads(text) for text in data if text]
    return [response.json()]


# -- processes ---------------------------------------------------------------------------------------------------------


def leader(mark: str) -> int:
    """The browser process that was started with this flag; its children have a `--type`."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            flags = path.read_bytes().decode(errors="replace").split("\0")
            if mark in flags and not any(flag.startswith("--type=") for flag in flags):
                pid = int(path.parent.name)
                if os.getpgid(pid) == pid:
                    return pid
    raise LookupError("the browser's process was not found")


def family(ancestor: int) -> set[int]:
    """A process and all of its living descendants."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found, size = {ancestor}, 0
    while len(found) > size:
        size = len(found)
        found |= {pid for pid, parent in parents.items() if parent in found}
    return found


def send(number: signal.Signals, pids: Any) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
