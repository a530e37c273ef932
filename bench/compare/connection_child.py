"""One tree's relay on connections without the kernel, as a separate process.

It reads the name of a kind of request, and writes the processor time of one, in microseconds. The product's modules
have had other names; each of the names is tried.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson
import uvloop

from bench.compare.pairs import FAST, REGULAR
from bench.in_memory import PORT, Caller, Server, batch, open_session
from bench.link_worker import PROGRESS, link_answers
from bench.load import Target
from bench.stage import SERVER, announce

CALLERS = 16
CALLS = {FAST: 480, REGULAR: 96}
RESULT = 200  # bytes of text
WARM_UP = 2  # calls on each connection
MAX_SESSIONS = 100_000
CHUNKED_END = b"0\r\n\r\n"


def find(*places: str) -> Any:
    """The first of these that exists, each as module:name."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this tree has none of {', '.join(places)}")


def make_server(home: Path) -> tuple[Server, str]:
    settings_class = find("tabrelay.config.settings:Settings", "tabrelay.config:Settings")
    tokens = find("tabrelay.admission.tokens:Tokens", "tabrelay.tokens:Tokens")(home)
    configure = find(
        "tabrelay.server.uvicorn_adapter.configuration:configure",
        "tabrelay.server.runner:configure",
        "tabrelay.runner:configure",
    )
    find("tabrelay.server.runner:tune_garbage_collector", "tabrelay.runner:calm_collector")()
    settings = settings_class(home=home, port=PORT, in_flight_server=256, in_flight_caller=256, rate_s=0)
    settings = replace(settings, max_sessions=MAX_SESSIONS, max_sessions_token=MAX_SESSIONS)
    app = find("tabrelay:create_app")(settings, tokens=tokens)
    return Server(configure(app, settings)), tokens.master()


def chunked(request: bytes) -> bytes:
    """The same request with a chunked body, which never takes a fast path."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"content-length")]
    return b"\r\n".join([*lines, b"Transfer-Encoding: chunked", b"", b"%x" % len(body), body, b"0", b"", b""])


@dataclass(frozen=True, slots=True)
class RequestKind:
    """Requests, one for each caller. `end`: a text that only the last piece of an answer contains."""

    requests: list[bytes]
    end: bytes = b'"jsonrpc"'

    async def measure(self, relay: Server, calls: int) -> float:
        """On new connections, because the relay closes idle ones."""
        callers = [Caller(relay, self.end) for _ in self.requests]
        await batch(callers, self.requests, WARM_UP * len(callers))
        took = await batch(callers, self.requests, calls)
        for caller in callers:
            caller.close()
        return took


async def serve(home: Path) -> None:
    relay, token = make_server(home)
    hello = f'{{"t":"hello","v":[1,1],"build":"x","server":"{SERVER}","inst":"x","rx":0}}'
    content = [{"type": "text", "text": "x" * RESULT}]
    result = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).decode()
    await relay.dial(token, "tabrelay.v1", link_answers(result), hello)
    target = Target(f"http://127.0.0.1:{PORT}/{SERVER}", token)
    sessions = [await open_session(relay, target) for _ in range(CALLERS)]

    ways = {
        (FAST, "modern"): RequestKind([target.modern()] * CALLERS),
        (FAST, "legacy"): RequestKind([target.legacy(session) for session in sessions]),
        (REGULAR, "call, chunked body"): RequestKind([chunked(target.modern())] * CALLERS),
        (REGULAR, "call with progress"): RequestKind([target.modern(PROGRESS)] * CALLERS, CHUNKED_END),
        (REGULAR, "tools/list"): RequestKind([target.other("tools/list")] * CALLERS),
        (REGULAR, "server/discover"): RequestKind([target.other("server/discover")] * CALLERS),
        (REGULAR, "initialize"): RequestKind([target.initialize()] * CALLERS),
    }
    announce(ways={name: kind for kind, name in ways})
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        kind, found = next((kind, way) for (kind, name), way in ways.items() if name == line.strip())
        announce(us=await found.measure(relay, CALLS[kind]))
    await relay.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-", ignore_cleanup_errors=True) as home:
        uvloop.run(serve(Path(home)))


if __name__ == "__main__":
    main()
