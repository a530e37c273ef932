"""The load generator, as a separate process: N callers, each with one keep-alive HTTP/1.1 connection, call in a loop.

A caller sends its next request when the last answer is complete. The bytes of a request are made once, so that this
process has as little to do per call as Python allows. Prints one JSON line: calls, calls per second, latencies.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httptools
import uvloop

from bench.stage import TOKEN

MODERN: Final = "2026-07-28"
LEGACY: Final = "2025-11-25"
META: Final = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}
ERAS: Final = ("modern", "legacy")
CALL: Final = "tools/call"
INITIALIZE: Final = "initialize"
WARM_UP_S: Final = 0.5
HEAD: Final = 1024  # the part of an answer that is inspected
ENVELOPE: Final = 1024  # the text of a large result is smaller by this: the size is the whole message's


@dataclass(frozen=True, slots=True)
class Target:
    """What is called, and how."""

    url: str
    token: str
    era: str = "modern"
    payload: int = 200
    result: int | None = None
    tool: str = "echo"
    method: str = CALL
    progress: str = ""

    def arguments(self) -> dict[str, Any]:
        return {"bytes": self.result - ENVELOPE} if self.result is not None else {"text": "x" * self.payload}

    def request(self, message: dict[str, Any], headers: dict[str, str]) -> bytes:
        parts = urlsplit(self.url)
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = {
            "Host": parts.netloc,
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
            **headers,
            "Content-Length": str(len(body)),
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"POST {parts.path} HTTP/1.1\r\n{head}\r\n".encode() + body

    def modern(self, progress: str = "") -> bytes:
        """A call. `progress`: the token for its progress."""
        meta = {**META, "progressToken": progress} if progress else META
        params = {"name": self.tool, "arguments": self.arguments(), "_meta": meta}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": self.tool}
        return self.request({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)

    def other(self, method: str) -> bytes:
        """A modern request without arguments."""
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        return self.request({"jsonrpc": "2.0", "id": 2, "method": method, "params": {"_meta": META}}, headers)

    def initialize(self) -> bytes:
        params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        return self.request({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}, {})

    def legacy(self, session: str) -> bytes:
        params = {"name": self.tool, "arguments": self.arguments()}
        headers = {"MCP-Protocol-Version": LEGACY, **({"Mcp-Session-Id": session} if session else {})}
        return self.request({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}, headers)


class Caller(asyncio.Protocol):
    """One connection. Raises nothing while it runs: failures are counted, and shown at the end."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._loop = asyncio.get_running_loop()
        self._parser: Any = None
        self._head = b""  # of the body
        self._size = 0
        self._session = ""
        self._request = b""
        self._sent_at = 0.0
        self._until = 0.0
        self.finished: asyncio.Future[None] = self._loop.create_future()
        self.calls: list[tuple[float, float]] = []
        self.received = 0
        self.failures: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def start(self, until: float) -> None:
        self._until = until
        if self._target.era == "modern":
            target = self._target
            self._request = target.modern(target.progress) if target.method == CALL else target.other(target.method)
            self._call()
        elif self._target.method == INITIALIZE:
            self._request = self._target.initialize()
            self._call()
        else:
            self._send(self._target.initialize())

    def _call(self) -> None:
        self._sent_at = perf_counter()
        self._send(self._request)

    def _send(self, data: bytes) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._head, self._size = b"", 0
        self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.failures.append(f"connection lost: {exc}")
            self.finished.set_result(None)

    # -- called by the parser ------------------------------------------------------------------------------------------

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._request and name.lower() == b"mcp-session-id":
            self._session = value.decode()

    def on_body(self, body: bytes) -> None:
        if len(self._head) < HEAD:
            self._head += body[:HEAD]
        self._size += len(body)

    def on_message_complete(self) -> None:
        now = perf_counter()
        if self._parser.get_status_code() != 200 or b'"result"' not in self._head:
            self.failures.append(self._head[:200].decode(errors="replace"))
        if not self._request:
            self._request = self._target.legacy(self._session)
            self._call()
            return
        self.calls.append((now, now - self._sent_at))
        self.received += self._size
        if now < self._until:
            self._call()
        else:
            self.finished.set_result(None)
            self._transport.close()


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run. `total` counts the warm-up too, for figures that are measured outside over the whole run."""

    calls_per_s: float
    p50_ms: float
    p99_ms: float
    calls: int
    total: int
    bytes_per_s: float
    failures: int
    first_failure: str | None


def percentile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)] if ordered else float("nan")


async def run(target: Target, callers: int, seconds: float, warm_up_s: float = WARM_UP_S) -> Outcome:
    loop = asyncio.get_running_loop()
    parts = urlsplit(target.url)
    host, port = parts.hostname or "", parts.port or 80
    crowd = [(await loop.create_connection(lambda: Caller(target), host, port))[1] for _ in range(callers)]
    begin = perf_counter() + warm_up_s  # the loop's own clock counts whole milliseconds
    for caller in crowd:
        caller.start(begin + seconds)
    await asyncio.gather(*(caller.finished for caller in crowd))
    everything = [call for caller in crowd for call in caller.calls]
    # Calls that completed within the window; the last call of each caller ends after it.
    counted = sorted(took for at, took in everything if begin <= at < begin + seconds)
    failures = [text for caller in crowd for text in caller.failures]
    size = sum(caller.received for caller in crowd) / max(len(everything), 1)
    return Outcome(
        calls_per_s=len(counted) / seconds,
        p50_ms=percentile(counted, 0.50) * 1000,
        p99_ms=percentile(counted, 0.99) * 1000,
        calls=len(counted),
        total=len(everything),
        bytes_per_s=len(counted) * size / seconds,
        failures=len(failures),
        first_failure=failures[0] if failures else None,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="http://host:port/server")
    parser.add_argument("--era", choices=ERAS, default="modern")
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S)
    parser.add_argument("--payload", type=int, default=200, help="bytes of text in the arguments")
    parser.add_argument("--tool", default="echo")
    parser.add_argument("--result", type=int, help="ask for a result of this many bytes")
    parser.add_argument("--method", default=CALL, help="of modern requests; initialize: with --era legacy")
    parser.add_argument("--progress", default="", metavar="TOKEN", help="ask for progress, in modern calls")
    args = parser.parse_args()
    target = Target(
        args.url,
        os.environ.get(TOKEN, "none"),
        args.era,
        args.payload,
        args.result,
        args.tool,
        args.method,
        args.progress,
    )
    outcome = uvloop.run(run(target, args.callers, args.seconds, args.warm_up))
    print(json.dumps({name: getattr(outcome, name) for name in Outcome.__slots__}), flush=True)


if __name__ == "__main__":
    main()
