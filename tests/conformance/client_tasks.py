"""Clients of the conformance suite whose work is done in the test's process.

The suite starts a program for each scenario. Here that program is `thin_client.py`, which passes its task over a Unix
socket to the test, where all modules are already loaded, and ends when the task is done. A task that fails makes the
program fail. The test defines the work of a task.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.nodejs import NODE

COMMAND = f"{sys.executable} -I -S {Path(__file__).with_name('thin_client.py')}"


@dataclass(frozen=True, slots=True)
class ClientTask:
    """One scenario: the address of the suite's server, and the suite's parameters."""

    url: str
    scenario: str
    version: str
    context: dict[str, Any]


@asynccontextmanager
async def client_tasks(
    folder: Path, work: Callable[[ClientTask], Awaitable[str | None]], at_once: int
) -> AsyncIterator[dict[str, str]]:
    """Do the clients' tasks, a few at a time; returns the environment for COMMAND. The suite shows what `work`
    returns."""
    path = folder / "socket"
    places = asyncio.Semaphore(at_once)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = _read(json.loads(await reader.readline()))
        async with places:
            try:
                answer = {"done": True, "said": await work(task)}
            except Exception:
                answer = {"done": False, "said": traceback.format_exc()}
        writer.write(json.dumps(answer).encode() + b"\n")
        writer.close()

    server = await asyncio.start_unix_server(serve, path)
    try:
        yield {"CONFORMANCE_SOCKET": str(path), "PATH": os.pathsep.join([str(NODE.parent), os.environ["PATH"]])}
    finally:
        server.close()


def _read(given: dict[str, Any]) -> ClientTask:
    return ClientTask(
        given["url"],
        given["MCP_CONFORMANCE_SCENARIO"],
        given["MCP_CONFORMANCE_PROTOCOL_VERSION"] or "2025-11-25",
        json.loads(given["MCP_CONFORMANCE_CONTEXT"] or "{}"),
    )
