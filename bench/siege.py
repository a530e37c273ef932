"""What does each attack cost? One after the other, each against a relay of its own with the product's own limits.

While an attack goes on, the relay's resident memory is read, and an honest request is made again and again: it must be
answered. An attack fails the run if memory grows by more than its limits allow, or if nobody is answered any more. It
stays on loopback and ends by itself.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from time import monotonic
from urllib.parse import urlsplit

import httpx2

from bench import machine, stage
from bench.peer import bearer
from bench.table import table
from tabrelay.config import Settings
from tabserver.wire.frames import SUBPROTOCOL

MIB = 1024 * 1024
LIMITS = Settings()
SLACK = 48 * MIB  # allocator, buffers of the kernel's that were copied, Python's own growth
PROBE_S = 5.0
PLAIN = {"TABRELAY_IN_FLIGHT_SERVER": "64", "TABRELAY_IN_FLIGHT_CALLER": "16", "TABRELAY_RATE_S": "200"}


@dataclass(frozen=True, slots=True)
class Target:
    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def head(self, path: str = "/bench", **more: str) -> bytes:
        fields = {"Host": f"{self.host}:{self.port}", "Authorization": f"Bearer {self.token}"}
        fields |= {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        fields |= {name.replace("_", "-"): value for name, value in more.items()}
        return f"POST {path} HTTP/1.1\r\n".encode() + b"".join(f"{k}: {v}\r\n".encode() for k, v in fields.items())

    async def dial(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(self.host, self.port)


@contextlib.asynccontextmanager
async def crowd(target: Target, many: int, first: bytes) -> AsyncIterator[list[asyncio.StreamWriter]]:
    """So many connections, each of which says the same and nothing more; the relay may close any of them."""
    writers: list[asyncio.StreamWriter] = []
    for _ in range(many):
        with contextlib.suppress(OSError):
            _, writer = await target.dial()
            writer.write(first)
            writers.append(writer)
    try:
        yield writers
    finally:
        for writer in writers:
            writer.transport.abort()


async def silent(target: Target, until: float) -> None:
    async with crowd(target, 1500, b""):
        await asyncio.sleep(max(0.0, until - monotonic()))


async def half_headers(target: Target, until: float) -> None:
    async with crowd(target, 900, target.head()[:-2]) as writers:
        while monotonic() < until:
            for writer in writers:
                writer.write(b"X-More: " + b"x" * 60 + b"\r\n")
            await asyncio.sleep(0.2)


async def large_headers(target: Target, until: float) -> None:
    while monotonic() < until:
        async with crowd(target, 50, target.head()[:-2] + b"X-Large: " + b"x" * MIB):
            await asyncio.sleep(0.1)


async def large_bodies(target: Target, until: float) -> None:
    """Each is within its own limit, and none ever ends."""
    head = target.head(Content_Length=str(LIMITS.max_body)) + b"\r\n"
    async with crowd(target, 200, head + b" " * (LIMITS.max_body - 1)):
        await asyncio.sleep(max(0.0, until - monotonic()))


async def endless_bodies(target: Target, until: float) -> None:
    while monotonic() < until:
        async with crowd(target, 20, target.head(Transfer_Encoding="chunked") + b"\r\n") as writers:
            for _ in range(16):
                for writer in writers:
                    writer.write(b"100000\r\n" + b" " * MIB + b"\r\n")
                await asyncio.sleep(0.05)


async def deep_json(target: Target, until: float) -> None:
    body = b"[" * (LIMITS.max_body // 2)
    first = target.head(Content_Length=str(len(body))) + b"\r\n" + body
    while monotonic() < until:
        async with crowd(target, 20, first):
            await asyncio.sleep(0.2)


async def requests(target: Target, until: float) -> None:
    """As many as possible, with one token."""
    headers = {"Authorization": f"Bearer {target.token}"}

    async def ask(http: httpx2.AsyncClient) -> None:
        while monotonic() < until:
            with contextlib.suppress(httpx2.HTTPError):
                await http.get("/-/status")

    async with httpx2.AsyncClient(base_url=target.url, headers=headers, trust_env=False) as http:
        await asyncio.gather(*(ask(http) for _ in range(32)))


async def sessions(target: Target, until: float) -> None:
    """Sessions that nobody ever uses."""
    params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x" * 1000, "version": "1"}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
    headers = {"Authorization": f"Bearer {target.token}", "Accept": "application/json, text/event-stream"}

    async def ask(http: httpx2.AsyncClient) -> None:
        while monotonic() < until:
            with contextlib.suppress(httpx2.HTTPError):
                await http.post("/bench", json=body)

    async with httpx2.AsyncClient(base_url=target.url, headers=headers, trust_env=False) as http:
        await asyncio.gather(*(ask(http) for _ in range(16)))


async def asking(target: Target, until: float) -> None:
    """Pages of made-up origins that ask to be paired."""
    number = 0
    async with httpx2.AsyncClient(base_url=target.url, trust_env=False) as http:
        while monotonic() < until:
            number += 1
            with contextlib.suppress(httpx2.HTTPError):
                headers = {"Origin": f"https://a{number}.example"}
                await http.post("/-/ask", json={"server": f"s{number}"}, headers=headers)


async def names(target: Target, until: float) -> None:
    """Browsers that hold ever new names."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    number = 0
    while monotonic() < until:
        number += 1
        name = f"made-up-{number}"
        hello = {"t": "hello", "v": [1, 1], "build": "x", "server": name, "inst": f"i{number}", "rx": 0}
        with contextlib.suppress(OSError, WebSocketException):
            address = f"ws://{target.host}:{target.port}/{name}"
            async with connect(address, subprotocols=[SUBPROTOCOL, bearer(target.token)], proxy=None) as socket:  # type: ignore[list-item]
                await socket.send(json.dumps(hello))
                await socket.recv()


async def unfinished(target: Target, until: float) -> None:
    """Browsers whose messages come in slices, and never end."""
    from websockets.asyncio.client import connect
    from websockets.exceptions import WebSocketException

    part = "x" * LIMITS.max_part

    async def one(number: int) -> None:
        name = f"bomb-{number}"
        hello = {"t": "hello", "v": [1, 1], "build": "x", "server": name, "inst": f"i{number}", "rx": 0}
        while monotonic() < until:
            with contextlib.suppress(OSError, WebSocketException):
                address = f"ws://{target.host}:{target.port}/{name}"
                protocols = [SUBPROTOCOL, bearer(target.token)]
                async with connect(address, subprotocols=protocols, proxy=None, max_size=None) as socket:  # type: ignore[arg-type]
                    await socket.send(json.dumps(hello))
                    await socket.recv()
                    for slice_ in range(30):
                        head = {"t": "part", "s": slice_ + 1, "a": 0, "f": 1, "q": slice_, "n": 33}
                        first = {"h": {"t": "msg", "c": "c", "k": "res", "i": 1}} if slice_ == 0 else {}
                        await socket.send(json.dumps(head | first) + "\n" + part)
                    await asyncio.sleep(max(0.0, until - monotonic()))
            await asyncio.sleep(0.05)

    await asyncio.gather(*(one(number) for number in range(32)))


Attack = Callable[[Target, float], Awaitable[None]]
# What each may cost, beside the slack: the limit that is at work.
ATTACKS: dict[str, tuple[Attack, str, int]] = {
    "1,500 silent connections": (silent, "`max_connections`", 0),
    "900 headers that never end": (half_headers, "`max_header`, `header_deadline_s`", 900 * LIMITS.max_header),
    "headers of 1 MiB": (large_headers, "`max_header`", 0),
    "200 bodies of 4 MiB that never end": (large_bodies, "`body_budget`, `body_deadline_s`", LIMITS.body_budget),
    "chunked bodies without end": (endless_bodies, "`max_body`", LIMITS.body_budget),
    "JSON that nests 2 million levels": (deep_json, "`max_json_depth`", LIMITS.body_budget),
    "requests as fast as possible": (requests, "`rate_s`", 0),
    "sessions that nobody uses": (sessions, "`max_sessions`", LIMITS.max_sessions * 4096),
    "pages that ask to be paired": (asking, "three at a time", 0),
    "ever new server names": (names, "`max_servers`", 0),
    "messages that never end, from 32 browsers": (unfinished, "`replay_budget`", LIMITS.replay_budget),
}


async def honest(target: Target, until: float, waits: list[float]) -> None:
    """Somebody who wants to know whether the relay is there; what takes too long counts as no answer."""
    while monotonic() < until:
        began = monotonic()
        try:
            async with httpx2.AsyncClient(base_url=target.url, trust_env=False, timeout=PROBE_S) as http:
                waits.append(monotonic() - began if (await http.get("/-/healthz")).status_code == 200 else PROBE_S)
        except httpx2.HTTPError:
            waits.append(PROBE_S)
        await asyncio.sleep(0.1)


async def watch(server: stage.Child, until: float, sizes: list[int]) -> None:
    while monotonic() < until:
        sizes.append(server.rss())
        await asyncio.sleep(0.02)


async def besiege(server: stage.Child, name: str, seconds: float) -> tuple[int, int, float]:
    """Memory before, the largest meanwhile, and the longest wait of somebody honest.

    The attack has a process of its own: whoever is busy attacking can't tell how long others wait.
    """
    parts = urlsplit(server.said["url"])
    target = Target(parts.hostname or "", parts.port or 0, server.said["token"])
    await honest(target, monotonic() + 0.3, [])
    before = server.rss()
    command = [sys.executable, "-m", "bench.siege", "--attack", name, target.url, "--seconds", str(seconds)]
    env = {**os.environ, stage.TOKEN: target.token}
    attacker = await asyncio.create_subprocess_exec(*command, cwd=stage.ROOT, env=env)
    until = monotonic() + seconds
    sizes: list[int] = [before]
    waits: list[float] = []
    await asyncio.gather(honest(target, until, waits), watch(server, until, sizes))
    await attacker.wait()
    return before, max(sizes), max(waits, default=PROBE_S)


async def _for(attack: Attack, target: Target, seconds: float) -> None:
    await attack(target, monotonic() + seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="for each attack")
    parser.add_argument("--only", default="", metavar="WORDS", help="only attacks with these words in their name")
    parser.add_argument("--attack", nargs=2, metavar=("NAME", "URL"), help="only do that, and measure nothing")
    args = parser.parse_args()
    if args.attack:
        parts = urlsplit(args.attack[1])
        target = Target(parts.hostname or "", parts.port or 0, os.environ[stage.TOKEN])
        asyncio.run(_for(ATTACKS[args.attack[0]][0], target, args.seconds))
        return 0
    rows, failed = [], False
    for name, (_attack, limit, allowed) in ATTACKS.items():
        if args.only not in name:
            continue
        with stage.lone_relay(env=PLAIN, servers=(stage.SERVER,)) as server:
            before, peak, wait_s = asyncio.run(besiege(server, name, args.seconds))
        grown = peak - before
        is_good = grown <= allowed + SLACK and wait_s < PROBE_S
        failed |= not is_good
        figures = [f"{before / MIB:,.0f}", f"{grown / MIB:,.0f}", f"{(allowed + SLACK) / MIB:,.0f}"]
        rows.append([name, limit, *figures, f"{wait_s * 1000:,.0f}", "pass" if is_good else "FAIL"])
        # At once: a run that is cut short leaves what it has found.
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print("\n".join(machine.describe()), end="\n\n")
    print(table(["attack", "limit at work", "before (MiB)", "grew by", "allowed", "longest wait (ms)", ""], rows))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
