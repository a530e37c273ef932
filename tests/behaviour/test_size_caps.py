"""Offers of a page that exceed a size: the page gets the error where it declares them, instead of a silent omission
later."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tabrelay.config.settings import Settings
from tabrelay.payloads.list_checks import ListBounds, inspect
from tabserver.handlers.toolbox import Toolbox, tool
from tabserver.schema import size_caps
from tabserver.schema.shapes import SchemaError
from tabserver.tabs.offers import check_prompt, check_resource, check_tool
from tabserver.wire.limits import MAX_TITLE
from tests.support.paths import JS as JS_FOLDER

JS = JS_FOLDER / "client" / "offers.js"


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels - 1):
        schema = {"x": schema}
    return {**schema, "type": "object"}


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"description": "x" * 8193}, r"description has 8,193 characters; at most 8,192"),
        ({"title": "x" * 257}, r"title has 257 characters; at most 256"),
        ({"description": "a\x1b[31m"}, "control or direction"),
        ({"title": "a\u202eb"}, "control or direction"),
        ({"inputSchema": nested(33)}, "inputSchema nests 33 levels deep; at most 32"),
        ({"outputSchema": nested(2000)}, "outputSchema nests 2000 levels deep"),
    ],
)
def test_what_is_too_much_is_named_with_what_would_do(more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_tool({"name": "t", **more})


def test_resources_and_prompts_have_the_same_checks() -> None:
    with pytest.raises(ValueError, match="description"):
        check_resource({"uri": "a:b", "description": "x" * 9000})
    with pytest.raises(ValueError, match="name has 129"):
        check_prompt({"name": "x" * 129})
    assert check_resource({"uri": "a:" + "b" * 200})["name"]


def test_a_function_in_the_worker_is_refused_where_it_is_declared() -> None:
    with pytest.raises(SchemaError, match="tool long: Its description has"):

        @tool(name="long", description="x" * 9000, toolbox=Toolbox())
        def long() -> None: ...


def test_what_passes_here_passes_at_the_relay() -> None:
    full = {"name": "x" * 128, "title": "t" * 256, "description": "d" * 8192, "inputSchema": nested(32)}
    assert inspect("tools", [check_tool(full)], ListBounds())[1] == []


def test_page_worker_and_relay_have_the_same_numbers() -> None:
    in_page = {
        name: int(value) for name, value in re.findall(r"^const (MAX_\w+) = (\d+);", JS.read_text(), re.MULTILINE)
    }
    here = {
        "MAX_TITLE": MAX_TITLE,
        "MAX_DESCRIPTION": size_caps.MAX_DESCRIPTION,
        "MAX_DEPTH": size_caps.MAX_DEPTH,
    }
    settings = Settings()
    assert (
        in_page
        == here
        == {
            "MAX_TITLE": MAX_TITLE,
            "MAX_DESCRIPTION": settings.max_description,
            "MAX_DEPTH": settings.max_schema_depth,
        }
    )
