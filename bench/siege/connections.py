"""Attacks of whoever reaches the port: connections and requests that never end, and answers that nobody fetches."""

from __future__ import annotations

import asyncio
import contextlib
from time import monotonic

import httpx2

from bench.siege.target import SMALL_WINDOW, Target, crowd
from tabrelay.config import MIB, Settings

LIMITS = Settings()


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


async def refused_bodies(target: Target, until: float) -> None:
    """Of whoever has no token: the answer comes before the body is read, and the body never ends."""
    head = target.head(Authorization="Bearer wrong", Content_Length=str(LIMITS.max_body)) + b"\r\n"
    async with crowd(target, 900, head + b" " * 300_000):
        await asyncio.sleep(max(0.0, until - monotonic()))


async def endless_bodies(target: Target, until: float) -> None:
    while monotonic() < until:
        async with crowd(target, 20, target.head(Transfer_Encoding="chunked") + b"\r\n") as writers:
            for _ in range(16):
                for writer in writers:
                    writer.write(b"100000\r\n" + b" " * MIB + b"\r\n")
                await asyncio.sleep(0.05)


async def unread_pages(target: Target, until: float) -> None:
    """Files are fetched, and nobody reads the answers."""
    paths = ("/-/tabserver.zip", "/-/tabrelay.tgz", "/-/client.js", "/")
    asked = b"".join(target.head(path, "GET") + b"\r\n" for path in paths)
    async with crowd(target, 900, asked, window=SMALL_WINDOW):
        await asyncio.sleep(max(0.0, until - monotonic()))


async def asking(target: Target, until: float) -> None:
    """Pages of made-up origins that ask to be paired."""
    number = 0
    async with httpx2.AsyncClient(base_url=target.url, trust_env=False) as http:
        while monotonic() < until:
            number += 1
            with contextlib.suppress(httpx2.HTTPError):
                headers = {"Origin": f"https://a{number}.example"}
                await http.post("/-/ask", json={"server": f"s{number}"}, headers=headers)


async def reports(target: Target, until: float) -> None:
    """Reports about pages of the relay: whole ones as fast as possible, too large ones, and some that never end."""
    line = '{"csp-report": {"document-uri": "%s", "blocked-uri": "x", "violated-directive": "y"}}' % ("p" * 15_000)
    kind = {"Content_Type": "application/csp-report"}
    whole = target.post(line.encode(), "/-/reports", **kind)
    endless = target.head("/-/reports", Transfer_Encoding="chunked", **kind) + b"\r\n" + b"4000\r\n" + b" " * 8192
    async with crowd(target, 300, endless):
        while monotonic() < until:
            async with crowd(target, 100, whole * 20) as writers:
                for writer in writers:
                    writer.write(target.post(b" " * MIB, "/-/reports", **kind))
                await asyncio.sleep(0.2)


async def wrong_tokens(target: Target, until: float) -> None:
    """Ever new ones, over HTTP and WebSocket."""
    number = 0
    while monotonic() < until:
        number += 1
        made_up = f"tr_{number:043d}"
        many = b"".join(
            target.head("/-/status", "GET", Authorization=f"Bearer {made_up}{each}") + b"\r\n" for each in range(50)
        )
        async with crowd(target, 20, many, window=SMALL_WINDOW):
            with contextlib.suppress(Exception):
                async with target.browser("bench", made_up):
                    pass
