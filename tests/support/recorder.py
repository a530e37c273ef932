"""Listens to everything that a relay says to its clients in a test, and holds it to the official models.

An ASGI wrapper: it changes nothing. What is not right is kept, and whoever runs the relay fails with it in the end.
"""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qs

from pydantic import ValidationError
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tabserver.wire import eras
from tests.support.models import check_note, check_request, check_response


class Recorder:
    """`checks_results`: also what the servers answered, not only what the relay says by itself."""

    def __init__(self, app: ASGIApp, *, checks_results: bool) -> None:
        self._app = app
        self._checks_results = checks_results
        self._versions: dict[str, str] = {}
        self._asked: dict[tuple[str, Any], str] = {}
        self.checked = 0
        self.wrong: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/-") or scope["path"] == "/":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(self, scope)

        async def hear() -> Message:
            message = await receive()
            exchange.asked(message)
            return message

        async def say(message: Message) -> None:
            exchange.said(message)
            await send(message)

        await self._app(scope, hear, say)

    def check(self, session: str, version: str, message: Any) -> None:
        """One message of the relay's."""
        if not isinstance(message, dict):
            return
        self.checked += 1
        try:
            if "method" in message:
                (check_request if "id" in message else check_note)(version, message)
            elif "error" in message or self._checks_results:
                method = self._asked.get((session, json.dumps(message.get("id"))))
                if method is not None:
                    check_response(version, method, message)
        except (ValidationError, ValueError, KeyError) as error:
            self.wrong.append(f"{version}: {json.dumps(message)[:300]}\n{error}")


class _Exchange:
    """One HTTP request: who asks, in which version, and what comes back."""

    def __init__(self, recorder: Recorder, scope: Scope) -> None:
        self._recorder = recorder
        headers = {key.decode(): value.decode("latin-1").strip() for key, value in scope["headers"]}
        query = parse_qs(scope.get("query_string", b"").decode())
        self._session = headers.get("mcp-session-id") or query.get("session_id", [""])[0]
        self._is_pipe = scope["path"].endswith("/sse")
        self._version = headers.get("mcp-protocol-version", "")
        self._body = b""
        self._heard = b""
        self._kind = ""
        self._request: Any = None

    @property
    def version(self) -> str:
        known = self._recorder._versions.get(self._session)
        if known is not None:
            return known
        return self._version if self._version in (*eras.LEGACY_VERSIONS, *eras.MODERN_VERSIONS) else eras.NEWEST_LEGACY

    def asked(self, message: Message) -> None:
        self._body += message.get("body", b"")
        if message["type"] != "http.request" or message.get("more_body"):
            return
        try:
            found = json.loads(self._body)
        except (ValueError, RecursionError):
            return
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict) and isinstance(one.get("method"), str) and "id" in one:
                self._recorder._asked[self._session, json.dumps(one["id"])] = one["method"]
                if one["method"] == "initialize":
                    self._request = one
                    asked = one.get("params", {}).get("protocolVersion") if isinstance(one.get("params"), dict) else ""
                    if self._session:
                        self._recorder._versions[self._session] = eras.negotiate(asked)

    def said(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = {key.decode().lower(): value.decode() for key, value in message["headers"]}
            self._kind = headers.get("content-type", "")
            if self._request is not None and "mcp-session-id" in headers:
                asked = self._request["params"].get("protocolVersion")
                self._recorder._versions[headers["mcp-session-id"]] = eras.negotiate(asked)
            return
        self._heard += message.get("body", b"")
        if self._kind == "application/json" and not message.get("more_body"):
            found = json.loads(self._heard)
            for one in found if isinstance(found, list) else [found]:
                self._recorder.check(self._session, self.version, one)
        elif self._kind == "text/event-stream":
            *whole, self._heard = self._heard.split(b"\n\n")
            for event in whole:
                self._event(event.decode())

    def _event(self, event: str) -> None:
        for line in event.splitlines():
            if line.startswith("data: /") and self._is_pipe:
                self._session = line.rpartition("session_id=")[2]
            elif line.startswith("data: {"):
                self._recorder.check(self._session, self.version, json.loads(line[6:]))
