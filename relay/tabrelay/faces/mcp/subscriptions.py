"""`subscriptions/listen` streams of modern clients, held open by the relay while no browser is connected.

A held client is acknowledged by the relay and learns which lists changed when a browser connects. Resource updates pass
from the browser to the client unchanged. List changes are sent by the relay, after it has compared the lists: a browser
that connects announces all of them, whether clients already know them or not.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Call, Notice, Pending
from tabrelay.errors import Busy
from tabrelay.http.exchange import Exchange
from tabrelay.routing.catalogue_store import Catalogue
from tabserver.wire import eras, jsonrpc, methods

# Key of a filter -> name of the list.
FLAGS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
LIST_CHANGED: Final = re.compile("notifications/(tools|prompts|resources)/list_changed")
MAX_HELD: Final = 64


def list_changed(name: str, subscription: jsonrpc.RequestId | None = None) -> Notice:
    params = None if subscription is None else {"_meta": {eras.META_SUBSCRIPTION: subscription}}
    note = jsonrpc.notification(f"notifications/{name}/list_changed", params)
    return Notice(orjson.dumps(note).decode(), is_ours=True)


def changed_list(notice: Notice) -> str | None:
    """The list that a notification announces as changed; None for any other notification."""
    if "/list_changed" not in notice.payload:
        return None
    method = orjson.loads(notice.payload).get("method")
    found = LIST_CHANGED.fullmatch(method) if isinstance(method, str) else None
    return found[1] if found else None


def final_response(id: jsonrpc.RequestId) -> bytes:
    """The response with which the relay ends a listen stream."""
    result = {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: id}}
    return orjson.dumps(jsonrpc.result_message(id, result))


@dataclass(frozen=True, slots=True)
class SubscriptionFilter:
    """The lists and resources that a client subscribes to. Kept as long as the client listens, so it is compact."""

    lists: frozenset[str]
    uris: str  # JSON array

    @classmethod
    def of(cls, params: dict[str, Any]) -> SubscriptionFilter:
        asked = params.get("notifications")
        asked = asked if isinstance(asked, dict) else {}
        uris = asked.get("resourceSubscriptions")
        known = sorted({uri for uri in uris if isinstance(uri, str)}) if isinstance(uris, list) else []
        lists = frozenset(name for flag, name in FLAGS.items() if asked.get(flag) is True)
        # The bytes of orjson keep their whole buffer until they are copied.
        return cls(lists, orjson.dumps(known).decode())

    def honoured(self, catalogue: Catalogue | None) -> dict[str, Any]:
        """The part of the filter that the server supports. For a server that never connected: all of it."""
        can = catalogue.initialize.get("capabilities", {}) if catalogue else dict.fromkeys(FLAGS.values())
        kept: dict[str, Any] = {flag: True for flag, name in FLAGS.items() if name in self.lists and name in can}
        uris = orjson.loads(self.uris)
        if uris and "resources" in can:
            kept["resourceSubscriptions"] = uris
        return kept


class Subscriptions:
    """Listen streams: those held without a browser, and those of connected ones. One per relay."""

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._held: dict[str, set[asyncio.Event]] = {}
        self._listeners: set[SubscriptionStream] = set()
        self._is_closed = False

    async def hold(
        self, exchange: Exchange, server: str, call: Call, wanted: SubscriptionFilter, catalogue: Catalogue | None
    ) -> None:
        """Acknowledge, and wait until a browser connects, the client hangs up, or the relay stops."""
        held = self._held.setdefault(server, set())
        if len(held) >= MAX_HELD:
            raise Busy(f'{MAX_HELD} callers already wait for "{server}".', retry_after_ms=3000)
        params = {"notifications": wanted.honoured(catalogue), "_meta": {eras.META_SUBSCRIPTION: call.id}}
        changed = asyncio.Event()
        held.add(changed)
        exchange.watch(changed.set)
        try:
            await exchange.start_stream()
            await exchange.event(orjson.dumps(jsonrpc.notification(methods.SUBSCRIPTIONS_ACKNOWLEDGED, params)))
            del params
            while not changed.is_set() and not self._is_closed:
                try:
                    async with asyncio.timeout(self._keepalive_s):
                        await changed.wait()
                except TimeoutError:
                    await exchange.comment()
        finally:
            held.discard(changed)
            exchange.unwatch()
        if self._is_closed and not exchange.is_gone:
            await exchange.event(final_response(call.id))
            await exchange.end_stream()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @contextmanager
    def listener(
        self, server: str, pending: Pending, wanted: SubscriptionFilter, *, is_acknowledged: bool
    ) -> Iterator[SubscriptionStream]:
        """Register a stream between client and browser. `is_acknowledged`: the relay has already acknowledged it."""
        listener = SubscriptionStream(server, pending, wanted.lists, is_acknowledged)
        self._listeners.add(listener)
        try:
            yield listener
        finally:
            self._listeners.discard(listener)

    def came_up(self, server: str) -> None:
        for changed in self._held.get(server, ()):
            changed.set()

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        for listener in self._listeners:
            if listener.server == server:
                listener.notify(lists)

    def close(self) -> None:
        self._is_closed = True
        for held in self._held.values():
            for changed in held:
                changed.set()


class SubscriptionStream:
    """One stream between a client and a browser, with the list changes that the relay adds."""

    def __init__(self, server: str, pending: Pending, wanted: frozenset[str], is_acknowledged: bool) -> None:
        self.server = server
        self._pending = pending
        self._wanted = wanted
        self._is_acknowledged = is_acknowledged
        self._deferred: set[str] = set()

    def notify(self, lists: frozenset[str]) -> None:
        """2026-07-28: the acknowledgement is the first message of the stream. Earlier changes are deferred."""
        self._deferred |= lists & self._wanted
        if self._is_acknowledged:
            for name in sorted(self._deferred):
                self._pending.notify(list_changed(name, self._pending.call.id))
            self._deferred.clear()

    def is_redundant(self, notice: Notice) -> bool:
        """Is this notice not for the client? It gets one acknowledgement, and list changes from the relay."""
        if notice.is_ours:
            return False
        if (
            f'"{methods.SUBSCRIPTIONS_ACKNOWLEDGED}"' in notice.payload
            and orjson.loads(notice.payload).get("method") == methods.SUBSCRIPTIONS_ACKNOWLEDGED
        ):
            was_acknowledged, self._is_acknowledged = self._is_acknowledged, True
            self.notify(frozenset())
            return was_acknowledged
        return changed_list(notice) is not None
