"""`subscriptions/listen` of modern clients: while the browser is away the relay listens for them, so that they learn of
the lists that it brings when it comes back. What goes on while it is there is between the client and the browser."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

import orjson

from tabrelay.calls import Call, Notice, Pending
from tabrelay.errors import Busy
from tabrelay.faces.exchange import Exchange
from tabrelay.shelf import Catalogue
from tabserver.wire import eras, jsonrpc

LISTEN: Final = "subscriptions/listen"
ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
# What a client calls the news of a list -> what the list is called.
FLAGS: Final = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
MAX_HELD: Final = 64


def list_changed(name: str, subscription: jsonrpc.RequestId | None = None) -> Notice:
    params = None if subscription is None else {"_meta": {eras.META_SUBSCRIPTION: subscription}}
    return Notice(orjson.dumps(jsonrpc.notification(f"notifications/{name}/list_changed", params)).decode())


def farewell(id: jsonrpc.RequestId) -> bytes:
    """The response that ends a listen stream from our side."""
    result = {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: id}}
    return orjson.dumps(jsonrpc.result_message(id, result))


class Listening:
    """Streams that were opened while nobody was there. One per relay."""

    def __init__(self, keepalive_s: float) -> None:
        self._keepalive_s = keepalive_s
        self._held: dict[str, set[asyncio.Event]] = {}
        self._late: dict[Pending, tuple[str, frozenset[str]]] = {}
        self._is_closed = False

    async def hold(
        self, exchange: Exchange, server: str, call: Call, params: dict[str, Any], catalogue: Catalogue | None
    ) -> None:
        """Acknowledge, and wait until somebody is there (or the client left, or the relay stops)."""
        held = self._held.setdefault(server, set())
        if len(held) >= MAX_HELD:
            raise Busy(f'{MAX_HELD} callers wait for "{server}" already.', retry_after_ms=3000)
        said = {"notifications": _honoured(params, catalogue), "_meta": {eras.META_SUBSCRIPTION: call.id}}
        changed = asyncio.Event()
        held.add(changed)
        exchange.watch(changed.set)
        try:
            await exchange.start_stream()
            await exchange.event(orjson.dumps(jsonrpc.notification(ACKNOWLEDGED, said)))
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
            await exchange.event(farewell(call.id))
            await exchange.end_stream()

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    async def forward(self, server: str, pending: Pending, params: dict[str, Any], answer: Awaitable[None]) -> None:
        """From now on the browser is listened to. Until it has said what lists it has, we still owe the client that."""
        self._late[pending] = (server, _wanted(params))
        try:
            await answer
        finally:
            del self._late[pending]

    def came_up(self, server: str) -> None:
        for changed in self._held.get(server, ()):
            changed.set()

    def lists_changed(self, server: str, lists: frozenset[str]) -> None:
        for pending, (name, wanted) in self._late.items():
            if name == server:
                for one in sorted(lists & wanted):
                    pending.notify(list_changed(one, pending.call.id))

    def close(self) -> None:
        self._is_closed = True
        for held in self._held.values():
            for changed in held:
                changed.set()


def is_acknowledgement(notice: Notice) -> bool:
    return f'"{ACKNOWLEDGED}"' in notice.payload and orjson.loads(notice.payload).get("method") == ACKNOWLEDGED


def _asked(params: dict[str, Any]) -> dict[str, Any]:
    asked = params.get("notifications")
    return asked if isinstance(asked, dict) else {}


def _wanted(params: dict[str, Any]) -> frozenset[str]:
    asked = _asked(params)
    return frozenset(name for flag, name in FLAGS.items() if asked.get(flag) is True)


def _honoured(params: dict[str, Any], catalogue: Catalogue | None) -> dict[str, Any]:
    """What was asked for and is known here. Of a server that was never seen everything is believed."""
    asked = _asked(params)
    can = catalogue.initialize.get("capabilities", {}) if catalogue else dict.fromkeys(FLAGS.values())
    kept: dict[str, Any] = {flag: True for flag, name in FLAGS.items() if asked.get(flag) is True and name in can}
    uris = asked.get("resourceSubscriptions")
    if isinstance(uris, list) and uris and "resources" in can:
        kept["resourceSubscriptions"] = sorted({uri for uri in uris if isinstance(uri, str)})
    return kept
