"""The relay's hop without sockets: its own Python per call, in one process, beside the bare forwarder's.

Drives both ASGI applications with ready-made scopes and an in-memory WebSocket whose remote end answers with minimal
work. This is the regular path, without the fast path, which is part of the connection. The smallest of many batches is
shown: it is the cost of the code without disturbance, so small changes are visible that calls per second would hide in
noise. The cost of uvicorn and the kernel is not included.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import tempfile
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from time import process_time
from typing import Any

import orjson
import uvloop

from bench.forwarder import Forwarder
from bench.load import Target
from bench.stage import SERVER
from bench.table import table
from tabrelay.admission.tokens import Tokens
from tabrelay.config.settings import Settings
from tabrelay.server.app import create_app

Message = MutableMapping[str, Any]
App = Callable[[Message, Callable[[], Awaitable[Message]], Callable[[Message], Awaitable[None]]], Awaitable[None]]

PORT = 4747
CALLERS = 16
BATCH = 2000


class FarEnd:
    """The in-memory WebSocket, from the server's view: what it receives, and what happens to what it sends."""

    def __init__(self, answer: Callable[[str], str | None]) -> None:
        self._answer = answer
        self._inbox: asyncio.Queue[Message] = asyncio.Queue()
        self._inbox.put_nowait({"type": "websocket.connect"})

    def say(self, text: str) -> None:
        self._inbox.put_nowait({"type": "websocket.receive", "text": text})

    async def receive(self) -> Message:
        return await self._inbox.get()

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.send":
            answer = self._answer(message["text"])
            if answer is not None:
                self.say(answer)


def bare_answer(result: str) -> Callable[[str], str | None]:
    return lambda text: text.partition("\n")[0] + "\n" + result


def link_answer(result: str) -> Callable[[str], str | None]:
    """Reads only the required members of a header, and acknowledges with every answer."""
    received = itertools.count(1)
    said = itertools.count(1)

    def answer(text: str) -> str | None:
        header, newline, message = text.partition("\n")
        if '"s":' not in header:
            return None
        seq = next(received)
        if not newline or '"k":"req"' not in header:
            return None
        channel = header.partition('"c":"')[2].partition('"')[0]
        payload = result if '"id":1,' in message else other(message)
        id = orjson.dumps(orjson.loads(message)["id"]).decode() if payload is not result else "1"
        return f'{{"t":"msg","s":{next(said)},"a":{seq},"c":"{channel}","k":"res","i":{id}}}\n{payload}'

    def other(message: str) -> str:
        about = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        return orjson.dumps({"jsonrpc": "2.0", "id": orjson.loads(message)["id"], "result": about}).decode()

    return answer


class Client:
    """Callers that share one loop with the server."""

    def __init__(self, app: App, target: Target) -> None:
        self._app = app
        self.target = target

    async def post(self, request: bytes) -> tuple[dict[bytes, bytes], bytes]:
        headers, body = split(request)
        answer: dict[str, Any] = {}
        await self._app(self.scope(headers), self.receiver(body), self.sender(answer))
        return dict(answer["headers"]), answer["body"]

    def scope(self, headers: list[tuple[bytes, bytes]]) -> Message:
        return {"type": "http", "method": "POST", "path": f"/{SERVER}", "headers": headers, "state": {}}

    def receiver(self, body: bytes) -> Callable[[], Awaitable[Message]]:
        """The body, and then nothing: the client does not disconnect."""
        was_read = False

        async def receive() -> Message:
            nonlocal was_read
            if was_read:
                await asyncio.Event().wait()
            was_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        return receive

    def sender(self, answer: dict[str, Any]) -> Callable[[Message], Awaitable[None]]:
        async def send(message: Message) -> None:
            answer.update(message)

        return send

    async def batch(self, requests: list[bytes]) -> float:
        """Processor time per call, in microseconds; one caller for each of the requests."""
        last: dict[str, Any] = {}
        send = self.sender(last)

        async def caller(request: bytes) -> None:
            headers, body = split(request)
            for _ in range(BATCH // CALLERS):
                await self._app(self.scope(headers), self.receiver(body), send)

        began = process_time()
        await asyncio.gather(*(caller(request) for request in requests))
        took = process_time() - began
        assert b'"result"' in last["body"], last["body"]
        return took / (BATCH // CALLERS * CALLERS) * 1e6


def split(request: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = (line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return [(name.lower(), value) for name, value in lines], body


async def connect(
    app: App, end: FarEnd, headers: list[tuple[bytes, bytes]], subprotocols: list[str], server: str = SERVER
) -> asyncio.Task[None]:
    scope = {"type": "websocket", "path": f"/{server}", "headers": headers, "state": {}, "subprotocols": subprotocols}
    scope["extensions"] = {"websocket.http.response": {}}

    async def run() -> None:
        await app(scope, end.receive, end.send)

    task = asyncio.create_task(run())
    for _ in range(20):
        await asyncio.sleep(0)
    return task


async def run(batches: int, result: str, home: Path) -> list[list[str]]:
    tokens = Tokens(home)
    token = tokens.master()
    target = Target(f"http://127.0.0.1:{PORT}/{SERVER}", token)
    bare: Any = Forwarder()
    settings = Settings(home=home, port=PORT, in_flight_server=256, in_flight_caller=256, rate_s=0)
    relay: Any = create_app(settings, tokens=tokens)
    keep = [await connect(bare, FarEnd(bare_answer(result)), [], [])]
    end = FarEnd(link_answer(result))
    end.say(f'{{"t":"hello","v":[1,1],"build":"x","server":"{SERVER}","inst":"x","rx":0}}')
    host = [(b"host", b"127.0.0.1:%d" % PORT), (b"authorization", b"Bearer " + token.encode())]
    keep.append(await connect(relay, end, host, ["tabrelay.v1"]))
    client = Client(relay, target)
    sessions = [(await client.post(target.initialize()))[0][b"mcp-session-id"].decode() for _ in range(CALLERS)]
    requests = {
        "bare forwarder": (Client(bare, target), [target.modern()] * CALLERS),
        "tabrelay, modern": (client, [target.modern()] * CALLERS),
        "tabrelay, legacy": (client, [target.legacy(session) for session in sessions]),
    }
    best = dict.fromkeys(requests, float("inf"))
    for _ in range(batches):
        for name, (who, what) in requests.items():
            best[name] = min(best[name], await who.batch(what))
    for task in keep:
        task.cancel()
    floor = best["bare forwarder"]
    return [[name, f"{value:.1f}", f"+{value - floor:.1f}"] for name, value in best.items()]


async def crowd(counts: list[int], batches: int, result: str, home: Path) -> list[list[str]]:
    """Cost of a modern call while this many browsers are connected and idle: the smallest and the median batch."""
    tokens = Tokens(home)
    token = tokens.master()
    settings = Settings(home=home, port=PORT, in_flight_server=256, rate_s=0, max_servers=max(counts) + 1)
    relay: Any = create_app(settings, tokens=tokens)
    host = [(b"host", b"127.0.0.1:%d" % PORT), (b"authorization", b"Bearer " + token.encode())]
    target = Target(f"http://127.0.0.1:{PORT}/{SERVER}", token)
    keep: list[asyncio.Task[None]] = []
    rows, least = [], 0.0
    for count in counts:
        began, before = process_time(), len(keep)
        while len(keep) < count:
            name = f"idle-{len(keep)}" if keep else SERVER
            end = FarEnd(link_answer(result))
            end.say(f'{{"t":"hello","v":[1,1],"build":"x","server":"{name}","inst":"{name}","rx":0}}')
            keep.append(await connect(relay, end, host, ["tabrelay.v1"], name))
        each = (process_time() - began) / max(len(keep) - before, 1) * 1e6
        await asyncio.sleep(1.0)  # their catalogues are read
        found = sorted([await Client(relay, target).batch([target.modern()] * CALLERS) for _ in range(batches)])
        least = least or found[0]
        middle = found[len(found) // 2]
        rows.append(
            [f"{count:,} browsers", f"{found[0]:.0f}", f"{found[0] / least:.2f}", f"{middle:.0f}", f"{each:,.0f}"]
        )
    for task in keep:
        task.cancel()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browsers", type=int, nargs="*", help="with so many of them connected, instead of the rest")
    parser.add_argument("--batches", type=int, default=30)
    parser.add_argument("--result", type=int, default=200, help="bytes of text in a result")
    args = parser.parse_args()
    content = [{"type": "text", "text": "x" * args.result}]
    result = orjson.dumps({"jsonrpc": "2.0", "id": 1, "result": {"content": content}}).decode()
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-") as home:
        if args.browsers:
            rows = uvloop.run(crowd(args.browsers, args.batches, result, Path(home)))
            head = ["", "µs/call, smallest", "×", "µs/call, median", "µs for each that came"]
        else:
            rows = uvloop.run(run(args.batches, result, Path(home)))
            head = ["", "µs/call", "over the floor"]
    print(table(head, rows))


if __name__ == "__main__":
    main()
