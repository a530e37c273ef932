"""Commands that start each rival with the same child process, as its manual describes, and the check that it is
ready."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from bench import stage
from bench.load import LEGACY

PLACE = stage.ROOT / "build" / "rivals"
ECHO = Path(__file__).with_name("echo.py")
READY_S = 60.0

FASTMCP = """
import sys
from fastmcp.server import create_proxy
server = {"mcpServers": {"echo": {"command": sys.executable, "args": [sys.argv[1]]}}}
create_proxy(server).run(transport="http", port=int(sys.argv[2]), show_banner=False, log_level="ERROR")
"""


@dataclass(frozen=True, slots=True)
class Place:
    """The address of a candidate."""

    url: str
    token: str = "none"


@dataclass(frozen=True, slots=True)
class Rival:
    """`command` gets a free port; `path` is where it serves Streamable HTTP."""

    name: str
    command: Callable[[int], Sequence[str]]
    path: str = "/mcp"
    env: Mapping[str, str] | None = None


def _node(program: str) -> list[str]:
    return [str(shutil.which("node", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")), program]


def _bin(name: str) -> str:
    return str(PLACE / "node_modules" / ".bin" / name)


RIVALS = (
    Rival(
        "mcp-proxy 6.7.19 (npm)",
        lambda port: [
            *_node(_bin("mcp-proxy")),
            *("--host", "127.0.0.1", "--port", str(port), "--server", "stream", "--", sys.executable, str(ECHO)),
        ],
    ),
    Rival(
        "mcp-proxy 0.13.0 (PyPI)",
        lambda port: [
            *(str(PLACE / "mcp-proxy" / "bin" / "mcp-proxy"), "--port", str(port), "--log-level", "ERROR"),
            *("--", sys.executable, str(ECHO)),
        ],
    ),
    Rival(
        "supergateway 4.0.0, stateful",
        lambda port: [
            *_node(_bin("supergateway")),
            *("--stdio", f"{sys.executable} {ECHO}", "--outputTransport", "streamableHttp", "--stateful"),
            *("--port", str(port), "--logLevel", "none"),
        ],
    ),
    Rival(
        "supergateway 4.0.0, as it comes",
        lambda port: [
            *_node(_bin("supergateway")),
            *("--stdio", f"{sys.executable} {ECHO}", "--outputTransport", "streamableHttp"),
            *("--port", str(port), "--logLevel", "none"),
        ],
    ),
    Rival(
        "FastMCP 4.1.2 proxy",
        lambda port: [str(PLACE / "fastmcp" / "bin" / "python"), "-c", FASTMCP, str(ECHO), str(port)],
        env={"FASTMCP_CHECK_FOR_UPDATES": "off"},
    ),
)


@contextlib.contextmanager
def rival(one: Rival) -> Iterator[Place]:
    """Raises RuntimeError with its output if it does not become ready."""
    port = _free_port()
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [*one.command(port)],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env={**os.environ, **(one.env or {})},
            start_new_session=True,
        )
        try:
            place = Place(f"http://127.0.0.1:{port}{one.path}")
            if not _is_ready(place, process):
                said.seek(0)
                raise RuntimeError(f"{one.name} did not get ready: {said.read()[-600:]}")
            yield place
        finally:
            _end(process)


@contextlib.contextmanager
def ours() -> Iterator[Place]:
    """The relay with the same child process."""
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-") as folder:
        file = Path(folder) / "relay.json"
        file.write_text(json.dumps({"mcpServers": {"echo": {"command": sys.executable, "args": [str(ECHO)]}}}))
        command = ("serve", "-c", str(file), "--port", "0", "--json", "--home", f"{folder}/home")
        server = stage.Child("tabrelay", *command, env=stage.ROOMY)
        try:
            yield Place(f"{server.said['base_url']}/echo", str(server.said["token"]))
        finally:
            server.stop()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _is_ready(place: Place, process: subprocess.Popen[Any]) -> bool:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    message = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
    deadline = time.monotonic() + READY_S
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(httpx2.HTTPError):
            accept = {"Accept": "application/json, text/event-stream"}
            if httpx2.post(place.url, json=message, headers=accept, timeout=5, trust_env=False).status_code == 200:
                return True
        time.sleep(0.1)
    return False


def _end(process: subprocess.Popen[Any]) -> None:
    """The process and its children, which some leave running."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(3)
