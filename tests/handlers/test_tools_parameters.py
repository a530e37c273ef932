"""Parameters and schemas that the author of a tool writes instead of annotations."""

from __future__ import annotations

import re
import subprocess
from typing import Annotated, Any

import pytest

from tabserver.handlers.context import Context
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.toolbox import Toolbox
from tabserver.handlers.tools import declare
from tabserver.schema.shapes import SchemaError
from tests.support.toolbox_calls import call, schema_of


def test_a_schema_by_the_author_is_offered_unchanged_and_so_are_its_arguments() -> None:
    schema = {"type": "object", "$defs": {"a": {"$anchor": "b"}}, "if": {}, "additionalProperties": False}

    def f(ctx: Context, **arguments: Any) -> Any:
        return f"{ctx.request_id} {arguments}"

    box = Toolbox()
    box.add(declare(f, name="t", input_schema=schema))
    assert box.tools()[0]["inputSchema"] == schema
    assert call(box, x=[1])["content"][0]["text"] == "7 {'x': [1]}"


def test_parameters_may_be_written_as_a_schema_instead_of_annotated() -> None:
    def f(text, times, ctx, tone="kind"):  # type: ignore[no-untyped-def]
        return f"{text * times} {tone} {ctx.request_id}"

    box = Toolbox()
    tone = {"type": "string", "enum": ["kind", "stern"], "description": "How"}
    params = {"text": {"type": "string", "maxLength": 3}, "times": (int, 2), "ctx": Context, "tone": tone}
    box.add(declare(f, name="t", params=params))
    schema = box.tools()[0]["inputSchema"]
    assert schema["properties"] == {
        "text": {"type": "string", "maxLength": 3},
        "times": {"type": "integer", "default": 2},
        "tone": tone | {"default": "kind"},
    }
    assert schema["required"] == ["text"]
    assert call(box, text="a")["content"][0]["text"] == "aa kind 7"
    assert call(box, text="a", times=1, tone="stern")["content"][0]["text"] == "a stern 7"
    for wrong, fault in (
        ({"text": "abcd"}, "arguments.text: expected at most 3 characters, got 4"),
        ({"text": "a", "times": "1"}, 'arguments.times: expected integer, got string "1"'),
        ({"text": "a", "tone": "rude"}, 'arguments.tone: expected one of "kind", "stern"'),
        ({"text": "a", "ctx": 1}, "arguments.ctx: unknown argument"),
    ):
        with pytest.raises(InvalidArguments, match=re.escape(fault)):
            call(box, **wrong)


def test_items_are_checked_against_their_schema() -> None:
    box = Toolbox()
    params = {"x": {"type": "array", "items": {"type": "integer"}}}
    box.add(declare(lambda x: len(x), name="t", params=params))
    assert call(box, x=[1, 2])["content"][0]["text"] == "2"
    with pytest.raises(InvalidArguments, match=r"x\[1\]: expected integer"):
        call(box, x=[1, "2"])


@pytest.mark.parametrize(
    ("params", "fault"),
    [
        ({"other": str}, "tool t, params: the function has no parameter other"),
        ({"x": (int, 1, 2)}, "tool t, params: expected a type, or (type, default)"),
        ({"x": subprocess.Popen}, "tool t, parameter x: "),
    ],
)
def test_contradictory_parameters_are_refused(params: dict[str, Any], fault: str) -> None:
    with pytest.raises(SchemaError, match=re.escape(fault)):
        declare(lambda x: x, name="t", params=params)


def test_an_annotation_may_add_keywords_of_the_schema() -> None:
    hint = Annotated[str, "Where", {"x-mcp-header": "Region"}]
    assert schema_of(hint) == {"type": "string", "description": "Where", "x-mcp-header": "Region"}
