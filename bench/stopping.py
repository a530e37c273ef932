"""Requests during a stop under load: starts a relay, sends it load, stops it, and counts unanswered requests; repeated.

Clients send requests in a loop until the port refuses connections: some on one connection for as long as the relay
keeps it, some on a new one each time, some after a pause of random length. A request is answered (200), refused, or
unanswered: the connection ended after it was sent and before an answer came. The run fails if any is unanswered.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sys
from collections import Counter
from urllib.parse import urlsplit

from bench import machine, stage
from bench.load import Target
from bench.table import table

PAUSES_S = (0.0, 0.0, 0.02, 0.5)  # longest pause of a client between two requests
LONGEST_S = 30.0  # of a round


class Client:
    """One request at a time."""

    def __init__(self, host: str, port: int, request: bytes, number: int, counts: Counter[str]) -> None:
        self._address = host, port
        self._pause_s = PAUSES_S[number % len(PAUSES_S)]
        self._keeps = number % 3 > 0
        self._request = request if self._keeps else request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1)
        self._counts = counts

    async def run(self) -> None:
        """Runs until no process listens any more."""
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._address)
            except OSError:
                self._counts["no connection"] += 1
                return
            try:
                while await self._ask(reader, writer):
                    await self._rest()
            finally:
                writer.close()
            await self._rest()

    async def _rest(self) -> None:
        if self._pause_s:
            await asyncio.sleep(random.random() * self._pause_s)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection is kept."""
        if reader.at_eof():  # as client libraries do: a connection that was closed while it was idle is not used
            return False
        writer.write(self._request)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
            body = await reader.readexactly(size)
        except (asyncio.IncompleteReadError, ConnectionError):
            self._counts["unanswered"] += 1
            return False
        is_refused = b'"relay_unavailable"' in body
        self._counts["refused" if is_refused else head.split()[1].decode()] += 1
        return b"connection: close" not in head


async def round_of(clients: int, seconds: float) -> Counter[str]:
    counts: Counter[str] = Counter()
    with stage.relay(pin=False) as pair:
        parts = urlsplit(pair.url)
        call = Target(pair.url, pair.token).modern()
        running = [
            asyncio.create_task(Client(parts.hostname or "", parts.port or 0, call, number, counts).run())
            for number in range(clients)
        ]
        await asyncio.sleep(seconds)
        os.kill(pair.server.pid, signal.SIGTERM)
        async with asyncio.timeout(LONGEST_S):
            await asyncio.gather(*running)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=1.0, help="of load before each stop")
    args = parser.parse_args()
    total: Counter[str] = Counter()
    for _ in range(args.rounds):
        counts = asyncio.run(round_of(args.clients, args.seconds))
        print(dict(counts), file=sys.stderr, flush=True)
        total += counts
    print("\n".join(machine.describe()), end="\n\n")
    print(table(["outcome", "requests"], [[name, f"{count:,}"] for name, count in sorted(total.items())]))
    return 1 if total["unanswered"] else 0


if __name__ == "__main__":
    sys.exit(main())
