"""The MCP core with everything that it sends recorded and checked against the official models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from tabserver.handlers.context import Cancel
from tabserver.handlers.toolbox import Toolbox
from tabserver.mcp.call import RunningCall
from tabserver.mcp.kept_tasks import TaskStore
from tabserver.mcp.server import Server, ToolCatalogue
from tabserver.wire.eras import META_CAPABILITIES, META_CLIENT, META_VERSION, Era
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Caller, Kind
from tabserver.wire.jsonrpc import RequestId
from tests.support.official_models import check_note, check_request, check_response
from tests.support.waiting import BOUND_S

READY = Caller(Era.LEGACY, "2025-06-18", "token:test", ready=True)
MODERN = Caller(Era.MODERN, "2026-07-28", "token:test", {"name": "tester", "version": "1"})

Sent = tuple[str, Kind, Any, RequestId | None, RequestId | None]


class BoxCatalogue:
    """The handlers of a toolbox, without tabs."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box
        self.resources, self.templates, self.prompts = box.resources, box.templates, box.prompts
        self.has_resource = box.has_resource

    def tools(self) -> list[dict[str, Any]]:
        return self._box.tools()

    def task_support(self, name: str) -> str | None:
        found = (tool for tool in self._box.tools() or () if tool["name"] == name)
        return next((tool.get("execution", {}).get("taskSupport") for tool in found), None)

    def call(self, name: str, arguments: dict[str, Any], call: RunningCall) -> Cancel:
        return self._box.call(name, arguments, call, call.finish)

    def read(self, uri: str, call: RunningCall) -> Cancel:
        return self._box.read(uri, call, call.finish)

    def get_prompt(self, name: str, arguments: Mapping[str, str], call: RunningCall) -> Cancel:
        return self._box.get_prompt(name, arguments, call, call.finish)

    def complete_prompt(
        self, name: str, argument: str, typed: str, others: Mapping[str, str], call: RunningCall
    ) -> Cancel:
        return self._box.complete_prompt(name, argument, typed, others, call, call.finish)

    def complete_resource(
        self, uri: str, argument: str, typed: str, others: Mapping[str, str], call: RunningCall
    ) -> Cancel:
        return self._box.complete_resource(uri, argument, typed, others, call, call.finish)


class CoreHarness:
    """A core and everything that it has sent: (channel, kind, message, id, related). `now` is its clock."""

    def __init__(
        self,
        catalogue: ToolCatalogue | Toolbox,
        instructions: str | None = None,
        *,
        census: Any = None,
        store: TaskStore | None = None,
    ) -> None:
        self.sent: list[Sent] = []
        self.refuse: Callable[[Kind, str], None] = lambda kind, text: None
        self.now = 0.0
        given = BoxCatalogue(catalogue) if isinstance(catalogue, Toolbox) else catalogue
        more = {} if census is None else {"census": census}
        self.server = Server("demo", "1.2", given, self._send, instructions, lambda: self.now, store=store, **more)
        self.receive = self.server.receive
        self._versions: dict[str, str] = {}
        self._methods: dict[tuple[str, RequestId], str] = {}
        self._said = asyncio.Event()

    def _send(
        self, channel: str, kind: Kind, text: str, id: RequestId | None = None, related: RequestId | None = None
    ) -> None:
        assert "\n" not in text
        self.refuse(kind, text)
        message, version = json.loads(text), self._versions[channel]
        if kind is Kind.NOTE:
            check_note(version, message)
        elif kind is Kind.REQ:
            check_request(version, message)
            assert message["id"] == id
        else:
            assert id is not None and message["id"] == id
            check_response(version, self._methods.get((channel, id), ""), message)
        self.sent.append((channel, kind, message, id, related))
        self._said.set()

    # -- messages to the core ------------------------------------------------------------------------------------------

    def open(self, caller: Caller = READY, channel: str = "c") -> None:
        self._versions[channel] = caller.version
        self.receive(Opened(channel, caller))

    def close(self, channel: str = "c", why: str = "gone") -> None:
        self.receive(Closed(channel, why))

    def note(self, method: str, params: Any = None, channel: str = "c") -> None:
        text = json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}})
        self.receive(Received(channel, Kind.NOTE, None, None, text, None))

    def request(
        self, method: str, params: Any = None, id: RequestId = 1, channel: str = "c", caller: Caller | None = None
    ) -> Any:
        """Send a request; returns the answer, or None while there is none."""
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        self._methods[channel, id] = method
        return self.raw(json.dumps(message), id, channel, caller)

    def raw(self, text: str, id: RequestId = 1, channel: str = "c", caller: Caller | None = None) -> Any:
        before = len(self.sent)
        if caller is not None:
            self._versions[channel] = caller.version
        self.receive(Received(channel, Kind.REQ, id, None, text, caller))
        mine = (channel, Kind.RES, id)
        return next((message for c, kind, message, of, _ in self.sent[before:] if (c, kind, of) == mine), None)

    def modern(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        id: RequestId = 1,
        channel: str = "m",
        caller: Caller = MODERN,
    ) -> Any:
        return self.request(method, {"_meta": {}} | (params or {}), id, channel, caller)

    def answer(self, id: str, result: Any, channel: str = "c") -> None:
        """Send a client's answer to a question of the server."""
        text = json.dumps({"jsonrpc": "2.0", "id": id} | result)
        self.receive(Received(channel, Kind.RES, None, None, text, None))

    # -- messages of the core ------------------------------------------------------------------------------------------

    def notes(self) -> list[tuple[str, Any, RequestId | None]]:
        return [(m["method"], m.get("params"), related) for _, kind, m, _, related in self.sent if kind is Kind.NOTE]

    async def until(self, kind: Kind, count: int = 1, channel: str | None = None) -> list[Any]:
        """Wait until it has sent this many messages of a kind; returns them all."""
        async with asyncio.timeout(BOUND_S):
            while True:
                found = [m for c, k, m, _, _ in self.sent if k is kind and channel in (None, c)]
                if len(found) >= count:
                    return found
                self._said.clear()
                await self._said.wait()

    async def reply(self, channel: str) -> Any:
        """The answer on a channel that has one request: its result, or its error."""
        (message,) = await self.until(Kind.RES, 1, channel)
        return message.get("result", message.get("error"))

    async def ask(self, channel: str, method: str, params: dict[str, Any], caller: Caller = MODERN) -> Any:
        """Send a whole modern request and return its answer."""
        meta = {META_VERSION: caller.version, META_CAPABILITIES: caller.capabilities, META_CLIENT: caller.client}
        self.modern(method, {"_meta": meta} | params, channel=channel, caller=caller)
        return await self.reply(channel)
