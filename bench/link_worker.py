"""A browser's worker for measurements: answers the frames of a link with minimal work.

It reads only the required members of a header, and acknowledges with every answer. A call with `PROGRESS` as its token
gets one notification before its result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

# What a worker adds to a response whose times were asked for.
MEASURED: Final = ',"w":{"in":1000000,"post":1000100,"back":1000900,"out":1001000,"page":[1000200,1000800],"tab":"t"}'
PROGRESS: Final = "bench-progress"
DISCOVERED: Final = {
    "resultType": "complete",
    "ttlMs": 0,
    "cacheScope": "private",
    "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "x", "version": "1"}},
}
TOOLS: Final = [
    {"name": f"tool_{number}", "description": "A tool.", "inputSchema": {"type": "object", "properties": {}}}
    for number in range(10)
]
RESULTS: Final[dict[str, dict[str, Any]]] = {
    "initialize": {
        "protocolVersion": "2025-11-25",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "x", "version": "1"},
    },
    "tools/list": {**DISCOVERED, "tools": TOOLS},
    "server/discover": {**DISCOVERED, "supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}},
}


def link_answers(result: str) -> Callable[[str], Sequence[str]]:
    """`result`: the answer to a call, whose id is 1."""
    received, sent = itertools.count(1), itertools.count(1)
    params = {"progressToken": PROGRESS, "progress": 1}
    note = orjson.dumps({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).decode()

    def frame(seq: int, channel: str, rest: str, payload: str) -> str:
        return f'{{"t":"msg","s":{next(sent)},"a":{seq},"c":"{channel}",{rest}}}\n{payload}'

    def answers(text: str) -> Sequence[str]:
        header, newline, message = text.partition("\n")
        if '"s":' not in header:
            return ()
        seq = next(received)
        if not newline or '"k":"req"' not in header:
            return ()
        channel = header.partition('"c":"')[2].partition('"')[0]
        if '"id":1,' not in message:
            return (other(seq, channel, message),)
        last = '"k":"res","i":1' + (MEASURED if '"m":1' in header else "")
        if PROGRESS not in message:
            return (frame(seq, channel, last, result),)
        return frame(seq, channel, '"k":"note","r":1', note), frame(seq, channel, last, result)

    def other(seq: int, channel: str, message: str) -> str:
        request = orjson.loads(message)
        found = RESULTS.get(request["method"], RESULTS["initialize"])
        id = orjson.dumps(request["id"]).decode()
        payload = orjson.dumps({"jsonrpc": "2.0", "id": request["id"], "result": found}).decode()
        return frame(seq, channel, f'"k":"res","i":{id}', payload)

    return answers
