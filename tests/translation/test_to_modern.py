"""Notifications of a modern server for clients of the handshake era that share its listen stream."""

from __future__ import annotations

import time
from typing import Any

import orjson
import pytest

from tabrelay.calls.calls import Notice, Pending
from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.translation.subscribers import MAX_PARSED, read_notification
from tabrelay.translation.to_modern import LegacyToModern
from tabserver.wire import jsonrpc, methods
from tests.support.waiting import until

MOST_S = 0.05  # CPU time of one callback
CHANGED = jsonrpc.notification(methods.TOOLS_LIST_CHANGED)


class SilentPeer:
    """A modern server that accepts every request and answers none."""

    is_modern = True

    def __init__(self) -> None:
        self.discovered: dict[str, Any] = {"capabilities": {"tools": {"listChanged": True}}}
        self.started: list[Pending] = []

    def start(self, pending: Pending) -> None:
        self.started.append(pending)

    def cancel(self, pending: Pending, why: str) -> None:
        raise AssertionError(why)


def text(message: dict[str, Any]) -> str:
    return orjson.dumps(message).decode()


async def test_a_notification_of_millions_of_values_takes_no_time_of_the_loop_and_is_announced_without_them() -> None:
    peer = SilentPeer()
    translator = LegacyToModern(peer, {"name": "relay", "version": "1"})
    received: list[Notice] = []
    translator.listen("client", received.append)
    await until(lambda: len(peer.started) == 1)
    [stream] = peer.started
    stream.notify(Notice(text(CHANGED | {"params": {"why": "a tool"}})))
    heavy = text(CHANGED | {"params": {"numbers": [1] * 3_000_000}})
    began = time.thread_time()
    stream.notify(Notice(heavy))
    assert time.thread_time() - began < MOST_S
    assert [orjson.loads(notice.payload) for notice in received] == [CHANGED | {"params": {"why": "a tool"}}, CHANGED]


def test_of_a_long_notification_the_method_is_read_whatever_characters_it_has() -> None:
    odd = 'notifications/,"params":{}'
    long = text(jsonrpc.notification(odd, {"a": "x" * MAX_PARSED}))
    assert read_notification(long) == {"jsonrpc": "2.0", "method": odd}
    assert read_notification(text(jsonrpc.notification(odd, {"a": 1})))["params"] == {"a": 1}  # type: ignore[index]
    assert read_notification(text(jsonrpc.notification("x" * MAX_PARSED, {}))) is None
    assert read_notification(text(jsonrpc.notification("x" * MAX_PARSED))) is None


LONG = {"note": "x" * MAX_PARSED, "of": {"uri": "notes://wrong"}}
FORGED = {"note": '{"uri":"notes://wrong","a":' + "x" * MAX_PARSED + ',"uri":"notes://wrong"}}'}
ODD_URI = 'notes://a"b,}é\\' + "/" * (MAX_URI - 20)


@pytest.mark.parametrize("uri", ["notes://1", ODD_URI])
@pytest.mark.parametrize("others", [LONG, FORGED], ids=["long", "forged"])
@pytest.mark.parametrize("place", ["first", "last"])
async def test_a_long_update_of_a_resource_is_announced(uri: str, others: dict[str, Any], place: str) -> None:
    peer = SilentPeer()
    peer.discovered = {"capabilities": {"resources": {"subscribe": True}}}
    translator = LegacyToModern(peer, {"name": "relay", "version": "1"})
    received: list[Notice] = []
    translator.listen("client", received.append)
    translator._subscribers.subscribe("client", uri)
    await until(lambda: len(peer.started) == 1)
    params = {"uri": uri, **others} if place == "first" else {**others, "uri": uri}
    peer.started[0].notify(Notice(text(jsonrpc.notification(methods.RESOURCES_UPDATED, params))))
    expected = jsonrpc.notification(methods.RESOURCES_UPDATED, {"uri": uri})
    assert [orjson.loads(notice.payload) for notice in received] == [expected]


@pytest.mark.parametrize(
    "params",
    [
        {"a": 1, **LONG},
        {**LONG, "b": {"uri": "notes://wrong"}},
        FORGED,
        {**LONG, "uri": 5},
        {**LONG, "uri": "x" * 50_000},
        {"uri": "x" * 50_000, **LONG},
        {},
    ],
)
def test_a_text_that_only_looks_like_the_uri_of_a_long_update_is_none(params: dict[str, Any]) -> None:
    padded = params or {"a": "x" * MAX_PARSED}
    found = read_notification(text(jsonrpc.notification(methods.RESOURCES_UPDATED, padded)))
    assert found is not None and found["params"] == {"uri": None}
