"""Response headers and refusals of the gate: security headers on every response, CORS for admitted origins.

A refusal is an HTTP response, also before a WebSocket's 101. Does not decide what is refused: `gate` does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, Final

from starlette.types import Message, Receive, Scope, Send

from tabrelay.admission.policy import Refuse
from tabrelay.admission.routes import Route
from tabrelay.errors import Busy
from tabrelay.http.exchange import STREAMING
from tabrelay.http.problems import help_headers, problem
from tabserver.wire import jsonrpc

Headers = list[tuple[bytes, bytes]]

# For servers that can't refuse a WebSocket with an HTTP status.
CLOSE_CODES: Final = {401: 4401, 403: 4403, 421: 4403, 429: 1013}
DEFAULT_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
# For responses that are no page and no file: if a browser displays one all the same, it runs and loads nothing.
# defence: a policy for what is no page
CSP: Final = (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'")
CORS_METHODS: Final = b"GET, POST, DELETE"
CORS_HEADERS: Final = (
    "Content-Type, Accept, Authorization, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id, Last-Event-ID, "
    "traceparent, tracestate"
)
_MCP_PARAM: Final = re.compile(r"mcp-param-[a-z0-9!#$%&'*+.^_`|~-]+")


class ResponseWriter:
    """Writes the response of one request or WebSocket. The application gets its `send` instead of the server's."""

    __slots__ = ("_asked", "_cors", "_scope", "_send", "is_ended", "is_started")

    def __init__(self, scope: Scope, asked: Route, send: Send) -> None:
        self._scope = scope
        self._asked = asked
        self._send = send
        self._cors: Headers = []
        self.is_started: bool = scope.get(STREAMING, False)
        self.is_ended = False

    def allow_origin(self, origin: str) -> None:
        """Only for admitted origins, so never `*`. Refusals have it too, or a page could not read the reason."""
        self._cors = [
            (b"access-control-allow-origin", origin.encode("latin-1")),
            (b"access-control-expose-headers", b"Mcp-Session-Id, WWW-Authenticate, Retry-After"),
            (b"vary", b"Origin"),
        ]

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self.is_started = True
            message = {
                **message,
                "headers": with_default_headers(message.get("headers", ()), self._asked.is_jsonrpc) + self._cors,
            }
        elif kind == "http.response.body":
            self.is_ended = not message.get("more_body", False)
        await self._send(message)

    async def preflight(self) -> None:
        asked = [value for name, value in self._scope["headers"] if name == b"access-control-request-headers"]
        wanted = b",".join(asked).decode("latin-1").lower().split(",")
        params = [name.strip() for name in wanted if _MCP_PARAM.fullmatch(name.strip())]
        headers = [
            (b"access-control-allow-methods", CORS_METHODS),
            (b"access-control-allow-headers", ", ".join([CORS_HEADERS, *params]).encode("latin-1")),
            (b"access-control-max-age", b"600"),
            (b"vary", b"Access-Control-Request-Headers"),
        ]
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})

    async def refuse(self, refusal: Refuse, receive: Receive) -> None:
        text = json.dumps(self._body(refusal)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        headers += help_headers(refusal.reason, jsonrpc.INVALID_REQUEST)
        headers += [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in refusal.headers]
        prefix = "http"
        if self._scope["type"] == "websocket":
            await receive()  # websocket.connect
            if "websocket.http.response" not in self._scope.get("extensions", {}):
                code = CLOSE_CODES[refusal.status]
                await self._send({"type": "websocket.close", "code": code, "reason": refusal.reason})
                return
            prefix = "websocket.http"
            headers += [*DEFAULT_HEADERS, *self._cors]
        await self.send({"type": f"{prefix}.response.start", "status": refusal.status, "headers": headers})
        await self.send({"type": f"{prefix}.response.body", "body": text})

    def _body(self, refusal: Refuse) -> dict[str, Any]:
        if not self._asked.is_jsonrpc:
            return problem(refusal.reason, refusal.message)
        can_retry = refusal.retry_after_ms is not None
        data: dict[str, Any] = {"reason": refusal.reason, "delivered": "no", "retryable": can_retry}
        data["server"] = self._asked.server
        if can_retry:
            data["retry_after_ms"] = refusal.retry_after_ms
        code = Busy.code if can_retry else jsonrpc.INVALID_REQUEST
        return jsonrpc.error_message(None, code, refusal.message, data)

    async def end_revoked(self, refusal: Refuse, receive: Receive) -> None:
        """The token was revoked and the application has returned: send the refusal, or end the started response."""
        if self._scope["type"] != "http" or self.is_ended:
            return
        if self.is_started:
            await self.send({"type": "http.response.body", "body": b"", "more_body": False})
        else:
            await self.refuse(refusal, receive)


def with_default_headers(headers: Iterable[tuple[bytes, bytes]], speaks_rpc: bool) -> Headers:
    """The headers of a response, and those that every response has."""
    given = list(headers)
    present = {name for name, _ in given}  # ASGI: names are in lower case
    # defence: safe headers on every answer
    given += [pair for pair in DEFAULT_HEADERS if pair[0] not in present]
    if not speaks_rpc and CSP[0] not in present:
        given.append(CSP)
    return given
