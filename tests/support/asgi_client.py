"""Calls an ASGI application in this process, with exactly the headers a test gives: no client adds or repairs any."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from starlette.types import ASGIApp, Message

Headers = Iterable[tuple[str, str]]


@dataclass
class Answer:
    """The outcome: an HTTP response, or the result of a WebSocket handshake."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    close_code: int | None = None
    is_accepted: bool = False

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key == name.lower()]
        return ", ".join(values) if values else None

    def json(self) -> Any:
        return json.loads(self.body)


def http_scope(method: str, path: str, headers: Headers) -> dict[str, Any]:
    path, _, query = path.partition("?")
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(key.lower().encode("latin-1"), value.encode("latin-1")) for key, value in headers],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 4747),
    }


async def request(app: ASGIApp, method: str, path: str, headers: Headers = (), body: bytes = b"") -> Answer:
    """One HTTP request. The body arrives in one piece, and the client stays connected until the response is
    complete."""
    answer = Answer()
    chunks: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if chunks:
            return chunks.pop()
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        _record(answer, message)

    await app(http_scope(method, path, headers), receive, send)
    return answer


async def dial(
    app: ASGIApp, path: str, headers: Headers = (), subprotocols: Iterable[str] = (), can_answer: bool = True
) -> Answer:
    """One WebSocket handshake. ``can_answer``: the server supports refusals with an HTTP response."""
    answer = Answer()
    scope = http_scope("GET", path, headers)
    del scope["method"]
    scope |= {"type": "websocket", "scheme": "ws", "subprotocols": list(subprotocols)}
    scope["extensions"] = {"websocket.http.response": {}} if can_answer else {}

    async def receive() -> Message:
        return {"type": "websocket.connect"}

    async def send(message: Message) -> None:
        _record(answer, message)

    await app(scope, receive, send)
    return answer


def _record(answer: Answer, message: Message) -> None:
    kind = message["type"].removeprefix("websocket.")
    if kind == "accept":
        answer.is_accepted = True
    elif kind == "close":
        answer.close_code = message["code"]
    elif kind.endswith("response.start"):
        answer.status = message["status"]
        answer.headers = [(key.decode("latin-1").lower(), value.decode("latin-1")) for key, value in message["headers"]]
    elif kind.endswith("response.body"):
        answer.body += message.get("body", b"")
