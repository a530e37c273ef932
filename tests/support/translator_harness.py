"""A translator between modern calls and a fake legacy peer: the test controls both sides."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import orjson

from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import RelayError
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls
from tabrelay.translation.to_legacy import ModernToLegacy
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.waiting import BOUND_S

INFO = {"name": "old", "version": "1"}
ABOUT: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {
        "tools": {"listChanged": True},
        "prompts": {},
        "resources": {"subscribe": True},
        "logging": {},
        "tasks": {"list": {}},
    },
    "serverInfo": INFO,
    "instructions": "Be brief.",
}
ABLE: dict[str, Any] = {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}
FORM = {"message": "Name?", "requestedSchema": {"type": "object", "properties": {}}}


class RecordingPeer:
    """A legacy server that does nothing by itself: the test sends for it."""

    def __init__(self) -> None:
        self.server = "notes"
        self.about = ABOUT
        self.started: list[Pending] = []
        self.cancelled: list[tuple[Pending, str]] = []
        self.sent: list[dict[str, Any]] = []
        self.ended: list[str] = []
        self.sinks: dict[str, Callable[[Notice], None]] = {}
        self.refuses: RelayError | None = None
        self.pings: list[Pending] = []
        self.answers_pings = True
        self._changed = asyncio.Event()

    def start(self, pending: Pending) -> None:
        if self.refuses is not None:
            raise self.refuses
        assert pending.call.caller.era is Era.LEGACY
        if pending.call.method == methods.PING:
            self.pings.append(pending)
            if self.answers_pings:
                self.result({}, pending)
            return
        self.started.append(pending)

    def cancel(self, pending: Pending, why: str) -> None:
        self.cancelled.append((pending, why))
        self._changed.set()

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        self.sent.append(orjson.loads(payload))
        self._changed.set()

    def end(self, channel: str, why: str) -> None:
        self.ended.append(channel)
        self.sinks.pop(channel, None)

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self.sinks[channel] = sink

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    # -- messages of the server ----------------------------------------------------------------------------------------

    @property
    def last(self) -> Pending:
        return self.started[-1]

    def request(self, number: int = -1) -> dict[str, Any]:
        message: dict[str, Any] = orjson.loads(self.started[number].call.payload)
        return message

    def result(self, result: Any, pending: Pending | None = None) -> None:
        pending = pending or self.last
        pending.end(Reply(orjson.dumps(jsonrpc.result_message(pending.call.id, result)).decode()))

    def error(self, code: int, data: Any = None) -> None:
        error = {"code": code, "message": "no"} | ({} if data is None else {"data": data})
        message = {"jsonrpc": "2.0", "id": self.last.call.id, "error": error}
        self.last.end(Reply(orjson.dumps(message).decode(), code))

    def send_notification(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.last.notify(Notice(orjson.dumps(jsonrpc.notification(method, params)).decode()))

    def ask(self, id: str = "q1", method: str = "elicitation/create", params: dict[str, Any] | None = None) -> None:
        asked = FORM if params is None else params
        self.last.notify(Notice(orjson.dumps(jsonrpc.request(id, method, asked)).decode()))


class TranslatorHarness:
    """A translator, its peer, and clients that make modern calls."""

    def __init__(self, ttl_s: float = 600, most: int = 2) -> None:
        self.peer = RecordingPeer()
        self.parking: ParkedCalls[LegacyCall] = ParkedCalls(ttl_s=ttl_s, most=most)
        self.translator = ModernToLegacy(self.peer, self.parking)
        self._numbers = itertools.count(1)

    def call(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        principal: str = "me",
        capabilities: dict[str, Any] = ABLE,
        meta: dict[str, Any] | None = None,
    ) -> Pending:
        number = next(self._numbers)
        whole = {eras.META_VERSION: "2026-07-28", eras.META_CAPABILITIES: capabilities, eras.META_CLIENT: INFO}
        message = jsonrpc.request(f"r{number}", method, {**(params or {}), "_meta": {**whole, **(meta or {})}})
        caller = Caller(Era.MODERN, "2026-07-28", principal, INFO, capabilities)
        pending = Pending(Call(f"c{number}", f"r{number}", method, orjson.dumps(message).decode(), caller))
        self.translator.start(pending)
        return pending

    def tool(self, *, answers: Any = None, state: Any = None, **more: Any) -> Pending:
        extra = {} if state is None else {"requestState": state}
        extra |= {} if answers is None else {"inputResponses": answers}
        return self.call("tools/call", {"name": "greet", "arguments": {"a": 1}, **extra}, **more)

    async def asked(self, pending: Pending) -> tuple[dict[str, Any], str]:
        """The questions and the request state in the answer to a call."""
        result = (await reply(pending))["result"]
        assert result["resultType"] == "input_required"
        return result["inputRequests"], result["requestState"]


async def reply(pending: Pending) -> dict[str, Any]:
    async with asyncio.timeout(BOUND_S):
        while True:
            event = await pending.next()
            if isinstance(event, Reply):
                message: dict[str, Any] = orjson.loads(event.payload)
                assert message["id"] == pending.call.id
                assert event.error_code == message.get("error", {}).get("code")
                return message


async def notices(pending: Pending) -> list[dict[str, Any]]:
    """The notifications so far, without waiting."""
    found = []
    while isinstance(event := await pending.next(0), Notice):
        found.append(orjson.loads(event.payload))
    return found
