"""Translation for modern clients of a legacy server, row by row of its table."""

from __future__ import annotations

import orjson
import pytest

from tabrelay.calls.calls import Notice
from tabrelay.errors import BrowserGone, Busy
from tabserver.wire import eras, jsonrpc
from tests.support.translator_harness import ABOUT, INFO, TranslatorHarness, notices, reply

CHANGED = "notifications/tools/list_changed"


@pytest.fixture
async def harness() -> TranslatorHarness:
    return TranslatorHarness()


# -- the table --------------------------------------------------------------------------------------------------------


async def test_discover_is_answered_from_the_handshake_without_tasks(harness: TranslatorHarness) -> None:
    result = (await reply(harness.call("server/discover")))["result"]
    assert result == {
        "supportedVersions": ["2026-07-28"],
        "capabilities": {name: value for name, value in ABOUT["capabilities"].items() if name != "tasks"},
        "instructions": "Be brief.",
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {eras.META_SERVER_INFO: INFO},
    }
    assert harness.peer.started == []


@pytest.mark.parametrize(
    "method", ["tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"]
)
async def test_lists_and_reads_lose_the_envelope_and_get_the_stamp(harness: TranslatorHarness, method: str) -> None:
    pending = harness.call(method, {"cursor": "x"}, meta={"traceparent": "00-1"})
    assert harness.peer.request()["params"] == {"cursor": "x", "_meta": {"traceparent": "00-1"}}
    harness.peer.result({"items": [], "_meta": {"a": 1}})
    result = (await reply(pending))["result"]
    assert result == {
        "items": [],
        "resultType": "complete",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {"a": 1, eras.META_SERVER_INFO: INFO},
    }


@pytest.mark.parametrize("method", ["tools/call", "prompts/get", "completion/complete", "acme/extension"])
async def test_calls_and_unknown_methods_pass_and_are_stamped_but_not_for_caching(
    harness: TranslatorHarness, method: str
) -> None:
    pending = harness.call(method, {"name": "x"})
    assert harness.peer.request() == {
        "jsonrpc": "2.0",
        "id": pending.call.id,
        "method": method,
        "params": {"name": "x"},
    }
    harness.peer.result({"structuredContent": [1, 2]})
    result = (await reply(pending))["result"]
    assert result == {
        "structuredContent": [1, 2],
        "resultType": "complete",
        "_meta": {eras.META_SERVER_INFO: INFO},
    }


async def test_a_request_without_params_has_none_at_the_server(harness: TranslatorHarness) -> None:
    harness.call("tools/list")
    assert "params" not in harness.peer.request()


async def test_tools_are_not_listed_as_possible_tasks(harness: TranslatorHarness) -> None:
    pending = harness.call("tools/list")
    harness.peer.result({"tools": [{"name": "a", "execution": {"taskSupport": "optional"}}]})
    assert (await reply(pending))["result"]["tools"] == [{"name": "a"}]


@pytest.mark.parametrize(
    "method",
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/get",
        "tasks/list",
        "tasks/cancel",
    ],
)
async def test_methods_that_the_modern_era_does_not_have_are_not_found(harness: TranslatorHarness, method: str) -> None:
    assert (await reply(harness.call(method)))["error"]["code"] == jsonrpc.METHOD_NOT_FOUND
    assert harness.peer.started == []


@pytest.mark.parametrize(("code", "expected"), [(-32002, -32602), (-32601, -32601), (-32603, -32603), (-1, -1)])
async def test_errors_pass_but_for_codes_that_the_modern_era_must_not_see(
    harness: TranslatorHarness, code: int, expected: int
) -> None:
    pending = harness.call("resources/read", {"uri": "x:y"})
    harness.peer.error(code, {"uri": "x:y"})
    error = (await reply(pending))["error"]
    assert (error["code"], error["data"]) == (expected, {"uri": "x:y"})


async def test_progress_passes_with_the_callers_token(harness: TranslatorHarness) -> None:
    pending = harness.tool(meta={"progressToken": "t"})
    assert harness.peer.request()["params"]["_meta"] == {"progressToken": "t"}
    harness.peer.send_notification("notifications/progress", {"progressToken": "t", "progress": 1})
    [notice] = await notices(pending)
    assert notice["params"] == {"progressToken": "t", "progress": 1}


async def test_without_a_log_level_no_log_message_passes(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.send_notification("notifications/message", {"level": "emergency", "data": "!"})
    assert await notices(pending) == []
    assert len(harness.peer.started) == 1


async def test_a_log_level_is_set_at_the_server_and_filters_what_comes(harness: TranslatorHarness) -> None:
    pending = harness.tool(meta={eras.META_LOG_LEVEL: "warning"})
    level, call = (orjson.loads(started.call.payload) for started in harness.peer.started)
    assert (level["method"], level["params"]) == ("logging/setLevel", {"level": "warning"})
    assert "_meta" not in call["params"]
    for sent in ("info", "warning", "error", "nonsense"):
        harness.peer.send_notification("notifications/message", {"level": sent, "data": sent})
    assert [notice["params"]["data"] for notice in await notices(pending)] == ["warning", "error"]
    harness.peer.result({})
    assert harness.peer.ended == [pending.call.channel]


async def test_a_log_level_that_does_not_exist_is_refused(harness: TranslatorHarness) -> None:
    pending = harness.tool(meta={eras.META_LOG_LEVEL: "loud"})
    assert (await reply(pending))["error"]["code"] == jsonrpc.INVALID_PARAMS
    assert harness.peer.started == []


async def test_a_server_without_logging_receives_no_level(harness: TranslatorHarness) -> None:
    harness.peer.about = {"capabilities": {"tools": {}}}
    harness.tool(meta={eras.META_LOG_LEVEL: "debug"})
    assert [pending.call.method for pending in harness.peer.started] == ["tools/call"]


async def test_a_cancelled_call_is_cancelled_at_the_server(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.translator.cancel(pending, "the client closed the stream")
    assert harness.peer.cancelled == [(harness.peer.last, "the client closed the stream")]


async def test_the_caller_gets_the_error_of_a_peer_that_fails_or_refuses(harness: TranslatorHarness) -> None:
    pending = harness.tool()
    harness.peer.last.end(BrowserGone("gone"))
    with pytest.raises(BrowserGone):
        await pending.next()
    harness.peer.refuses = Busy("busy")
    with pytest.raises(Busy):
        harness.tool()


# -- subscriptions ----------------------------------------------------------------------------------------------------


async def test_listen_is_acknowledged_with_what_the_server_can_do(harness: TranslatorHarness) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": ["a:b"]}
    pending = harness.call("subscriptions/listen", {"notifications": wanted})
    [ack] = await notices(pending)
    assert ack == {
        "jsonrpc": "2.0",
        "method": "notifications/subscriptions/acknowledged",
        "params": {
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]},
            "_meta": {eras.META_SUBSCRIPTION: pending.call.id},
        },
    }
    assert (harness.peer.request()["method"], harness.peer.request()["params"]) == (
        "resources/subscribe",
        {"uri": "a:b"},
    )


async def test_a_listen_stream_carries_what_was_asked_for_and_names_itself(harness: TranslatorHarness) -> None:
    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["a:b"]}
    pending = harness.call("subscriptions/listen", {"notifications": wanted})
    await notices(pending)
    sink = harness.peer.sinks[pending.call.channel]
    for message in (
        jsonrpc.notification(CHANGED),
        jsonrpc.notification("notifications/prompts/list_changed"),
        jsonrpc.notification("notifications/resources/updated", {"uri": "a:b/part"}),
        jsonrpc.notification("notifications/resources/updated", {"uri": "a:bc"}),
        jsonrpc.notification("notifications/message", {"level": "error"}),
    ):
        sink(Notice(orjson.dumps(message).decode()))
    received = await notices(pending)
    assert [notice["method"] for notice in received] == [CHANGED, "notifications/resources/updated"]
    assert all(notice["params"]["_meta"] == {eras.META_SUBSCRIPTION: pending.call.id} for notice in received)


async def test_a_listener_that_leaves_is_removed_and_one_whose_server_ends_is_notified(
    harness: TranslatorHarness,
) -> None:
    first, second = (harness.call("subscriptions/listen", {"notifications": {}}) for _ in range(2))
    harness.translator.cancel(first, "left")
    assert harness.peer.ended == [first.call.channel]
    harness.translator.retire()
    assert (await reply(second))["result"] == {
        "resultType": "complete",
        "_meta": {eras.META_SUBSCRIPTION: second.call.id},
    }


async def test_listen_without_a_filter_is_refused(harness: TranslatorHarness) -> None:
    assert (await reply(harness.call("subscriptions/listen")))["error"]["code"] == jsonrpc.INVALID_PARAMS
