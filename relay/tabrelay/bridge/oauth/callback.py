"""OAuth redirect endpoint: a page on a loopback port that takes one authorization response.

It accepts only a response with the expected `state`, so that no other page can interfere, and shows the outcome in the
browser. It does not exchange the code for a token (`sdk_flow`).
"""

from __future__ import annotations

import asyncio
import html
import secrets
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs, urlsplit

PORT: Final = 53682
PATH: Final = "/callback"
WAIT_S: Final = 300.0
MAX_HEAD: Final = 16_384
READ_S: Final = 10.0


class CallbackError(Exception):
    """The user did not agree, or did not answer; the text gives the reason."""


@dataclass(frozen=True, slots=True)
class Returned:
    code: str
    state: str
    issuer: str | None


class Callback:
    """Start it with `async with`; `uri` is then the redirect URI."""

    def __init__(self, port: int = PORT, *, may_move: bool = True) -> None:
        """`may_move`: use another port if this one is taken."""
        self._port = port
        self._may_move = may_move
        self._server: asyncio.Server | None = None
        self._state: str | None = None

    async def __aenter__(self) -> Callback:
        self._returned: asyncio.Future[Returned] = asyncio.get_running_loop().create_future()
        try:
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", self._port, limit=MAX_HEAD)
        except OSError as problem:
            if not self._may_move:
                raise CallbackError(f"Port {self._port} is taken, and the browser has to come back to it.") from problem
            self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0, limit=MAX_HEAD)
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._server is not None:
            self._server.close()
        if self._returned.done() and not self._returned.cancelled():
            self._returned.exception()  # retrieved, since no task may be waiting

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self._port}{PATH}"

    def expect(self, authorization_url: str) -> None:
        """Sets the expected `state` from the authorization URL that the user is sent to."""
        [self._state] = parse_qs(urlsplit(authorization_url).query).get("state", [secrets.token_urlsafe()])

    async def returned(self) -> Returned:
        try:
            async with asyncio.timeout(WAIT_S):
                return await asyncio.shield(self._returned)
        except TimeoutError:
            raise CallbackError(f"The user did not agree in the browser within {WAIT_S:.0f} s.") from None

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(READ_S):
                head = await reader.readuntil(b"\r\n\r\n")
            status, text = self._take(head.split(b" ", 2)[1].decode("ascii"))
            writer.write(page(status, text))
            await writer.drain()
        except (OSError, ValueError, IndexError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()

    def _take(self, target: str) -> tuple[str, str]:
        parts = urlsplit(target)
        found = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path != PATH:
            return "404 Not Found", "There is nothing here."
        if self._state is None or not secrets.compare_digest(found.get("state", "").encode(), self._state.encode()):
            return "400 Bad Request", "This response does not belong to the current request. Start again. [TR314]"
        if self._returned.done():
            return "200 OK", "That was answered already. You can close this window."
        if "code" in found:
            self._returned.set_result(Returned(found["code"], found["state"], found.get("iss")))
            return "200 OK", "Connected. You can close this window."
        why = found.get("error_description") or found.get("error") or "no reason was given"
        self._returned.set_exception(CallbackError(f"The authorization server refused: {why[:200]}"))
        return "200 OK", f"Not connected: {why[:200]} [TR314]"


def page(status: str, text: str) -> bytes:
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tabrelay</title>'
        "<style>body{font:1.1rem system-ui,sans-serif;display:grid;place-content:center;min-height:90vh;margin:1rem;"
        "color-scheme:light dark}</style>"
        f"<main><h1>Tabrelay</h1><p>{html.escape(text)}</p></main></html>"
    ).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nReferrer-Policy: no-referrer\r\n"
        "Cache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
