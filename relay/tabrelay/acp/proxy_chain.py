"""Routing through ACP proxies: which component gets a message next, and in which envelope.

    editor ── proxy 0 ── proxy 1 ── … ── agent

A proxy exchanges plain messages with its predecessor. Messages to and from its successor are wrapped in
`proxy/successor`, since it has only one connection: to the conductor. Without proxies every message passes unchanged.
Pure: it takes messages and returns steps, which the conductor carries out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from tabrelay.acp import json_edit
from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage, RequestIds
from tabrelay.acp.router import CANCEL, MAX_WAITING, with_capability
from tabrelay.bridge.messages import Key, key
from tabserver.wire import jsonrpc

SUCCESSOR: Final = frozenset({"proxy/successor", "_proxy/successor"})
CURRENT: Final = "proxy/"
FIRST: Final = "_proxy/"


@dataclass(frozen=True, slots=True)
class ToEditor:
    raw: bytes


@dataclass(frozen=True, slots=True)
class ToProxy:
    place: int
    raw: bytes


@dataclass(frozen=True, slots=True)
class ToAgent:
    message: AcpMessage


Step = ToEditor | ToProxy | ToAgent


@dataclass(eq=False, slots=True)
class ProxyState:
    """State of one proxy. `prefix`: the beginning of its method names, `proxy/` or `_proxy/`."""

    prefix: str
    is_prefix_known: bool = False
    initializing: dict[Key, AcpMessage] = field(default_factory=dict)
    # Requests of its successor, sent to it with ids of the conductor: our id -> the original id. The proxy also gets
    # requests of the editor, and the two number their requests independently.
    renumbered: dict[str, str] = field(default_factory=dict)
    # The proxy's requests to its successor.
    sent: set[Key] = field(default_factory=set)


class ProxyChain:
    def __init__(self, count: int, ids: RequestIds, prefix: str | None = None) -> None:
        """`prefix`: the beginning of the method names if the user chose it; otherwise detected for each proxy."""
        self._ids = ids
        self._proxies = [ProxyState(prefix or CURRENT, prefix is not None) for _ in range(count)]
        self._initialize_keys: set[Key] = set()
        self._waiting: dict[Key, str] = {}  # requests of the editor without an answer

    # -- down ----------------------------------------------------------------------------------------------------------

    def from_editor(self, message: AcpMessage) -> list[Step]:
        if self._proxies and message.is_request:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
            self._waiting[message.key] = message.id_text
            if message.method == "initialize":
                self._initialize_keys.add(message.key)
        return self._down(0, message)

    def _down(self, place: int, message: AcpMessage) -> list[Step]:
        """To the component at `place`, from its predecessor."""
        if place == len(self._proxies):
            return [ToAgent(message)]
        if message.is_request and message.method == "initialize":
            proxy = self._proxies[place]
            proxy.initializing[message.key] = message
            return [ToProxy(place, _initialize_for(message, proxy.prefix))]
        return [ToProxy(place, message.raw)]

    # -- from a proxy --------------------------------------------------------------------------------------------------

    def from_proxy(self, place: int, message: AcpMessage) -> list[Step]:
        proxy = self._proxies[place]
        if message.value is None:
            return []
        if message.is_response:
            return self._answered(place, proxy, message)
        if message.method in SUCCESSOR:
            return self._forwarded(place, proxy, message)
        if message.method == CANCEL and key(message.params.get("requestId")) in proxy.sent:
            return self._down(place + 1, message)
        return self._up(place - 1, message)

    def _answered(self, place: int, proxy: ProxyState, message: AcpMessage) -> list[Step]:
        if isinstance(message.id, str) and message.id in proxy.renumbered:
            return self._down(place + 1, message.with_id(proxy.renumbered.pop(message.id)))
        greeting = proxy.initializing.pop(message.key, None)
        if greeting is not None and message.error_code == jsonrpc.METHOD_NOT_FOUND and not proxy.is_prefix_known:
            proxy.prefix, proxy.is_prefix_known = FIRST, True
            proxy.initializing[message.key] = greeting
            return [ToProxy(place, _initialize_for(greeting, proxy.prefix))]
        return self._up(place - 1, message)

    def _forwarded(self, place: int, proxy: ProxyState, message: AcpMessage) -> list[Step]:
        method = message.params.get("method")
        if not isinstance(method, str):
            text = f"{message.method}: params.method is missing."
            is_waiting = message.is_request
            return (
                [ToProxy(place, acp_message.refusal(message.id_text, jsonrpc.INVALID_PARAMS, text))]
                if is_waiting
                else []
            )
        if not proxy.is_prefix_known:
            proxy.prefix, proxy.is_prefix_known = str(message.method).removesuffix("successor"), True
        params = message.part("params", "params")
        params = None if params == "null" else params
        if not message.is_request:
            inner = {"jsonrpc": "2.0", "method": method}
            return self._down(place + 1, _carried(acp_message.notification(method, params), inner, message, params))
        proxy.sent.add(message.key)
        parts = {"jsonrpc": '"2.0"', "id": message.id_text, "method": json.dumps(method), "params": params}
        inner = {"jsonrpc": "2.0", "id": message.id, "method": method}
        return self._down(place + 1, _carried(json_edit.build(parts).encode(), inner, message, params))

    # -- up ------------------------------------------------------------------------------------------------------------

    def from_agent(self, message: AcpMessage) -> list[Step]:
        """A message from the agent's end of the chain."""
        return self._up(len(self._proxies) - 1, message)

    def _up(self, place: int, message: AcpMessage) -> list[Step]:
        """To the component at `place`, from its successor."""
        if place < 0:
            if message.is_response:
                self._waiting.pop(message.key, None)
                if message.key in self._initialize_keys:
                    self._initialize_keys.discard(message.key)
                    return [ToEditor(with_capability(message))]
            return [ToEditor(message.raw)]
        proxy = self._proxies[place]
        if message.value is None:
            return []
        if message.is_response:
            proxy.sent.discard(message.key)
            return [ToProxy(place, message.raw)]
        if message.method == CANCEL:
            # A cancellation applies to the connection on which the request was made: it is never wrapped.
            theirs = [
                ours
                for ours, id in proxy.renumbered.items()
                if key(json.loads(id)) == key(message.params.get("requestId"))
            ]
            return [ToProxy(place, message.edited(("params", "requestId"), json.dumps(ours))) for ours in theirs]
        inside = json_edit.build({"method": json.dumps(message.method), "params": message.part("params")})
        method = f"{proxy.prefix}successor"
        if not message.is_request:
            return [ToProxy(place, acp_message.notification(method, inside))]
        ours = self._ids.next()
        proxy.renumbered[ours] = message.id_text
        return [ToProxy(place, acp_message.request(ours, method, inside))]

    # -- the end -------------------------------------------------------------------------------------------------------

    def fail_waiting(self, why: str) -> list[Step]:
        """A component is gone and the others are ended too: refuses the editor's requests that wait for an answer."""
        steps: list[Step] = [
            ToEditor(acp_message.refusal(id, jsonrpc.INTERNAL_ERROR, why)) for id in self._waiting.values()
        ]
        self._waiting.clear()
        return steps


def _initialize_for(message: AcpMessage, prefix: str) -> bytes:
    return message.edited(("method",), json.dumps(f"{prefix}initialize"))


def _carried(raw: bytes, value: dict[str, Any], envelope: AcpMessage, params: str | None) -> AcpMessage:
    """A message out of its envelope, with the params that were parsed there."""
    if params is not None:
        value["params"] = envelope.params["params"]
    return AcpMessage(raw, value)
