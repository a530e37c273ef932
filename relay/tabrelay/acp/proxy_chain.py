"""Proxies between the editor and the agent: who hears a message next, and in which envelope. Pure.

    editor ── proxy 0 ── proxy 1 ── … ── agent

A proxy speaks plainly with whoever stands before it. With whoever comes after it, it speaks in `proxy/successor`, since
it has only one connection: to us. With no proxy at all, everything passes as it came.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Final

from tabrelay.acp import json_edit
from tabrelay.acp import message as frames
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
    frame: AcpMessage


Step = ToEditor | ToProxy | ToAgent


@dataclass(eq=False, slots=True)
class ProxyState:
    """What must be remembered of one proxy."""

    prefix: str
    is_sure: bool = False
    greetings: dict[Key, AcpMessage] = field(default_factory=dict)
    # Requests of its successor that it was given under ids of ours: ours -> theirs. It has requests of the editor's
    # too, and the two know nothing of each other's ids.
    given: dict[str, str] = field(default_factory=dict)
    # Requests of its own that went to its successor.
    sent: set[Key] = field(default_factory=set)


class ProxyChain:
    def __init__(self, proxies: int, ids: RequestIds, prefix: str | None = None) -> None:
        """`prefix`: how the methods' names begin, if the user says so; else each proxy shows it."""
        self._ids = ids
        self._links = [ProxyState(prefix or CURRENT, prefix is not None) for _ in range(proxies)]
        self._greetings: set[Key] = set()
        self._waiting: dict[Key, str] = {}  # requests of the editor's that were not answered yet

    # -- down ----------------------------------------------------------------------------------------------------------

    def from_editor(self, frame: AcpMessage) -> list[Step]:
        if self._links and frame.is_request:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.pop(next(iter(self._waiting)))
            self._waiting[frame.key] = frame.id_text
            if frame.method == "initialize":
                self._greetings.add(frame.key)
        return self._down(0, frame)

    def _down(self, place: int, frame: AcpMessage) -> list[Step]:
        """To the component at `place`, from whoever stands before it."""
        if place == len(self._links):
            return [ToAgent(frame)]
        if frame.is_request and frame.method == "initialize":
            link = self._links[place]
            link.greetings[frame.key] = frame
            return [ToProxy(place, _greeting(frame, link.prefix))]
        return [ToProxy(place, frame.raw)]

    # -- from a proxy --------------------------------------------------------------------------------------------------

    def from_proxy(self, place: int, frame: AcpMessage) -> list[Step]:
        link = self._links[place]
        if frame.value is None:
            return []
        if frame.is_response:
            return self._answered(place, link, frame)
        if frame.method in SUCCESSOR:
            return self._forwarded(place, link, frame)
        if frame.method == CANCEL and key(frame.params.get("requestId")) in link.sent:
            return self._down(place + 1, frame)
        return self._up(place - 1, frame)

    def _answered(self, place: int, link: ProxyState, frame: AcpMessage) -> list[Step]:
        if isinstance(frame.id, str) and frame.id in link.given:
            return self._down(place + 1, frame.put(("id",), link.given.pop(frame.id)))
        greeting = link.greetings.pop(frame.key, None)
        if greeting is not None and frame.error_code == jsonrpc.METHOD_NOT_FOUND and not link.is_sure:
            link.prefix, link.is_sure = FIRST, True
            link.greetings[frame.key] = greeting
            return [ToProxy(place, _greeting(greeting, link.prefix))]
        return self._up(place - 1, frame)

    def _forwarded(self, place: int, link: ProxyState, frame: AcpMessage) -> list[Step]:
        method = frame.params.get("method")
        if not isinstance(method, str):
            text = f"{frame.method}: params.method is missing."
            is_waiting = frame.is_request
            return [ToProxy(place, frames.refusal(frame.id_text, jsonrpc.INVALID_PARAMS, text))] if is_waiting else []
        if not link.is_sure:
            link.prefix, link.is_sure = str(frame.method).removesuffix("successor"), True
        params = frame.part("params", "params")
        params = None if params == "null" else params
        if not frame.is_request:
            return self._down(place + 1, AcpMessage.read(frames.notification(method, params)))
        link.sent.add(frame.key)
        parts = {"jsonrpc": '"2.0"', "id": frame.id_text, "method": json.dumps(method), "params": params}
        return self._down(place + 1, AcpMessage.read(json_edit.build(parts).encode()))

    # -- up ------------------------------------------------------------------------------------------------------------

    def up(self, raw: bytes) -> list[Step]:
        """What comes from the agent's place."""
        return self._up(len(self._links) - 1, AcpMessage.read(raw)) if self._links else [ToEditor(raw)]

    def _up(self, place: int, frame: AcpMessage) -> list[Step]:
        """To the component at `place`, from whoever comes after it."""
        if place < 0:
            if frame.is_response:
                self._waiting.pop(frame.key, None)
                if frame.key in self._greetings:
                    self._greetings.discard(frame.key)
                    frame = with_capability(frame)
            return [ToEditor(frame.raw)]
        link = self._links[place]
        if frame.value is None:
            return []
        if frame.is_response:
            link.sent.discard(frame.key)
            return [ToProxy(place, frame.raw)]
        if frame.method == CANCEL:
            # The cancellation of a request counts where the request was made: it is never put into an envelope.
            theirs = [
                ours for ours, id in link.given.items() if key(json.loads(id)) == key(frame.params.get("requestId"))
            ]
            return [ToProxy(place, frame.put(("params", "requestId"), json.dumps(ours)).raw) for ours in theirs]
        inside = json_edit.build({"method": json.dumps(frame.method), "params": frame.part("params")})
        method = f"{link.prefix}successor"
        if not frame.is_request:
            return [ToProxy(place, frames.notification(method, inside))]
        ours = self._ids.next()
        link.given[ours] = frame.id_text
        return [ToProxy(place, frames.request(ours, method, inside))]

    # -- the end -------------------------------------------------------------------------------------------------------

    def ended(self, why: str) -> list[Step]:
        """A part of it is gone, and the others go too: the editor hears it from us, since nobody else is left."""
        steps: list[Step] = [ToEditor(frames.refusal(id, jsonrpc.INTERNAL_ERROR, why)) for id in self._waiting.values()]
        self._waiting.clear()
        return steps


def _greeting(frame: AcpMessage, prefix: str) -> bytes:
    return frame.put(("method",), json.dumps(f"{prefix}initialize")).raw
