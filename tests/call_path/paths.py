"""The paths of a call that are measured, and one result for each, made of several calls.

Each path is followed several times, after calls that fill all caches. A file counts if most of these calls entered it,
and the number of entries is the median: unrelated work does not happen during most calls.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tabserver.wire import jsonrpc
from tests.call_path.stage import PAGE_TOOL, SERVER, WORKER_TOOL, CallPathSetup, Trace
from tests.call_path.tracer import FROM_LOOP, Step
from tests.support.running_relay import ACCEPT, modern
from tests.support.waiting import BOUND_S

WARM_UP: Final = 4
ROUNDS: Final = 5
LEGACY_VERSION: Final = "2025-11-25"


@dataclass(frozen=True, slots=True)
class CallPath:
    """One kind of call. `is_fast`: a small body with only a name and arguments. Otherwise the body is chunked, so that
    the relay does not buffer it, and asks for progress, so that the worker does not treat it as plain."""

    is_modern: bool
    is_fast: bool
    tool: str

    @property
    def name(self) -> str:
        era = "modern" if self.is_modern else "handshake session"
        place = "page" if self.tool == PAGE_TOOL else "worker"
        return f"{'fast' if self.is_fast else 'regular'}, {era}, tool in the {place}"


PATHS: Final = tuple(
    CallPath(is_modern, is_fast, tool)
    for is_fast in (False, True)
    for is_modern in (True, False)
    for tool in (PAGE_TOOL, WORKER_TOOL)
)


@dataclass(frozen=True, slots=True)
class Measured:
    """The result for one path. `trace`: a call that entered exactly these files, or the first one."""

    path: CallPath
    files: tuple[str, ...]
    entries_in: dict[str, int]
    entries_out: dict[str, int]
    trace: Trace

    @property
    def functions(self) -> int:
        """Distinct functions."""
        python = {(file, function) for _, _, file, function in [*self.trace.relay, *self.trace.worker]}
        return len(python) + len({*self.trace.worker_js, *self.trace.page_js})

    @property
    def most_in(self) -> int:
        return max(self.entries_in.values(), default=0)

    @property
    def most_out(self) -> int:
        return max(self.entries_out.values(), default=0)


async def measure(folder: Path, words: str = "") -> list[Measured]:
    """`words`: only paths with these in their names."""
    async with CallPathSetup(folder) as stage:
        response, _ = await stage.relay.initialize(SERVER, LEGACY_VERSION)
        session = response.headers["mcp-session-id"]
        paths = [path for path in PATHS if words in path.name]
        return [_combined(path, [trace async for trace in _traces(stage, path, session)]) for path in paths]


async def _traces(stage: CallPathSetup, path: CallPath, session: str) -> AsyncIterator[Trace]:
    head, body = _request(stage, path, session)

    async def call() -> None:
        response, received = await stage.client.post(head, body, is_chunked=not path.is_fast)
        assert response.status_code == 200 and b'"said"' in received, received

    async with asyncio.timeout(BOUND_S):
        for _ in range(WARM_UP):
            await call()
    await stage.hold_timers()
    try:
        for _ in range(ROUNDS):
            yield await stage.follow(path.tool, call)
    finally:
        await stage.release_timers()


def _request(stage: CallPathSetup, path: CallPath, session: str) -> tuple[dict[str, str], bytes]:
    params = {"name": path.tool, "arguments": {"text": "said"}}
    if not path.is_fast:
        params["_meta"] = {"progressToken": "p"}
    head = {"Host": f"127.0.0.1:{stage.relay.port}", "Authorization": f"Bearer {stage.relay.token}"}
    head |= {"Accept": ACCEPT, "Content-Type": "application/json"}
    if path.is_modern:
        request = modern("tools/call", params)
        return head | request["headers"], json.dumps(request["json"]).encode()
    head |= {"Mcp-Session-Id": session, "MCP-Protocol-Version": LEGACY_VERSION}
    return head, json.dumps(jsonrpc.request(1, "tools/call", params)).encode()


def entries(steps: list[Step], phase: str) -> Counter[str]:
    """How often each file was entered from another product file; the event loop does not count."""
    return Counter(file for at, caller, file, _ in steps if at == phase and caller not in (file, FROM_LOOP))


def _combined(path: CallPath, traces: list[Trace]) -> Measured:
    seen = Counter(file for trace in traces for file in trace.files)
    files = {file for file, count in seen.items() if count > len(traces) // 2}

    def median(phase: str) -> dict[str, int]:
        counts = [entries(trace.relay, phase) + entries(trace.worker, phase) for trace in traces]
        found = {file: round(statistics.median(count[file] for count in counts)) for file in sorted(files)}
        return {file: count for file, count in found.items() if count}

    chosen = next((trace for trace in traces if trace.files == files), traces[0])
    return Measured(path, tuple(sorted(files)), median("in"), median("out"), chosen)
