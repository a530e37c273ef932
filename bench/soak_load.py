"""Load of the soak test: MCP clients of two eras, tokens that are made and revoked, and a real Chromium with faults.

Each call has a unique key, and a result counts only if it has that key. This module does not decide whether a run was
good: `bench.soak` does that from the counts.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx2
from playwright.async_api import Browser, Page
from playwright.async_api import Error as PlaywrightError

from tabrelay.admission.token_store import IssuedToken
from tabrelay.admission.tokens import Tokens
from tests.support.chaos_proxy import ChaosProxy, Cut
from tests.support.running_relay import ACCEPT, modern

PAUSE_S: Final = (0.05, 0.6)
WORK_MS: Final = (0, 400)
PATIENCE_S: Final = 120.0
LARGE: Final = 2 * 1024 * 1024
TOKEN_EVERY_S: Final = 5.0
CUT_EVERY_S: Final = (10.0, 30.0)
RELOAD_EVERY_S: Final = (45.0, 90.0)
BOOT_S: Final = 120.0
PYODIDE_FILES: Final = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
# Outcomes that fail a run. A call that its caller gives up has no outcome.
WRONG: Final = ("NO ANSWER", "WRONG ANSWER", "REVOKED TOKEN WORKS", "NEW TOKEN REFUSED")

PAGE: Final = """<!doctype html>
<title>soak</title>
<script type="module">
import { connect } from "RELAY/-/client.js";
const ran = new Set();
globalThis.twice = 0;
globalThis.connection = connect(OPTIONS);
connection.offerTool({
  name: "work",
  description: "Wait, then return the key and as many more characters as asked for.",
  inputSchema: { type: "object", properties: { key: { type: "string" } }, required: ["key"] },
  async execute({ key, ms = 0, size = 0 }) {
    twice += ran.has(key);
    ran.add(key);
    await new Promise((resolve) => setTimeout(resolve, ms));
    return key + "x".repeat(size);
  },
});
</script>
"""
OFFERED: Final = """globalThis.connection?.state.state === "connected"
    && connection.catalogue?.tools.some(({ name }) => name === "work")"""


class Caller:
    """One MCP client that calls the tool `work` of one server until it is cancelled."""

    numbers = itertools.count()

    def __init__(self, url: str, token: str, server: str, chance: random.Random, outcomes: Counter[str]) -> None:
        self._url, self._token, self._server = url, token, server
        self._chance, self._outcomes = chance, outcomes

    async def run(self) -> None:
        while True:
            headers = {"Authorization": f"Bearer {self._token}", "Accept": ACCEPT}
            async with httpx2.AsyncClient(base_url=self._url, headers=headers, timeout=None, trust_env=False) as http:
                try:
                    if self._chance.random() < 0.3:
                        await self._have_session(http)
                    else:
                        for _ in range(20):
                            await self._call(http, {})
                except (httpx2.TransportError, OSError):
                    # The relay is being restarted: an open connection is cut, a new one is refused.
                    self._outcomes["connection lost"] += 1
                    await asyncio.sleep(0.5)

    async def _have_session(self, http: httpx2.AsyncClient) -> None:
        info = {"name": "soak", "version": "1"}
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await http.post(f"/{self._server}", json=body)
        session = response.headers.get("mcp-session-id")
        if session is None:
            self._outcomes["no session"] += 1
            return await asyncio.sleep(1)
        headers = {"Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        for _ in range(10):
            await self._call(http, headers)
        await http.delete(f"/{self._server}", headers=headers)

    async def _call(self, http: httpx2.AsyncClient, session: dict[str, str]) -> None:
        chance = self._chance
        key = f"k{next(self.numbers)}"
        size = LARGE if chance.random() < 0.01 else 200
        arguments = {"key": key, "ms": chance.randint(*WORK_MS), "size": size}
        request = modern("tools/call", {"name": "work", "arguments": arguments})
        if session:
            params = {"name": "work", "arguments": arguments}
            request = {"json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}}
            request["headers"] = session
        leaves_early = chance.random() < 0.05
        try:
            async with asyncio.timeout(chance.uniform(0, 0.5) if leaves_early else PATIENCE_S):
                response = await http.post(f"/{self._server}", **request)
            self._outcomes[outcome(response, key, size)] += 1
        except TimeoutError:
            self._outcomes["given up by the caller" if leaves_early else "NO ANSWER"] += 1
        await asyncio.sleep(chance.uniform(*PAUSE_S))


def outcome(response: httpx2.Response, key: str, size: int) -> str:
    if response.status_code != 200:
        return f"HTTP {response.status_code}"
    if response.headers["content-type"].startswith("text/event-stream"):
        data = [line[6:] for line in response.text.splitlines() if line.startswith("data: ") and len(line) > 6]
        answer = json.loads(data[-1]) if data else {}
    else:
        answer = response.json()
    if "error" in answer:
        return str((answer["error"].get("data") or {}).get("reason", answer["error"]["code"]))
    if "result" not in answer:
        return "NO ANSWER"
    if answer["result"].get("isError"):
        return "tool error"
    text = answer["result"]["content"][0]["text"]
    return "ok" if text == key + "x" * size else "WRONG ANSWER"


async def change_tokens(url: str, home: Path, server: str, outcomes: Counter[str]) -> None:
    """Make a token, use it, revoke it, use it again; as `tabrelay token` does beside a running relay."""
    while True:
        await asyncio.sleep(TOKEN_EVERY_S)
        tokens, name = Tokens(home), f"soak-{next(Caller.numbers)}"

        def is_meant(grant: IssuedToken, name: str = name) -> bool:
            return grant.name == name

        token = await asyncio.to_thread(tokens.issue_named, name, {"call"}, [server])
        headers = {"Authorization": f"Bearer {token}", "Accept": ACCEPT}
        async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=60, trust_env=False) as http:
            with suppress(httpx2.TransportError):  # the relay is being restarted
                is_known = await _becomes(http, server, 200)
                await asyncio.to_thread(tokens.revoke, is_meant)
                is_over = await _becomes(http, server, 401)
                verdict = "token changed" if is_over else "REVOKED TOKEN WORKS"
                outcomes[verdict if is_known else "NEW TOKEN REFUSED"] += 1
        await asyncio.to_thread(tokens.revoke, is_meant)


async def _becomes(http: httpx2.AsyncClient, server: str, status: int) -> bool:
    """A relay reads its list of tokens again within a second or so."""
    for _ in range(60):
        if (await http.post(f"/{server}", **modern("tools/list"))).status_code == status:
            return True
        await asyncio.sleep(0.5)
    return False


async def load_files(http: httpx2.AsyncClient, url: str) -> None:
    """Load what a booting worker loads from the relay, with or without a memory snapshot."""
    manifest = (await http.get(f"{url}/-/manifest.json")).json()
    paths = [manifest["tabserver"], *(manifest["pyodide"] + name for name in PYODIDE_FILES)]
    if "snapshot" in manifest:
        paths.append(manifest["snapshot"]["url"])
    for path in paths:
        (await http.get(url + path)).raise_for_status()


class Tab:
    """A page in a real Chromium, behind a proxy that cuts its socket; at intervals it is loaded again."""

    def __init__(self, page: Page, proxy: ChaosProxy, chance: random.Random, counts: Counter[str]) -> None:
        self._page, self._proxy, self._chance, self._counts = page, proxy, chance, counts

    @classmethod
    async def open(
        cls, browser: Browser, url: str, proxy: ChaosProxy, chance: random.Random, counts: Counter[str]
    ) -> Tab:
        page = await browser.new_page()
        page.on("pageerror", lambda error: counts.update(["exception in the page"]))
        tab = cls(page, proxy, chance, counts)
        await page.goto(url)
        await tab.is_back()
        return tab

    async def is_back(self) -> None:
        """A page that was loaded while the relay restarted has no script, and is loaded again, as its user would do."""
        async with asyncio.timeout(BOOT_S * 3):
            while True:
                with suppress(PlaywrightError):
                    await self._page.wait_for_function(OFFERED, timeout=BOOT_S * 1000 / 4)
                    return
                with suppress(PlaywrightError):
                    if not await self._page.evaluate("'connection' in globalThis"):
                        await self._page.reload(timeout=BOOT_S * 1000)

    async def cut(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*CUT_EVERY_S))
            self._counts["cuts of Chromium"] += self._proxy.cut(self._chance.choice([Cut.RESET, Cut.CLOSE]))

    async def reload(self) -> None:
        while True:
            await asyncio.sleep(self._chance.uniform(*RELOAD_EVERY_S))
            await self.count_runs()
            with suppress(PlaywrightError):  # it may be cut in the middle of it; the next one works
                await self._page.reload(timeout=BOOT_S * 1000)
                await self.is_back()
                self._counts["reloads"] += 1

    async def count_runs(self) -> None:
        self._counts["CALL RAN TWICE"] += int(await self._page.evaluate("globalThis.twice ?? 0"))
        await self._page.evaluate("globalThis.twice = 0")


def write_page(folder: Path, origin: str, token: str, server: str) -> None:
    options: dict[str, Any] = {"server": server, "relay": origin, "token": token, "worker": "/worker.js"}
    (folder / "index.html").write_text(PAGE.replace("RELAY", origin).replace("OPTIONS", json.dumps(options)))
    (folder / "worker.js").write_text(f'import "{origin}/-/worker.js";\n')
