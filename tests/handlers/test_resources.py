"""Resources and templates: found by their URI, read in both eras, with notifications for subscribers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import pytest

from tabserver.handlers.content import Audio, Embedded, Image, Text
from tabserver.handlers.context import Context
from tabserver.handlers.resources import ResourceNotFound, declare_resource, to_contents
from tabserver.handlers.toolbox import Toolbox, resource, resource_updated
from tabserver.schema.shapes import SchemaError
from tabserver.wire.eras import META_SUBSCRIPTION
from tabserver.wire.frames import Kind
from tests.support.server_harness import READY, CoreHarness


@dataclass
class Note:
    id: int
    text: str


@pytest.fixture
def box() -> Toolbox:
    box = Toolbox()

    @resource("notes://all", title="All", mime_type="text/markdown", size=5, toolbox=box)
    def everything() -> str:
        """All notes."""
        return "# All"

    @resource("notes://{id}", mime_type="application/json", complete={"id": ["1", "12", "2"]}, toolbox=box)
    def note(id: int) -> Note:
        """One note."""
        if id > 99:
            raise ResourceNotFound(f"notes://{id}")
        return Note(id, "x")

    @resource("files://{path*}", name="file", toolbox=box)
    async def file(ctx: Context, path: str) -> bytes:
        return path.encode()

    return box


@pytest.fixture
def bench(box: Toolbox) -> CoreHarness:
    return CoreHarness(box)


def read(bench: CoreHarness, uri: str) -> Any:
    bench.open()
    answer = bench.request("resources/read", {"uri": uri})
    return answer.get("result", answer.get("error"))


def test_resources_and_templates_are_listed_with_their_descriptions(bench: CoreHarness) -> None:
    bench.open()
    assert bench.request("resources/list")["result"] == {
        "resources": [
            {
                "uri": "notes://all",
                "name": "everything",
                "title": "All",
                "description": "All notes.",
                "mimeType": "text/markdown",
                "size": 5,
            }
        ]
    }
    listed = bench.modern("resources/templates/list")["result"]
    assert [item["uriTemplate"] for item in listed["resourceTemplates"]] == ["notes://{id}", "files://{path*}"]
    assert (listed["ttlMs"], listed["cacheScope"]) == (0, "private")


def test_a_literal_uri_comes_before_a_template(bench: CoreHarness) -> None:
    assert read(bench, "notes://all") == {
        "contents": [{"uri": "notes://all", "mimeType": "text/markdown", "text": "# All"}]
    }


def test_a_templates_arguments_have_the_types_of_its_function(bench: CoreHarness) -> None:
    assert read(bench, "notes://7")["contents"][0]["text"] == '{"id": 7, "text": "x"}'
    error = read(bench, "notes://seven")
    assert error["code"] == -32602 and 'arguments.id: expected integer, got string "seven"' in error["message"]


async def test_an_argument_may_have_slashes_if_its_template_allows_them(bench: CoreHarness) -> None:
    bench.open()
    bench.request("resources/read", {"uri": "files://a/b%20c"})
    result = await bench.reply("c")
    assert result == {
        "contents": [{"uri": "files://a/b%20c", "mimeType": "application/octet-stream", "blob": "YS9iIGM="}]
    }


@pytest.mark.parametrize("uri", ["nowhere://x", "notes://1/2", "notes://100", "notes://", "files://" + "a" * 5000])
def test_a_missing_resource_has_the_error_of_the_era(bench: CoreHarness, uri: str) -> None:
    data = {"uri": uri, "help": "TR151"}
    assert read(bench, uri) == {"code": -32002, "message": f"Resource not found: {uri}", "data": data}
    error = bench.modern("resources/read", {"uri": uri})["error"]
    assert (error["code"], error["data"]) == (-32602, data)


@pytest.mark.parametrize("params", [{}, {"uri": 3}])
def test_reading_needs_a_uri(bench: CoreHarness, params: dict[str, Any]) -> None:
    bench.open()
    assert bench.request("resources/read", params)["error"]["message"].startswith("params.uri: expected string")


def test_a_function_that_fails_is_an_error_that_names_the_resource(box: Toolbox, bench: CoreHarness) -> None:
    @resource("notes://broken", toolbox=box)
    def broken() -> str:
        raise KeyError("no such note")

    error = read(bench, "notes://broken")
    assert error == {
        "code": -32603,
        "message": "Reading notes://broken failed: KeyError: 'no such note'",
        "data": {"help": "TR113"},
    }


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("text", {"uri": "x:y", "mimeType": "text/plain", "text": "text"}),
        (Text("text"), {"uri": "x:y", "mimeType": "text/plain", "text": "text"}),
        (b"\x00", {"uri": "x:y", "mimeType": "application/octet-stream", "blob": "AA=="}),
        (Image(b"\x00"), {"uri": "x:y", "mimeType": "image/png", "blob": "AA=="}),
        (Audio("AA=="), {"uri": "x:y", "mimeType": "audio/wav", "blob": "AA=="}),
        ([1, None], {"uri": "x:y", "mimeType": "application/json", "text": "[1, null]"}),
        (Embedded("a:b", "t"), {"uri": "a:b", "text": "t"}),
    ],
)
def test_any_value_is_contents(value: Any, content: dict[str, Any]) -> None:
    assert to_contents("x:y", value, None) == {"contents": [content]}


def test_several_contents_and_ready_ones_stay_as_they_are() -> None:
    several = [Embedded("a:1", "x", "text/css"), Embedded("a:2", b"\x00")]
    assert to_contents("x:y", several, None)["contents"] == [
        {"uri": "a:1", "mimeType": "text/css", "text": "x"},
        {"uri": "a:2", "blob": "AA=="},
    ]
    ready = {"contents": [{"uri": "a:1", "text": "x"}]}
    assert to_contents("x:y", ready, None) is ready


def no_arguments() -> str:
    return ""


def one_argument(a: str) -> str:
    return a


@pytest.mark.parametrize(
    ("uri", "function", "text"),
    [
        ("plain", no_arguments, "begins with a scheme"),
        ("x:{a}", no_arguments, "has no parameter 'a'"),
        ("x:y", one_argument, "'a' is not in the URI"),
        ("x:{a}/{a}", one_argument, "twice"),
        ("x:{a*}/{b*}", lambda a, b: "", "only one argument may have slashes"),
    ],
)
def test_a_uri_that_does_not_belong_to_its_function_is_refused(uri: str, function: Any, text: str) -> None:
    with pytest.raises(SchemaError, match=text):
        declare_resource(uri, function)


def test_a_completer_for_an_argument_that_is_not_there_is_refused() -> None:
    with pytest.raises(SchemaError, match="none of its arguments"):
        declare_resource("x:{a}", one_argument, complete={"b": []})


def test_one_uri_is_offered_by_one_function(box: Toolbox) -> None:
    with pytest.raises(ValueError, match='resource "notes://all" is already offered'):
        resource("notes://all", toolbox=box)(no_arguments)
    box.remove_resource("notes://all")
    resource("notes://all", toolbox=box)(no_arguments)


# -- subscriptions -----------------------------------------------------------------------------------------------------


def watched(bench: CoreHarness, box: Toolbox) -> None:
    box.listen(bench.server.catalogue_changed, bench.server.resource_updated)


def test_a_session_is_notified_of_what_it_subscribed_to_until_it_unsubscribes(box: Toolbox, bench: CoreHarness) -> None:
    watched(bench, box)
    bench.open(channel="a")
    bench.open(channel="b")
    assert bench.request("resources/subscribe", {"uri": "notes://7"}, channel="a")["result"] == {}
    bench.sent.clear()
    resource_updated("notes://7", toolbox=box)
    resource_updated("notes://8", toolbox=box)
    note = {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "notes://7"}}
    assert bench.sent == [("a", Kind.NOTE, note, None, None)]
    bench.request("resources/unsubscribe", {"uri": "notes://7"}, channel="a")
    resource_updated("notes://7", toolbox=box)
    assert len(bench.notes()) == 1


def test_subscribing_to_what_is_not_there_is_refused(bench: CoreHarness) -> None:
    bench.open()
    assert bench.request("resources/subscribe", {"uri": "nowhere://x"})["error"]["code"] == -32002


def test_a_listener_gets_the_acknowledgement_first_then_what_it_asked_for_and_nothing_else(
    box: Toolbox, bench: CoreHarness
) -> None:
    watched(bench, box)
    wanted = {"resourcesListChanged": True, "toolsListChanged": False, "resourceSubscriptions": ["notes://7"]}
    assert bench.modern("subscriptions/listen", {"notifications": wanted}, id="l", channel="m") is None
    kept = {"resourcesListChanged": True, "resourceSubscriptions": ["notes://7"]}
    meta = {"_meta": {META_SUBSCRIPTION: "l"}}
    assert bench.notes() == [("notifications/subscriptions/acknowledged", {"notifications": kept} | meta, "l")]
    bench.sent.clear()
    box.remove_resource("notes://all")
    resource_updated("notes://7", toolbox=box)
    resource_updated("notes://8", toolbox=box)
    bench.server.catalogue_changed(["tools", "prompts"])
    assert bench.notes() == [
        ("notifications/resources/list_changed", meta, "l"),
        ("notifications/resources/updated", {"uri": "notes://7"} | meta, "l"),
    ]


def test_listening_ends_with_a_response_when_the_server_goes_and_silently_when_the_caller_does(
    bench: CoreHarness,
) -> None:
    for channel in ("stays", "leaves"):
        bench.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=3, channel=channel)
    bench.close("leaves")
    bench.sent.clear()
    bench.server.catalogue_changed(["tools"])
    assert [sent[0] for sent in bench.sent] == ["stays"]
    bench.sent.clear()
    bench.server.stop()
    ((channel, kind, message, _, _),) = bench.sent
    assert (channel, kind) == ("stays", Kind.RES)
    assert message["result"]["resultType"] == "complete"
    assert message["result"]["_meta"][META_SUBSCRIPTION] == 3
    bench.server.catalogue_changed(["tools"])
    assert len(bench.sent) == 1


@pytest.mark.parametrize(
    "wanted",
    [None, [], {"toolsListChanged": 1}, {"resourceSubscriptions": "x"}, {"resourceSubscriptions": [1]}],
)
def test_a_filter_that_is_none_is_refused(bench: CoreHarness, wanted: Any) -> None:
    error = bench.modern("subscriptions/listen", {"notifications": wanted})["error"]
    assert error["code"] == -32602 and error["message"].startswith("params.notifications")


def test_list_changed_of_every_kind_reaches_sessions(bench: CoreHarness) -> None:
    bench.open(replace(READY, version="2025-03-26"))
    bench.server.catalogue_changed()
    assert [method for method, _, _ in bench.notes()] == [
        "notifications/tools/list_changed",
        "notifications/resources/list_changed",
        "notifications/prompts/list_changed",
    ]


# -- completion -------------------------------------------------------------------------------------------------------


def complete(bench: CoreHarness, ref: dict[str, Any], name: str, value: str, **more: Any) -> Any:
    params = {"ref": ref, "argument": {"name": name, "value": value}, **more}
    answer = bench.modern("completion/complete", params)
    return answer["result"]["completion"] if "result" in answer else answer["error"]


def test_an_argument_of_a_template_is_completed(box: Toolbox, bench: CoreHarness) -> None:
    template = {"type": "ref/resource", "uri": "notes://{id}"}
    assert complete(bench, template, "id", "1") == {"values": ["1", "12"], "total": 2, "hasMore": False}
    assert complete(bench, template, "nothing", "")["code"] == -32602
    assert complete(bench, {"type": "ref/resource", "uri": "x:y"}, "id", "")["code"] == -32602
    assert complete(bench, {"type": "ref/else"}, "id", "")["code"] == -32602

    @resource("days://{day}", toolbox=box)
    def day(day: Literal["monday", "tuesday"]) -> str:
        return day

    days = {"type": "ref/resource", "uri": "days://{day}"}
    assert complete(bench, days, "day", "M")["values"] == ["monday"]
