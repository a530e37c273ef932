"""The MCP core: the answer of each era to each message, and messages that it never sends."""

from __future__ import annotations

from typing import Any

import pytest

from tabserver.handlers.context import Done, Request
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.target import Target
from tabserver.handlers.tools import text_result
from tabserver.mcp.server import MAX_RUNNING
from tabserver.wire.control_messages import PIN
from tabserver.wire.eras import META_LOG_LEVEL, META_SERVER_INFO, TASKS
from tabserver.wire.errors import BufferFull, MessageTooLarge
from tabserver.wire.events import Closed, Received
from tabserver.wire.extensions import EXTENSIONS
from tabserver.wire.frames import Kind
from tests.support.held_calls import ADD, INFO, LEGACY, HeldServer, refused
from tests.support.server_harness import MODERN, READY

CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": EXTENSIONS,
}
TASKS_OF_SESSIONS: dict[str, Any] = {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


@pytest.fixture
def bench() -> HeldServer:
    return HeldServer()


# -- legacy: handshake -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        ("2025-11-25", "2025-11-25"),
        ("2024-11-05", "2024-11-05"),
        ("2099-01-01", "2025-11-25"),
        ("2026-07-28", "2025-11-25"),
        (None, "2025-11-25"),
    ],
)
def test_initialize_negotiates_the_version(asked: object, given: str) -> None:
    bench = HeldServer("Be kind.")
    bench.open(LEGACY)
    assert bench.request("initialize", {"protocolVersion": asked, "capabilities": {}})["result"] == {
        "protocolVersion": given,
        "capabilities": CAPABILITIES | (TASKS_OF_SESSIONS if given == "2025-11-25" else {}),
        "serverInfo": INFO,
        "instructions": "Be kind.",
    }


def test_before_initialize_only_ping_is_answered(bench: HeldServer) -> None:
    bench.open(LEGACY)
    assert bench.request("ping")["result"] == {}
    assert refused(bench.request("tools/list")) == (-32600, "tools/list came before initialize", "invalid_request")
    bench.request("initialize", {"protocolVersion": "2025-11-25"})
    assert bench.request("tools/list")["result"] == {"tools": [ADD]}


def test_a_session_that_is_opened_again_needs_no_handshake(bench: HeldServer) -> None:
    bench.open(READY)
    assert bench.request("tools/list")["result"] == {"tools": [ADD]}


def test_list_changed_goes_to_sessions_past_their_handshake_only(bench: HeldServer) -> None:
    bench.open(READY, "ready")
    bench.open(LEGACY, "greeted")
    bench.request("initialize", {"protocolVersion": "2025-11-25"}, channel="greeted")
    bench.open(LEGACY, "fresh")
    bench.note("notifications/initialized", channel="fresh")
    bench.open(MODERN, "modern")
    bench.sent.clear()
    bench.server.catalogue_changed(["tools"])
    assert bench.sent == [
        ("ready", Kind.NOTE, {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, None, None)
    ]
    bench.note("notifications/initialized", channel="greeted")
    bench.server.catalogue_changed(["tools"])
    assert [channel for channel, *_ in bench.sent] == ["ready", "ready", "greeted"]
    bench.server.receive(Closed("ready", "session ended"))
    bench.server.catalogue_changed(["tools"])
    assert [channel for channel, *_ in bench.sent] == ["ready", "ready", "greeted", "greeted"]


# -- modern ------------------------------------------------------------------------------------------------------------


def test_discover_returns_versions_and_capabilities() -> None:
    assert HeldServer("Be kind.").modern("server/discover")["result"] == {
        "resultType": "complete",
        "supportedVersions": ["2026-07-28"],
        "capabilities": CAPABILITIES | {"extensions": {TASKS: {}} | EXTENSIONS},
        "instructions": "Be kind.",
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {META_SERVER_INFO: INFO},
    }


def test_a_modern_list_is_complete_and_has_its_time_to_live(bench: HeldServer) -> None:
    assert bench.modern("tools/list")["result"] == {
        "resultType": "complete",
        "tools": [ADD],
        "ttlMs": 0,
        "cacheScope": "private",
        "_meta": {META_SERVER_INFO: INFO},
    }


def test_a_modern_call_adds_the_type_of_the_result_and_the_server(bench: HeldServer) -> None:
    bench.catalogue.on_call = lambda context, done: done(text_result("3") | {"_meta": {"mine": 1}})
    assert bench.modern("tools/call", {"name": "add", "arguments": {"a": 1}})["result"] == {
        "resultType": "complete",
        "content": [{"type": "text", "text": "3"}],
        "_meta": {"mine": 1, META_SERVER_INFO: INFO},
    }


def test_a_result_may_bring_its_own_type(bench: HeldServer) -> None:
    bench.catalogue.on_call = lambda context, done: done({"resultType": "input_required", "content": []})
    assert bench.modern("tools/call", {"name": "add"})["result"]["resultType"] == "input_required"


@pytest.mark.parametrize("wish", ["progressToken", "tabrelay/pin"])
def test_a_log_level_that_python_finds_equal_to_the_last_one_is_still_checked(bench: HeldServer, wish: str) -> None:
    """The last caller's level is cached, and in Python `1 == True`."""
    bench.catalogue.on_call = lambda context, done: done(text_result("3"))
    good, bad = (1, True) if wish == "progressToken" else (True, 1)
    for _ in range(2):
        assert "result" in bench.modern("tools/call", {"name": "add", "_meta": {wish: good}})
        assert refused(bench.modern("tools/call", {"name": "add", "_meta": {wish: bad}}))[0] == -32602


@pytest.mark.parametrize("method", ["initialize", "ping", "logging/setLevel", "resources/subscribe", "nonsense"])
def test_what_the_modern_era_removed_is_unknown_there(bench: HeldServer, method: str) -> None:
    assert refused(bench.modern(method)) == (-32601, f"Method not found: {method}", "method_not_found")


@pytest.mark.parametrize("method", ["server/discover", "nonsense"])
def test_what_the_legacy_era_lacks_is_unknown_there(bench: HeldServer, method: str) -> None:
    bench.open()
    assert bench.request(method)["error"]["code"] == -32601


def test_a_modern_channel_is_gone_with_its_answer(bench: HeldServer) -> None:
    bench.modern("tools/list")
    assert bench.request("tools/list", channel="m") is None


def test_a_modern_caller_that_leaves_cancels_and_receives_nothing_more(bench: HeldServer) -> None:
    bench.modern("tools/call", {"name": "add", "_meta": {"progressToken": 1, META_LOG_LEVEL: "debug"}})
    _, _, context, done = bench.catalogue.calls[0]
    bench.server.receive(Closed("m", "the caller left"))
    assert bench.catalogue.cancelled == ["the caller left"] and context.is_cancelled
    context.progress(1)
    context.log("error", "x")
    done(text_result("late"))
    assert bench.sent == []


def test_a_posted_cancellation_does_not_touch_a_modern_call(bench: HeldServer) -> None:
    bench.modern("tools/call", {"name": "add"}, id=5)
    bench.note("notifications/cancelled", {"requestId": 5}, channel="m")
    assert bench.catalogue.cancelled == []


# -- calls ------------------------------------------------------------------------------------------------------------


def test_a_call_reaches_the_catalogue_and_its_result_the_caller(bench: HeldServer) -> None:
    bench.open()
    assert bench.request("tools/call", {"name": "add", "arguments": {"a": 1}}, id="r") is None
    name, arguments, context, done = bench.catalogue.calls[0]
    assert (name, arguments, context.request_id, context.caller) == ("add", {"a": 1}, "r", READY)
    done(text_result("3"))
    done(text_result("4"))
    answer = {"jsonrpc": "2.0", "id": "r", "result": {"content": [{"type": "text", "text": "3"}]}}
    assert bench.sent == [("c", Kind.RES, answer, "r", None)]


def test_arguments_may_be_absent(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=1)
    bench.request("tools/call", {"name": "add", "arguments": None}, id=2)
    assert [arguments for _, arguments, _, _ in bench.catalogue.calls] == [{}, {}]


def test_a_request_may_name_a_tab_as_results_do(bench: HeldServer) -> None:
    bench.open()
    for id, named in enumerate(["a", {"id": "a", "title": "Tab a"}]):
        bench.request("tools/call", {"name": "add", "_meta": {"tabrelay/tab": named}}, id=id)
    assert [request.target for _, _, request, _ in bench.catalogue.calls] == [Target("a")] * 2
    refused = bench.request("tools/call", {"name": "add", "_meta": {"tabrelay/tab": 7}}, id=3)
    assert "params._meta.tabrelay/tab: expected the id of a tab" in refused["error"]["message"]


def test_a_pin_is_sent_to_the_relay_and_holds_at_once(bench: HeldServer) -> None:
    def pin(request: Request, done: Done) -> None:
        request.pin("a")
        done({"content": []})

    bench.catalogue.on_call = pin
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=4)
    bench.modern("tools/call", {"name": "add"}, id=5)
    assert bench.notes() == [(PIN, {"tab": "a"}, 4), (PIN, {"tab": "a"}, 5)]
    bench.catalogue.on_call = lambda request, done: None
    bench.request("tools/call", {"name": "add"}, id=6)
    assert bench.catalogue.calls[-1][2].caller.tab == "a"


def test_the_same_request_again_is_answered_once(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"})
    bench.request("tools/call", {"name": "add"})
    assert len(bench.catalogue.calls) == 1


def test_an_unknown_tool_is_a_protocol_error_that_names_what_is_near(bench: HeldServer) -> None:
    bench.open()
    answer = bench.request("tools/call", {"name": "ad"})
    assert refused(answer) == (-32602, 'Unknown tool "ad". Did you mean "add"?', "invalid_params")
    assert bench.request("tools/call", {"name": "zzz"})["error"]["message"] == 'Unknown tool "zzz". There are: add.'
    bench.catalogue.offered = []
    answer = bench.modern("tools/call", {"name": "add"})
    assert refused(answer)[:2] == (-32602, 'Unknown tool "add". No tools are offered right now.')


def test_invalid_arguments_are_an_error_that_the_model_can_read(bench: HeldServer) -> None:
    def refuse(request: Request, done: Done) -> None:
        raise InvalidArguments('arguments.a: expected integer, got string "x"')

    bench.catalogue.on_call = refuse
    bench.open()
    for answer in (bench.request("tools/call", {"name": "add"}), bench.modern("tools/call", {"name": "add"})):
        assert answer["result"]["isError"] is True
        text = 'Invalid arguments for tool "add":\narguments.a: expected integer, got string "x"'
        assert answer["result"]["content"] == [{"type": "text", "text": text}]


def test_a_catalogue_that_raises_is_a_failed_call(bench: HeldServer) -> None:
    def fail(request: Request, done: Done) -> None:
        raise RuntimeError("no tab")

    bench.catalogue.on_call = fail
    bench.open()
    assert bench.request("tools/call", {"name": "add"})["result"] == text_result("RuntimeError: no tab", is_error=True)


@pytest.mark.parametrize("value", [float("nan"), {1, 2}, object()])
def test_a_result_that_is_no_json_is_a_clear_error(bench: HeldServer, value: object) -> None:
    bench.catalogue.on_call = lambda context, done: done({"content": [], "structuredContent": {"x": value}})
    bench.open()
    result = bench.request("tools/call", {"name": "add"})["result"]
    assert result["isError"] is True and "can't be sent as JSON" in result["content"][0]["text"]


def test_half_a_surrogate_pair_does_not_leave_the_worker(bench: HeldServer) -> None:
    bench.catalogue.on_call = lambda context, done: done(text_result("é\ud800"))
    bench.open()
    assert bench.request("tools/call", {"name": "add"})["result"]["content"][0]["text"] == "é\N{REPLACEMENT CHARACTER}"


def test_no_more_than_the_limit_run_at_once_for_one_caller(bench: HeldServer) -> None:
    bench.open()
    for id in range(MAX_RUNNING):
        assert bench.request("tools/call", {"name": "add"}, id=id) is None
    error = bench.request("tools/call", {"name": "add"}, id=MAX_RUNNING)["error"]
    assert error["code"] == -31013
    assert error["data"] == {"reason": "busy", "delivered": "no", "retryable": True, "server": "demo", "help": "TR104"}
    bench.catalogue.calls[0][3](text_result("done"))
    assert bench.request("tools/call", {"name": "add"}, id=MAX_RUNNING) is None


def test_cancelling_stops_the_call_and_ends_its_stream(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=5)
    bench.note("notifications/cancelled", {"requestId": 5, "reason": "too slow"})
    assert bench.catalogue.cancelled == ["too slow"]
    assert bench.catalogue.calls[0][2].is_cancelled
    bench.catalogue.calls[0][3](text_result("late"))
    answer = {
        "jsonrpc": "2.0",
        "id": 5,
        "error": {"code": -32800, "message": "Request cancelled", "data": {"help": "TR114"}},
    }
    assert bench.sent == [("c", Kind.RES, answer, 5, None)]


@pytest.mark.parametrize("id", [6, "5", None, True, [5]])
def test_cancelling_what_does_not_run_does_nothing(bench: HeldServer, id: object) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=5)
    bench.note("notifications/cancelled", {"requestId": id})
    assert bench.sent == [] and bench.catalogue.cancelled == []


def test_a_session_that_ends_cancels_what_runs(bench: HeldServer) -> None:
    bench.open()
    for id in range(3):
        bench.request("tools/call", {"name": "add"}, id=id)
    bench.server.receive(Closed("c", "gone"))
    assert bench.catalogue.cancelled == ["gone"] * 3 and bench.sent == []


def test_one_callers_ids_do_not_touch_anothers(bench: HeldServer) -> None:
    bench.open(channel="a")
    bench.open(channel="b")
    bench.request("tools/call", {"name": "add"}, id=1, channel="a")
    bench.request("tools/call", {"name": "add"}, id=1, channel="b")
    bench.note("notifications/cancelled", {"requestId": 1}, channel="a")
    assert bench.catalogue.calls[0][2].is_cancelled and not bench.catalogue.calls[1][2].is_cancelled


# -- progress and log -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_modern", [True, False])
def test_progress_goes_to_the_request_that_asked_for_it_rises_and_stops_with_the_answer(
    bench: HeldServer, is_modern: bool
) -> None:
    params = {"name": "add", "_meta": {"progressToken": "p"}}
    if is_modern:
        bench.modern("tools/call", params, id=9)
    else:
        bench.open()
        bench.request("tools/call", params, id=9)
    _, _, context, done = bench.catalogue.calls[0]
    context.progress(1, 4, "one")
    context.progress(1, 4, "again")
    context.progress(0.5)
    context.progress(float("nan"))
    context.progress(2)
    done(text_result("ok"))
    context.progress(3)
    assert bench.notes() == [
        ("notifications/progress", {"progressToken": "p", "progress": 1, "total": 4, "message": "one"}, 9),
        ("notifications/progress", {"progressToken": "p", "progress": 2}, 9),
    ]


def test_without_a_token_there_is_no_progress(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"})
    bench.catalogue.calls[0][2].progress(1)
    assert bench.sent == []


def test_a_session_receives_its_level_and_above_and_may_change_it(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=9)
    context = bench.catalogue.calls[0][2]
    context.log("debug", "hidden")
    context.log("info", {"n": 1}, "store")
    bench.request("logging/setLevel", {"level": "error"}, id=10)
    context.log("warning", "hidden")
    context.log("critical", object)
    assert bench.notes() == [
        ("notifications/message", {"level": "info", "logger": "store", "data": {"n": 1}}, 9),
        ("notifications/message", {"level": "critical", "data": "<class 'object'>"}, 9),
    ]


@pytest.mark.parametrize(("level", "received"), [(None, []), ("debug", ["debug", "error"]), ("error", ["error"])])
def test_a_modern_request_receives_only_the_level_it_asked_for(
    bench: HeldServer, level: str | None, received: list[str]
) -> None:
    bench.modern("tools/call", {"name": "add", "_meta": {META_LOG_LEVEL: level} if level else {}})
    bench.catalogue.calls[0][2].log("debug", "x")
    bench.catalogue.calls[0][2].log("error", "x")
    assert [params["level"] for _, params, _ in bench.notes()] == received


def test_an_unknown_level_is_refused(bench: HeldServer) -> None:
    bench.open()
    levels = "debug, info, notice, warning, error, critical, alert, emergency"
    answer = bench.request("logging/setLevel", {"level": "loud"})
    text = f'params.level: expected one of {levels}, got string "loud"'
    assert refused(answer) == (-32602, text, "invalid_params")
    error = bench.modern("tools/call", {"name": "add", "_meta": {META_LOG_LEVEL: 3}})["error"]
    assert error["code"] == -32602 and error["message"].startswith(f"params._meta.{META_LOG_LEVEL}: expected one of")
    bench.request("tools/call", {"name": "add"})
    with pytest.raises(ValueError, match="unknown log level 'warn'"):
        bench.catalogue.calls[0][2].log("warn", "x")


# -- bad messages -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("{", -32700),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"x":NaN}}', -32700),
        ("[" * 100_000, -32700),
        ('{"a":' * 100_000, -32700),
        ("[]", -32600),
        ("3", -32600),
        ('{"id":1,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":2,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
        ('{"jsonrpc":"2.0","id":1}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":3}', -32600),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":3}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call"}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":3}}', -32602),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","arguments":[]}}', -32602),
        (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add","_meta":{"progressToken":1.5}}}',
            -32602,
        ),
        ('{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"x"}}', -32602),
    ],
)
def test_a_bad_request_is_answered_with_its_id_and_the_channel_goes_on(bench: HeldServer, text: str, code: int) -> None:
    bench.open()
    answer = bench.raw(text, id=1)
    assert (answer["id"], answer["error"]["code"]) == (1, code)
    assert bench.request("ping")["result"] == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"jsonrpc":"2.0"}', '{"jsonrpc":"2.0","method":"x","params":[]}'])
def test_a_bad_notification_is_dropped(bench: HeldServer, text: str) -> None:
    bench.open()
    bench.server.receive(Received("c", Kind.NOTE, None, None, text, None))
    assert bench.sent == []


def test_responses_and_unknown_channels_are_dropped(bench: HeldServer) -> None:
    bench.open()
    bench.server.receive(Received("c", Kind.RES, 1, None, '{"jsonrpc":"2.0","id":1,"result":{}}', None))
    bench.request("ping", channel="nowhere")
    bench.note("notifications/initialized", channel="nowhere")
    bench.server.receive(Closed("nowhere", ""))
    assert bench.sent == []


def test_a_bug_in_the_catalogue_is_an_internal_error(bench: HeldServer) -> None:
    bench.open()
    bench.catalogue.offered = None  # type: ignore[assignment]
    error = bench.request("tools/call", {"name": "add"})["result"]
    assert error["isError"] is True
    bench.catalogue.tools = lambda: 1 / 0  # type: ignore[method-assign,assignment,return-value]
    assert bench.request("tools/list")["error"] == {
        "code": -32603,
        "message": "Internal error: ZeroDivisionError: division by zero",
        "data": {"help": "TR113"},
    }


# -- a link without room -----------------------------------------------------------------------------------------------


def test_a_result_that_is_too_large_is_reported_as_such(bench: HeldServer) -> None:
    def refuse(kind: Kind, text: str) -> None:
        if len(text) > 1000:
            raise MessageTooLarge("message of 2,000 bytes, at most 1,000")

    bench.refuse = refuse
    bench.catalogue.on_call = lambda context, done: done(text_result("x" * 2000))
    bench.open()
    error = bench.request("tools/call", {"name": "add"})["error"]
    assert error["code"] == -31014
    assert error["message"] == "The result is too large: message of 2,000 bytes, at most 1,000"
    assert error["data"]["reason"] == "result_too_large"


def test_a_notice_without_room_is_dropped_and_the_call_goes_on(bench: HeldServer) -> None:
    def refuse(kind: Kind, text: str) -> None:
        if kind is Kind.NOTE:
            raise BufferFull("full")

    bench.refuse = refuse
    bench.open()
    bench.request("tools/call", {"name": "add", "_meta": {"progressToken": 1}})
    bench.catalogue.calls[0][2].progress(1)
    bench.catalogue.calls[0][3](text_result("ok"))
    assert [kind for _, kind, *_ in bench.sent] == [Kind.RES]


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_a_session_may_let_its_stream_go_and_a_modern_call_can_not(bench: HeldServer) -> None:
    bench.open()
    bench.request("tools/call", {"name": "add"}, id=4)
    bench.modern("tools/call", {"name": "add"})
    for _, _, request, _ in bench.catalogue.calls:
        request.close_stream(500)
    assert bench.notes() == [("$/tabrelay/closeStream", {"retryMs": 500}, 4)]


def test_initialize_names_the_client(bench: HeldServer) -> None:
    bench.open(LEGACY)
    client = {"name": "probe", "version": "2"}
    params = {"protocolVersion": "2025-06-18", "capabilities": {"roots": {}}, "clientInfo": client}
    bench.request("initialize", params)
    bench.request("tools/call", {"name": "add"})
    caller = bench.catalogue.calls[0][2].caller
    assert (caller.version, caller.client, caller.capabilities) == ("2025-06-18", client, {"roots": {}})
