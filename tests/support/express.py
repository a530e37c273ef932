"""What js/express.js does, in Python: for scenes that are played without a browser."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tabserver.express import Express
from tabserver.hub import Hub
from tabserver.lane import Lane
from tabserver.outbox import passed_on
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Caller, Kind
from tabserver.wire.jsonrpc import RequestId
from tests.support.port import FakePort

Event = Opened | Received[str] | Closed
Like = tuple[str, str, str]


class OpenTransport:
    """Whatever comes is expected, and whatever was written is passed on."""

    taken, turn = 0, 1

    def __init__(self, send: Callable[..., None]) -> None:
        self.send = send

    def expects(self, seq: int, upto: int, channel: str) -> bool:
        return True

    def take(self, upto: int, channel: str, id: RequestId, size: int) -> None: ...

    def served(self, upto: int, size: int, channel: str, id: RequestId, payload: str) -> None: ...

    def wrote(self, channel: str, id: RequestId, payload: str) -> None: ...

    def wind_up(self) -> None: ...


class Carrier:
    """Stands in front of a lane. `carried`: how many calls and answers went by it."""

    def __init__(self, hub: Hub, lane: Lane, send: Callable[..., None]) -> None:
        self._hub, self._lane, self._send = hub, lane, send
        self._grants: dict[Like, tuple[FakePort | None, int, str, str]] = {}
        self._granted: list[tuple[FakePort | None, int, str, str]] = []
        self._calls: dict[str, tuple[FakePort, str, RequestId, str]] = {}
        self.carried = 0
        transport: Any = OpenTransport(send)
        self._books = Express(hub, lane, transport, self._allow, self._revoke)

    def listen(self, port: FakePort) -> None:
        port.allow = lambda number, channel, words, meta: self._allow(number, channel, meta, port, words)  # type: ignore[method-assign]

    def receive(self, event: Event) -> None:
        like = _like(event)
        grant = None if like is None else self._grants.get(like)
        if grant is None or not isinstance(event, Received) or not self._carry(grant, event):
            self._granted.clear()
            self._lane.receive(event)
            if like is not None and self._granted:
                self._grants[like] = self._granted[-1]

    def answer(self, port: FakePort, name: str, text: str, is_plain: bool) -> bool:
        call = self._calls.get(name)
        if call is None or call[0] is not port:
            return False
        _, channel, id, meta = self._calls.pop(name)
        if not is_plain or len(text) > 1000:
            return False
        self._send(channel, Kind.RES, passed_on(id, text, meta), id=id)
        self._books.answered(name, text)
        self.carried += 1
        return True

    def _carry(self, grant: tuple[FakePort | None, int, str, str], event: Received[str]) -> bool:
        port, number, words, meta = grant
        assert event.id is not None
        if port is not None:
            name = f"x{self.carried}"
            port.post(f'{{"t":"call","call":"{name}",{words},"request":{event.payload}}}')
            self._calls[name] = port, event.channel, event.id, meta
            self._books.sent(number, 1, 0, event.channel, event.id, name, 0, event.payload)
        else:
            result = self._books.run(number, 1, 0, event.channel, event.id, 0, event.payload)
            if result is None:
                return False
            if result:
                self._send(event.channel, Kind.RES, passed_on(event.id, result, meta), id=event.id)
                self._books.ran(True)
        self.carried += 1
        return True

    def _allow(self, number: int, channel: str, meta: str, port: FakePort | None = None, words: str = "") -> None:
        self._granted.append((port, number, words, meta))

    def _revoke(self) -> None:
        self._grants.clear()
        self._calls.clear()
        self._granted.clear()


def _like(event: Event) -> Like | None:
    """See readCall in js/plain.js."""
    if not isinstance(event, Received) or not isinstance(event.caller, Caller) or event.again:
        return None
    try:
        message = json.loads(event.payload)
        params = message["params"]
        given, meta = params["arguments"], params["_meta"]
        is_plain = message["method"] == "tools/call" and message["id"] == event.id and message["jsonrpc"] == "2.0"
    except (ValueError, TypeError, KeyError):
        return None
    if not is_plain or type(message["id"]) is not type(event.id) or params.keys() != {"name", "arguments", "_meta"}:
        return None
    if not isinstance(given, dict) or not isinstance(meta, dict) or "_tab" in given or "NaN" in event.payload:
        return None
    return str(params["name"]), json.dumps(meta), event.caller.text
