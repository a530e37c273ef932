"""Fake of js/worker/granted_calls.js in Python, for tests without a browser."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from tabserver.handlers.toolbox import Toolbox
from tabserver.mcp.server import Server
from tabserver.mcp.sessions import written_response
from tabserver.tabs.hub import Hub
from tabserver.tabs.tab import TabReadState
from tabserver.transport.connection import LinkSession
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Caller, Kind
from tabserver.wire.jsonrpc import RequestId
from tabserver.worker.js_calls import MAX_RESULT_CHARACTERS, CallGrants, JsCallRecorder
from tests.support.fake_port import FakePort

Event = Opened | Received[str] | Closed
Pattern = tuple[str, str, str]
# Writes an answer: sequence number, acknowledged number, channel, id and payload.
Write = Callable[[int, int, str, RequestId, str], None]

PLAIN_ID = re.compile(r'[^"\\\x00-\x1f\x7f-\U0010ffff]*')


class Grant(NamedTuple):
    port: FakePort | None
    number: int
    channel: str
    words: str
    meta: str
    has_rivals: bool


class FakeJsCalls:
    """Carries out granted calls and returns their records. `carried`: the number of calls and answers."""

    def __init__(
        self, write: Write, now_ms: Callable[[], float], server: str, version: str, longest: int = MAX_RESULT_CHARACTERS
    ) -> None:
        self._write, self._longest, self._now_ms = write, longest, now_ms
        info = {"name": server, "version": version}
        self.grants = CallGrants(self, info, lambda entries: self.recorder.record(entries))
        self.recorder: JsCallRecorder
        self._grants: dict[Pattern, Grant] = {}
        self._granted: list[Grant] = []
        self._calls: dict[str, tuple[Grant, str, RequestId]] = {}
        self._read_states: dict[FakePort, TabReadState] = defaultdict(TabReadState)
        self._received: Grant | None = None
        self._count = 0
        self._next_seq = 0
        self.next = 1
        self._request_count = self._size = self._upto = self._acknowledged = 0
        self._sent: dict[str, str] = {}
        self._answers: list[str] = []
        self.carried = self.revoked = 0

    def new_hub(self, box: Toolbox, later: Callable[[float, Callable[[], None]], None]) -> Hub:
        """A hub whose timers fire after finished calls are recorded, as in the worker."""
        return Hub(
            box,
            now_ms=self._now_ms,
            defer=lambda due: None,
            later=lambda delay_ms, ring: later(delay_ms, self.grants.after_sync(ring)),
            grants=self.grants,
        )

    def use_worker(self, hub: Hub, core: Server, session: LinkSession[str]) -> None:
        self.recorder = JsCallRecorder(self.grants, core, hub.calls, session)
        # As in JavaScript, records are applied before any other message.
        for name in ("receive", "receive_result", "attach", "detach"):
            setattr(hub, name, self._after(getattr(hub, name)))

    def _after(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self.sync()
            if function.__name__ == "receive":
                self._receive(args[0], args[1].get("call"), args[1].get("t") == "pong")
            elif function.__name__ == "receive_result":
                self._receive(args[0], args[1])
            return function(*args, **more)

        return call

    def listen(self, port: FakePort) -> None:
        post = port.post

        def allow(number: int, channel: str, words: str, meta: str, has_rivals: bool) -> None:
            self.allow(port, number, channel, words, meta, has_rivals)

        def count(text: str) -> None:
            message = json.loads(text)
            if message["t"] == "call":
                self._read_states[port].unread[message["call"]] = False
            elif message["t"] == "ping":
                self._read_states[port].pinged()
            post(text)

        port.allow, port.post = allow, count  # type: ignore[method-assign]

    def _receive(self, port: FakePort, call: str | None, is_pong: bool = False) -> None:
        self._read_states[port].received(self._now_ms(), call)
        if is_pong:
            self._read_states[port].received_pong()

    def use(self) -> None:
        """Switch to a new socket."""
        self.forget()
        self.next = 0

    def receive(self, event: Event, seq: int, upto: int, size: int, receive: Callable[[], int]) -> None:
        """Handle a frame. `receive` delivers it to Python and returns the number of the last received frame."""
        pattern = _pattern(event)
        grant = None if pattern is None else self._grants.get(pattern)
        if grant is not None and isinstance(event, Received) and seq == self.next:
            assert event.id is not None
            if self._carry(grant, event, event.id, upto, size):
                self.carried += 1
                return
        self.sync()
        self._granted, self._next_seq = [], 0
        self.next = receive() + 1
        if pattern is not None and self._granted and self._granted[-1].channel == event.channel:
            self._grants[pattern] = self._granted[-1]

    def answer(self, port: FakePort, name: str, text: str, is_plain: bool) -> bool:
        call = self._calls.get(name)
        if call is None or call[0].port is not port:
            return False
        grant, channel, id = self._calls.pop(name)
        if not is_plain or len(text) > self._longest or not self._may_write():
            return False
        self._receive(port, name)
        self._received = grant if grant.has_rivals else None
        self._write_answer(grant, channel, id, text)
        is_new = self._sent.pop(name, None) is not None
        self._answers.append(_served(grant, channel, id, text) if is_new else f"answered\n{name}\n{text}")
        self.carried += 1
        return True

    def _carry(self, grant: Grant, event: Received[str], id: RequestId, upto: int, size: int) -> bool:
        if grant.port is not None:
            state = self._read_states[grant.port]
            if grant.has_rivals and (state.pings or not state.has_room(self._now_ms())):
                return False
            self._count += 1
            name = f"x{self._count}"
            grant.port.post(f'{{"t":"call","call":"{name}",{grant.words},"request":{event.payload}}}')
            self._calls[name] = grant, event.channel, id
            entry = grant.number, name, self._now_ms(), event.channel, json.dumps(id), event.payload
            self._sent[name] = "\n".join(map(str, ("sent", *entry)))
            self._count_request(upto, size)
            return True
        if not self._may_write() or upto >= self._next_seq:
            return False
        result = self.recorder.run(grant.number, json.dumps(json.loads(event.payload)["params"]["arguments"]))
        if result is None:
            return False
        if result == "" or self._next_seq == 0:
            self.next += 1
            self.recorder.finish(upto, event.channel, json.dumps(id), size, event.payload, result)
            return True
        self._count_request(upto, size)
        self._write_answer(grant, event.channel, id, result)
        self._answers.append(_served(grant, event.channel, id, result))
        return True

    def _count_request(self, upto: int, size: int) -> None:
        self.next += 1
        self._request_count += 1
        self._size += size
        self._upto = upto

    def _may_write(self) -> bool:
        self._next_seq = self._next_seq or self.recorder.next_seq()
        return self._next_seq > 0

    def _write_answer(self, grant: Grant, channel: str, id: RequestId, text: str) -> None:
        self._acknowledged = self.next - 1
        self._write(self._next_seq, self._acknowledged, channel, id, written_response(id, text, grant.meta))
        self._next_seq += 1

    def sync(self) -> None:
        if entries := self.unrecorded():
            self._next_seq = self.recorder.record(entries)

    # -- called by Python ----------------------------------------------------------------------------------------------

    def unrecorded(self) -> str:
        self._next_seq = 0
        if not self._request_count and not self._answers:
            return ""
        numbers = f"{self._request_count} {self._size} {self._upto} {self._acknowledged}"
        lines = [numbers, *self._answers, *self._sent.values()]
        if self._received is not None and self._received.port is not None:
            state = self._read_states[self._received.port]
            lines.append(f"received\n{self._received.number}\n{state.received_ms}\n{state.window}")
            self._received = None
        self._request_count = self._size = self._upto = self._acknowledged = 0
        self._answers, self._sent = [], {}
        return "\n".join(lines)

    def allow(
        self, port: FakePort | None, number: int, channel: str, words: str, meta: str, has_rivals: bool, /
    ) -> None:
        self._granted.append(Grant(port, number, channel, words, meta, has_rivals))

    def revoke(self) -> None:
        self.revoked += 1
        self.forget()

    def forget(self) -> None:
        assert not self._request_count and not self._answers, "Python has not recorded all calls"
        self._grants.clear()
        self._calls.clear()
        self._granted, self._next_seq = [], 0


def _served(grant: Grant, channel: str, id: RequestId, text: str) -> str:
    return f"served\n{grant.number}\n{channel}\n{json.dumps(id)}\n{text}"


def _pattern(event: Event) -> Pattern | None:
    """See js/worker/plain_calls.js."""
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
    if not PLAIN_ID.fullmatch(str(event.id)) or event.kind is not Kind.REQ:
        return None
    return str(params["name"]), json.dumps(meta), event.caller.text
