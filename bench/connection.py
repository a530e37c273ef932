"""The relay's hop without the kernel: connections as uvicorn makes them, with transports that only record, in one
process.

It measures the relay's Python per call from the bytes of a request to the bytes of its answer, including the fast path,
HTTP and WebSocket protocols, beside the bare forwarder's. The smallest of many batches is shown: it is the cost of the
code without disturbance, so small changes are visible that calls per second would hide in noise.

The calls take the fast path. The other requests take the regular path: lists, descriptions, new sessions, and a call
with progress, whose response is an event stream.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import orjson
import uvloop

from bench import forwarder
from bench.in_memory import PORT, Caller, Server, batch, open_session
from bench.inside import bare_answer
from bench.link_worker import PROGRESS, link_answers
from bench.load import Target
from bench.stage import SERVER
from bench.table import table
from tabrelay.admission.tokens import Tokens
from tabrelay.config.settings import Settings
from tabrelay.server.app import create_app
from tabrelay.server.runner import tune_garbage_collector
from tabrelay.server.uvicorn_adapter.configuration import configure

BATCH = 2000
REGULAR_BATCH = 400  # the regular path takes several times as long


async def run(batches: int, size: int, callers: int, home: Path) -> list[list[str]]:
    content = [{"type": "text", "text": "x" * size}]
    result = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).decode()
    tokens = Tokens(home)
    token = tokens.master()
    target = Target(f"http://127.0.0.1:{PORT}/{SERVER}", token)
    bare = Server(forwarder.configure())
    sessions = 2 * callers + (batches + 1) * REGULAR_BATCH
    settings = Settings(home=home, port=PORT, in_flight_server=256, in_flight_caller=256, rate_s=0)
    settings = replace(settings, max_sessions=sessions, max_sessions_token=sessions)
    relay = Server(configure(create_app(settings, tokens=tokens), settings))
    forward = bare_answer(result)
    await bare.dial("", "", lambda text: [forward(text) or ""], "")
    hello = f'{{"t":"hello","v":[1,1],"build":"x","server":"{SERVER}","inst":"x","rx":0}}'
    await relay.dial(token, "tabrelay.v1", link_answers(result), hello)

    def same(server: Server, request: bytes, end: bytes = b'"jsonrpc"') -> tuple[list[Caller], list[bytes]]:
        return [Caller(server, end) for _ in range(callers)], [request] * callers

    opened = [await open_session(relay, target) for _ in range(callers)]
    calls = {
        "bare forwarder": same(bare, target.modern()),
        "tabrelay, modern": same(relay, target.modern()),
        "tabrelay, legacy": ([Caller(relay) for _ in range(callers)], [target.legacy(id) for id in opened]),
    }
    regular = {
        "regular path, tools/list": same(relay, target.other("tools/list")),
        "regular path, server/discover": same(relay, target.other("server/discover")),
        "regular path, initialize": same(relay, target.initialize()),
        "regular path, call with progress": same(relay, target.modern(PROGRESS), b"0\r\n\r\n"),
    }
    ways = [(name, *way, BATCH) for name, way in calls.items()]
    ways += [(name, *way, REGULAR_BATCH) for name, way in regular.items()]
    best = {name: float("inf") for name, *_ in ways}
    for _ in range(batches):
        for name, who, what, number in ways:
            best[name] = min(best[name], await batch(who, what, number))
    await bare.close()
    await relay.close()
    floor = best["bare forwarder"]
    return [[name, f"{value:.1f}", f"{value / floor:.2f}"] for name, value in best.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--callers", type=int, default=16)
    parser.add_argument("--result", type=int, default=200, help="bytes of text in a result")
    args = parser.parse_args()
    tune_garbage_collector()  # as the relay does
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-", ignore_cleanup_errors=True) as home:
        rows = uvloop.run(run(args.batches, args.result, args.callers, Path(home)))
    print(table(["", "µs/request", "× floor"], rows))


if __name__ == "__main__":
    main()
