"""ASGI wrapper that records every MCP message on both sides of a relay, and changes nothing.

It makes one record (a dict that can be written as JSON) of each message that the product has made, for another process
to check:

- `to: client`: what the relay sends to an MCP client, whatever its source;

- `to: relay`: what a browser's MCP core sends to the relay;

- `to: server`: what the relay, as a client, sends to a server or to a plain page;

and one of each request of an MCP client (`asked`), with its era. Only the standard library is used: the tap also runs
in separate relay processes, which do not have the tests' packages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qs
from weakref import WeakKeyDictionary, ref

NEWEST_LEGACY = "2025-11-25"
VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", NEWEST_LEGACY, "2026-07-28")
META_VERSION = "io.modelcontextprotocol/protocolVersion"
# A synthetic worker of a test, not the product: its messages may be wrong.
FAKE_BUILD = "synthetic"
CONDUIT = "tabrelay.peers.browsers.asgi_bypass"
MCP_PATH = re.compile(r"/[^-./][^/]*(/sse|/messages/?)?", re.DOTALL)

# The headers with the caller and the version.
READ = (b"mcp-session-id", b"mcp-protocol-version", b"user-agent")

Record = dict[str, Any]
Asgi = Callable[..., Any]


class Tap:
    """`note` receives every record, on the relay's own event loop."""

    def __init__(self, app: Asgi, note: Callable[[Record], None]) -> None:
        self._app = app
        self.note = note
        # For sessions of the handshake era: the version, and the method of each request by its id.
        self.versions: dict[str, str] = {}
        self.asked: dict[tuple[str, str], str] = {}
        # For channels of links, which outlive sockets: the caller, and the method of each request.
        self.callers: dict[str, dict[str, Any]] = {}
        self.called: dict[tuple[str, str], str] = {}
        fast_path = getattr(app, "fast_path", None)
        # The number of responses on the fast path.
        self.swift = 0
        # How many of these requests were not parsed, because the previous header block was identical.
        self.swift_again = 0
        # The number of event streams that were written there from beginning to end.
        self.swift_streams = 0
        # The decision that was made before a request reached this wrapper, and the request's body.
        self.decided: WeakKeyDictionary[Any, bytes] = WeakKeyDictionary()
        self.fast_path = None if fast_path is None else TappedFastPath(self, fast_path)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan" or not MCP_PATH.fullmatch(scope["path"]):
            await self._app(scope, receive, send)
            return
        socket_record: Exchange | Socket = Exchange(self, scope) if scope["type"] == "http" else Socket(self)
        conduit = (scope.get("extensions") or {}).get(CONDUIT)
        if conduit is not None:
            scope = {**scope, "extensions": {**scope["extensions"], CONDUIT: Conduit(socket_record, conduit)}}
        body = self.decided.get(scope["tabrelay.outcome"]) if "tabrelay.outcome" in scope else None
        if body is not None:  # it was read before the request reached this wrapper
            socket_record.received({"type": "http.request", "body": body})
        if scope.get("tabrelay.streaming"):
            scope["tabrelay.outcome"].owner.tell_stream(socket_record)

        async def receive_and_record() -> Any:
            message = await receive()
            if body is None:
                socket_record.received(message)
            return message

        async def say(message: Any) -> None:
            socket_record.said(message)
            await send(message)

        await self._app(scope, receive_and_record, say)


class TappedFastPath:
    """Records the relay's fast path, where requests are answered without ASGI."""

    def __init__(self, tap: Tap, fast_path: Any) -> None:
        self._tap = tap
        self._fast_path = fast_path
        self._scopes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fast_path, name)

    def decide(self, server: str, request: Any, principal: Any, body: bytes, scope: Any) -> Any:
        is_known = request.verified is not None
        outcome = self._fast_path.decide(server, request, principal, body, scope)
        headers = [(name, value.encode("latin-1")) for name in READ for value in request.all.get(name, ())]
        self._tap.decided[outcome] = body
        self._scopes[outcome] = {"method": "POST", "path": f"/{server}", "headers": headers}
        if hasattr(outcome, "status") and request.admission.origin is None:  # it is already complete
            self._record(outcome, outcome.headers, outcome.body)
        if hasattr(outcome, "owner"):
            outcome.owner = TappedOwner(self, outcome, outcome.owner)
        self._tap.swift_again += is_known and hasattr(outcome, "call")
        return outcome

    def record_response(self, pending: Any, headers: Any, body: bytes) -> None:
        self._record(pending, headers, body)
        self._tap.swift += 1

    def record_stream(self, pending: Any, owner: TappedOwner, body: bytes) -> None:
        socket_record = Exchange(self._tap, self._scopes[pending])
        socket_record.received({"type": "http.request", "body": self._tap.decided[pending]})
        owner.tell_stream(socket_record)
        socket_record.said({"type": "http.response.body", "body": event_of(body)})
        self._tap.swift_streams += 1

    def _record(self, outcome: Any, headers: Any, body: bytes) -> None:
        socket_record = Exchange(self._tap, self._scopes[outcome])
        socket_record.received({"type": "http.request", "body": self._tap.decided[outcome]})
        socket_record.said({"type": "http.response.start", "headers": headers})
        socket_record.said({"type": "http.response.body", "body": body})


class TappedOwner:
    """Records the answers of a call's owner on the fast path."""

    def __init__(self, fast_path: TappedFastPath, pending: Any, owner: Any) -> None:
        self._fast_path = fast_path
        self._pending = ref(pending)
        self._owner = owner
        self._events: list[bytes] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._owner, name)

    @property
    def stream_headers(self) -> Any:
        """Is read for each notice that is written."""
        headers = self._owner.stream_headers
        pending = self._pending()
        if headers is not None and pending is not None:
            self._events.append(event_of(pending.peek().payload.encode()))
        return headers

    def tell_stream(self, socket_record: Exchange) -> None:
        """The beginning of a stream that was written on the fast path."""
        socket_record.said({"type": "http.response.start", "headers": self._owner.stream_headers})
        for event in self._events:
            socket_record.said({"type": "http.response.body", "body": event, "more_body": True})

    def response(self, pending: Any, reply: Any) -> Any:
        status, headers, body = self._owner.response(pending, reply)
        if self._events:
            self._fast_path.record_stream(pending, self, body)
        else:
            self._fast_path.record_response(pending, headers, body)
        return status, headers, body


def event_of(payload: bytes) -> bytes:
    return b"event: message\ndata: " + payload + b"\n\n"


class Conduit:
    """Records what a WebSocket sends and receives past ASGI."""

    def __init__(self, socket_record: Any, conduit: Any) -> None:
        self._ear = socket_record
        self._conduit = conduit

    def start_direct(self, take: Any) -> None:
        def record(text: str) -> None:
            self._ear.received({"type": "websocket.receive", "text": text})
            take(text)

        self._conduit.start_direct(record)

    def end_direct(self) -> None:
        self._conduit.end_direct()

    def try_write(self, texts: Sequence[str]) -> bool:
        is_written: bool = self._conduit.try_write(texts)
        for text in texts if is_written else ():
            self._ear.said({"type": "websocket.send", "text": text})
        return is_written


def _key(id: Any) -> str:
    return json.dumps(id)


class Exchange:
    """One HTTP request: its caller, its version, and the response."""

    def __init__(self, tap: Tap, scope: Any) -> None:
        self._tap = tap
        self._path, self._verb = scope["path"], scope["method"]
        headers = {key.decode("latin-1"): value.decode("latin-1").strip() for key, value in scope["headers"]}
        query = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        self._session = headers.get("mcp-session-id") or query.get("session_id", [""])[0]
        self._header = headers.get("mcp-protocol-version", "")
        self._agent = headers.get("user-agent", "")
        self._envelope = ""
        self._methods: dict[str, str] = {}
        self._in = self._out = b""
        self._kind = ""
        self._opened = ""
        if self._verb != "POST":
            self._ask(None)

    @property
    def version(self) -> str:
        known = self._tap.versions.get(self._session)
        for version in (self._envelope, known, self._header):
            if version in VERSIONS:
                return str(version)
        return NEWEST_LEGACY

    def _ask(self, method: str | None) -> None:
        about = {"verb": self._verb, "path": self._path, "agent": self._agent, "session": bool(self._session)}
        said = {"method": method, "header": self._header, "envelope": self._envelope}
        self._tap.note({"asked": about | said})

    def received(self, message: Any) -> None:
        if message["type"] != "http.request":
            return
        self._in += message.get("body", b"")
        if message.get("more_body") or self._verb != "POST":
            return
        try:
            found = json.loads(self._in)
        except (ValueError, RecursionError):
            return
        for one in found if isinstance(found, list) else [found]:
            if isinstance(one, dict):
                self._received(one)

    def _received(self, message: dict[str, Any]) -> None:
        method, params = message.get("method"), message.get("params")
        meta = params.get("_meta") if isinstance(params, dict) else None
        if isinstance(meta, dict) and isinstance(meta.get(META_VERSION), str):
            self._envelope = meta[META_VERSION]
        if isinstance(method, str) and "id" in message:
            self._methods[_key(message["id"])] = method
            self._tap.asked[self._session, _key(message["id"])] = method
        self._ask(method if isinstance(method, str) else None)

    def said(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            headers = {key.decode().lower(): value.decode() for key, value in message["headers"]}
            self._kind = headers.get("content-type", "")
            self._opened = headers.get("mcp-session-id", "")
            return
        self._out += message.get("body", b"")
        if self._kind == "application/json" and not message.get("more_body") and self._out:
            found = json.loads(self._out)
            for one in found if isinstance(found, list) else [found]:
                self._say(one)
        elif self._kind == "text/event-stream":
            *whole, self._out = self._out.split(b"\n\n")
            for event in whole:
                self._event(event.decode())

    def _event(self, event: str) -> None:
        for line in event.splitlines():
            name, _, data = line.partition(": ")
            if name == "data" and data.startswith("/") and self._path.endswith("/sse"):
                self._session = data.rpartition("session_id=")[2]
            elif name == "data" and data:
                self._say(json.loads(data))

    def _say(self, message: Any) -> None:
        method = None
        if isinstance(message, dict) and "method" not in message:
            key = _key(message.get("id"))
            method = self._methods.get(key) or self._tap.asked.get((self._session, key))
            if method == "initialize" and "result" in message:
                version = message["result"].get("protocolVersion")
                self._tap.versions[self._opened or self._session] = version
                self._session = self._session or self._opened
        self._tap.note({"to": "client", "version": self.version, "method": method, "message": message})


class Socket:
    """One WebSocket of a browser: a link, or the socket of a plain page."""

    def __init__(self, tap: Tap) -> None:
        self._tap = tap
        self._is_link = False
        self._is_fake = False
        # Large frames arrive in slices: (is it the relay's?, number) -> the header of the whole frame, and the part
        # that has arrived.
        self._large: dict[tuple[bool, int], tuple[dict[str, Any], list[str]]] = {}

    def received(self, message: Any) -> None:
        text = message.get("text")
        if message["type"] == "websocket.receive" and text and self._is_link:
            self._frame(text, is_ours=False)

    def said(self, message: Any) -> None:
        if message["type"] == "websocket.accept":
            self._is_link = (message.get("subprotocol") or "").startswith("tabrelay")
        elif message["type"] == "websocket.send" and self._is_link:
            self._frame(message["text"], is_ours=True)
        elif message["type"] == "websocket.send":
            self._note("server", NEWEST_LEGACY, None, json.loads(message["text"]))

    def _frame(self, text: str, *, is_ours: bool) -> None:
        header, _, payload = text.partition("\n")
        try:
            frame = json.loads(header)
        except ValueError:
            return  # the relay refuses it
        kind = frame.get("t") if isinstance(frame, dict) else None
        if kind == "hello":
            self._is_fake = frame.get("build") == FAKE_BUILD
        elif kind == "part" and "f" in frame:
            self._slice(frame, payload, is_ours=is_ours)
        elif kind in ("open", "msg"):
            self._message(frame, payload, is_ours=is_ours)

    def _slice(self, frame: dict[str, Any], payload: str, *, is_ours: bool) -> None:
        key = (is_ours, frame["f"])
        if frame["q"] == 0:
            self._large[key] = (frame["h"], [])
        if key not in self._large:
            return  # it began on an earlier socket
        header, slices = self._large[key]
        slices.append(payload)
        if len(slices) == frame["n"]:
            del self._large[key]
            self._message(header, "".join(slices), is_ours=is_ours)

    def _message(self, frame: dict[str, Any], payload: str, *, is_ours: bool) -> None:
        channel = frame.get("c", "")
        if is_ours and isinstance(frame.get("o"), dict):
            self._tap.callers[channel] = frame["o"]
        caller = self._tap.callers.get(channel)
        if frame["t"] == "open" or caller is None or (self._is_fake and not is_ours):
            return
        message = json.loads(payload)
        if is_ours:
            self._ours(channel, caller, message)
        else:
            method = self._tap.called.get((channel, _key(message.get("id")))) if "method" not in message else None
            self._note("relay", caller["version"], method, message)

    def _ours(self, channel: str, caller: dict[str, Any], message: dict[str, Any]) -> None:
        if "method" in message and "id" in message:
            self._tap.called[channel, _key(message["id"])] = message["method"]
        is_own = caller["principal"] == "relay" or str(message.get("id", "")).startswith("tabrelay-")
        if is_own or message.get("method") == "notifications/cancelled":
            self._note("server", caller["version"], None, message)

    def _note(self, to: str, version: str, method: str | None, message: Any) -> None:
        self._tap.note({"to": to, "version": version, "method": method, "message": message})
