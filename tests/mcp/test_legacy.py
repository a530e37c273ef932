"""Lists in pages, and results in the form of older protocol versions."""

from __future__ import annotations

from typing import Any

import pytest

from tabserver.handlers.content import Audio, Link
from tabserver.handlers.toolbox import prompt
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller
from tests.support.held_calls import HeldServer


@pytest.fixture
def bench() -> HeldServer:
    return HeldServer()


def test_a_long_list_comes_in_pages(bench: HeldServer) -> None:
    bench.catalogue.offered = [{"name": f"t{n}", "inputSchema": {"type": "object"}} for n in range(250)]
    bench.open()
    seen, cursor, sizes = [], None, []
    while True:
        result = bench.request("tools/list", {"cursor": cursor} if cursor else {})["result"]
        seen += [tool["name"] for tool in result["tools"]]
        sizes.append(len(result["tools"]))
        cursor = result.get("nextCursor")
        if cursor is None:
            break
    assert seen == [f"t{n}" for n in range(250)] and sizes == [100, 100, 50]
    assert bench.modern("tools/list", {"cursor": None})["result"]["nextCursor"]


@pytest.mark.parametrize("cursor", ["x", "dG9vbHM6LTE=", "cHJvbXB0czoxMDA=", 3, "", "é"])
def test_a_cursor_that_is_not_ours_is_refused(bench: HeldServer, cursor: object) -> None:
    bench.open()
    error = bench.request("tools/list", {"cursor": cursor})["error"]
    assert error["code"] == -32602 and error["message"].startswith("params.cursor: unknown cursor")


@pytest.mark.parametrize(("value", "wrapped"), [("x", {"result": "x"}), (None, {"result": None}), ({"a": 1}, {"a": 1})])
def test_structured_content_is_an_object_in_both_eras(bench: HeldServer, value: Any, wrapped: Any) -> None:
    bench.catalogue.offered = [{"name": "add", "inputSchema": {"type": "object"}}]
    bench.catalogue.on_call = lambda request, done: done({"content": [], "structuredContent": value})
    bench.open()
    assert bench.request("tools/call", {"name": "add"})["result"]["structuredContent"] == wrapped
    assert bench.modern("tools/call", {"name": "add"})["result"]["structuredContent"] == wrapped


@pytest.mark.parametrize(
    ("version", "kinds"),
    [
        ("2024-11-05", ["resource", "text"]),
        ("2025-03-26", ["audio", "text"]),
        ("2025-06-18", ["audio", "resource_link"]),
    ],
)
def test_content_that_a_revision_does_not_have_is_converted(bench: HeldServer, version: str, kinds: list[str]) -> None:
    blocks = [Audio(b"\x00").block(), Link("a:b", "B").block()]

    @prompt(toolbox=bench.catalogue)
    def both() -> Any:
        return blocks

    bench.catalogue.on_call = lambda request, done: done({"content": blocks})
    bench.open(Caller(Era.LEGACY, version, "token:test", ready=True))
    content = bench.request("tools/call", {"name": "add"})["result"]["content"]
    assert [block["type"] for block in content] == kinds
    messages = bench.request("prompts/get", {"name": "both"})["result"]["messages"]
    assert [message["content"] for message in messages] == content
