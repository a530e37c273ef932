"""Attacks without a token: connections and requests that never end, and answers that no client reads."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from time import monotonic

import httpx2

from bench.siege.target import SMALL_WINDOW, Target, crowd
from tabrelay.calls.proof import ROUTE, Challenge, key_of, serve_key
from tabrelay.config.settings import MIB, Settings

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
    """Without a token: the answer comes before the body is read, and the body never ends."""
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


async def endless_trailers(target: Target, until: float) -> None:
    """Without a token: half of the connections send more and more trailer fields, the others one field without an
    end."""
    kind = {"Content_Type": "application/csp-report", "Authorization": "none"}
    head = target.head("/-/reports", Transfer_Encoding="chunked", **kind) + b"\r\n0\r\n"
    while monotonic() < until:
        async with crowd(target, 20, head) as writers:
            for _ in range(16):
                for number, writer in enumerate(writers):
                    writer.write(b"X: y\r\n" * 50_000 if number % 2 else b"x" * 300_000)
                await asyncio.sleep(0.05)


async def sent_ahead(target: Target, until: float) -> None:
    """Without a token: many small requests in one piece, on many connections."""
    one = f"GET /-/healthz HTTP/1.1\r\nHost: {target.host}:{target.port}\r\n\r\n".encode()
    while monotonic() < until:
        async with crowd(target, 150, one * (60_000 // len(one)), window=SMALL_WINDOW):
            await asyncio.sleep(1)


async def half_sent(target: Target, until: float) -> None:
    """Without a token: more requests than there are connections, whose bodies do not arrive, and held questions."""
    page = {"Authorization": "none", "Origin": "https://siege.example"}
    own = {"Authorization": "none", "Origin": target.url}
    halves = [
        target.head("/-/reports", Content_Length="20", Content_Type="application/csp-report", Authorization="none"),
        target.head("/-/ask", Content_Length="20", **page),
        target.head("/-/pair", Content_Length="20", **own),
    ]
    async with httpx2.AsyncClient(base_url=target.url, trust_env=False) as http:
        answer = await http.post("/-/ask", json={"server": "siege"}, headers={"Origin": page["Origin"]})
    if answer.is_success:  # otherwise another attacker asked a moment ago
        body = b'{"request": "%b"}' % answer.json()["request"].encode()
        halves.append(target.post(body, "/-/ask/answer", **page))
    async with contextlib.AsyncExitStack() as stack:
        for half in halves:
            whole = half if half.endswith(b"}") else half + b"\r\n{"
            await stack.enter_async_context(crowd(target, 1030 // len(halves) + 1, whole))
        await asyncio.sleep(max(0.0, until - monotonic()))


async def unread_pages(target: Target, until: float) -> None:
    """Files are requested, and the answers are not read."""
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
    """New ones all the time, over HTTP and WebSocket."""
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


async def challenges(target: Target, until: float) -> None:
    """Without a token: challenges with new nonces and keys all the time; valid ones, too large ones and some that never
    end."""
    host = f"{target.host}:{target.port}"
    none = {"Authorization": "none", "Origin": "https://siege.example"}
    key = serve_key(key_of(target.token))
    half = target.head(ROUTE, Content_Length="200", **none) + b"\r\n{"
    async with crowd(target, 300, half):
        while monotonic() < until:
            known = [Challenge(key, host).body() for _ in range(25)]  # its id is public: a page may have seen it
            unknown = [Challenge(secrets.token_bytes(32), host).body() for _ in range(25)]
            asked = b"".join(target.post(body, ROUTE, **none) for body in (*known, *unknown, b" " * 5000))
            async with crowd(target, 20, asked, window=SMALL_WINDOW):
                await asyncio.sleep(0.2)
