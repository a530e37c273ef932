"""`Mcp-Param-*` headers: which arguments a schema repeats, and when header and argument are equal."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.shared.inbound import (
    decode_header_value,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    validate_mcp_param_headers,
    x_mcp_header_map,
)

from tabrelay.errors import BadRequest
from tabrelay.http.param_headers import ParamHeader, check, encode, param_headers
from tests.support.link_worker import SyntheticWorker
from tests.support.running_relay import RunningRelay
from tests.support.waiting import pause

REGION = {"type": "string", "x-mcp-header": "Region"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": REGION,
        "place": {"type": "object", "properties": {"floor": {"type": "integer", "x-mcp-header": "Floor"}}},
        "dry": {"type": "boolean", "x-mcp-header": "Dry-Run"},
    },
}


def encoded(text: str) -> str:
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def agree(arguments: Any, *headers: tuple[str, str]) -> bool:
    values: dict[bytes, list[str]] = {}
    for key, value in headers:
        values.setdefault(key.lower().encode(), []).append(value)
    try:
        check(param_headers(SCHEMA), arguments, values)
    except BadRequest as error:
        assert (error.status, error.code) == (400, -32020)
        return False
    return True


@pytest.mark.requirement("modern-param-headers")
def test_a_schema_names_the_arguments_that_are_repeated() -> None:
    assert set(param_headers(SCHEMA)) == {
        ParamHeader("mcp-param-region", ("region",), "string"),
        ParamHeader("mcp-param-floor", ("place", "floor"), "integer"),
        ParamHeader("mcp-param-dry-run", ("dry",), "boolean"),
    }


@pytest.mark.parametrize(
    "schema",
    [
        None,
        {"x-mcp-header": "A", "type": "string"},
        {"properties": {"a": {"type": "number", "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": ["string"], "x-mcp-header": "A"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": "no good"}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": ""}}},
        {"properties": {"a": {"type": "string", "x-mcp-header": 7}}},
        {"properties": {"a": REGION, "b": {"type": "string", "x-mcp-header": "REGION"}}},
        {"properties": {"a": {"type": "array", "items": REGION}}},
        {"properties": {"a": REGION}, "anyOf": [{"properties": {"b": {"type": "string", "x-mcp-header": "B"}}}]},
        {"properties": {"a": REGION}, "$defs": {"b": {"type": "string", "x-mcp-header": "B"}}},
    ],
)
@pytest.mark.requirement("modern-param-headers")
def test_a_schema_that_breaks_a_rule_has_none(schema: Any) -> None:
    assert param_headers(schema) == ()
    assert find_invalid_x_mcp_header(schema) is not None or schema is None


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        None,
        {"region": None, "place": {"floor": 7}, "dry": False},
        {"region": "eu west", "place": "top"},
        {"region": " eu"},
        {"region": "Zürich\n"},
        {"region": "=?base64?ZXU=?="},
        {"region": ""},
        {"region": {"not": "plain"}, "place": {"floor": 7.0}},
    ],
)
@pytest.mark.requirement("modern-param-headers")
def test_what_a_client_writes_agrees_with_its_arguments(arguments: Any) -> None:
    headers = mcp_param_headers(x_mcp_header_map(SCHEMA), arguments or {})
    assert all(value.isascii() and value.isprintable() and value == value.strip() for value in headers.values())
    assert agree(arguments, *headers.items())


@pytest.mark.parametrize(
    ("arguments", "headers", "is_fine"),
    [
        ({}, [], True),
        (None, [], True),
        ({"region": "eu"}, [("Mcp-Param-Region", "eu")], True),
        ({"region": "eu"}, [("Mcp-Param-Region", encoded("eu"))], True),
        ({"region": "Köln "}, [("Mcp-Param-Region", encoded("Köln "))], True),
        ({"region": "eu"}, [("Mcp-Param-Other", "x"), ("Mcp-Param-Region", "eu")], True),
        ({"region": None}, [], True),
        ({"place": {"floor": 42}}, [("Mcp-Param-Floor", "42.0")], True),
        ({"place": {"floor": 42.0}}, [("Mcp-Param-Floor", "42")], True),
        ({"dry": True}, [("Mcp-Param-Dry-Run", "true")], True),
        ({"region": "eu"}, [("Mcp-Param-Region", "us")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "EU")], False),
        ({"region": "Köln"}, [("Mcp-Param-Region", "Köln")], False),
        ({"region": "eu"}, [], False),
        ({}, [("Mcp-Param-Region", "eu")], False),
        ({"region": None}, [("Mcp-Param-Region", "null")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "eu"), ("mcp-param-region", "eu")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?base64?!!?=")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?base64?ZXV=?=")], False),
        ({"region": "eu"}, [("Mcp-Param-Region", "=?BASE64?ZXU=?=")], False),
        ({"place": {"floor": 42}}, [("Mcp-Param-Floor", "4.2e1")], False),
        ({"place": {"floor": 42}}, [("Mcp-Param-Floor", "42.5")], False),
        ({"place": "top"}, [("Mcp-Param-Floor", "42")], False),
        ({"dry": True}, [("Mcp-Param-Dry-Run", "True")], False),
        ({"region": ["eu"]}, [("Mcp-Param-Region", "eu")], False),
    ],
)
@pytest.mark.requirement("modern-param-headers")
def test_header_and_argument_must_be_equal(arguments: Any, headers: list[tuple[str, str]], is_fine: bool) -> None:
    assert agree(arguments, *headers) is is_fine
    if all(value.isascii() for _, value in headers):  # the SDK's servers decode headers as Latin-1
        theirs = validate_mcp_param_headers(SCHEMA, arguments or {}, dict(headers))
        assert (theirs is None) is is_fine


TOKENS = st.sampled_from(["Region", "REGION", "Floor", "no good", "", 7])
MARKED = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "boolean", "number", ["string"]])}, optional={"x-mcp-header": TOKENS}
)
SCHEMAS = st.recursive(
    MARKED,
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "$defs": st.dictionaries(st.sampled_from("abc"), inner, max_size=2),
        },
    ),
    max_leaves=6,
)


@pytest.mark.requirement("modern-param-headers")
@settings(deadline=None, max_examples=300)
@given(SCHEMAS)
def test_schemas_are_read_as_the_sdk_reads_them(schema: Any) -> None:
    ours = {param.path: param.header.removeprefix("mcp-param-") for param in param_headers(schema)}
    theirs = {} if find_invalid_x_mcp_header(schema) is not None else x_mcp_header_map(schema)
    assert ours == {path: token.lower() for path, token in theirs.items()}


@pytest.mark.requirement("modern-param-headers")
@settings(deadline=None)
@given(st.text())
def test_header_values_are_written_as_the_sdk_writes_them(text: str) -> None:
    try:
        written = encode(text)
    except UnicodeEncodeError:  # an unpaired surrogate
        return
    assert written == encode_header_value(text)
    assert decode_header_value(written) == text


@pytest.mark.requirement("modern-param-headers")
async def test_a_call_is_compared_with_the_last_known_schema(tmp_path: Path) -> None:
    async with RunningRelay(tmp_path) as relay, SyntheticWorker(relay.url, relay.token, "notes") as worker:
        worker.tools = [{"name": "go", "inputSchema": SCHEMA}]
        async with asyncio.timeout(60):
            while not (await relay.http.get("/-/status")).json()["servers"][0]["tools"]:
                await pause()
        request = relay.modern("tools/call", {"name": "go", "arguments": {"region": "eu"}}, id="r")
        refused = await relay.http.post("/notes", **request)
        assert (refused.status_code, refused.json()["error"]["code"], refused.json()["id"]) == (400, -32020, "r")
        request["headers"]["Mcp-Param-Region"] = "eu"
        assert (await relay.http.post("/notes", **request)).status_code == 200
        unknown = relay.modern("tools/call", {"name": "new", "arguments": {"region": "eu"}})
        assert (await relay.http.post("/notes", **unknown)).status_code == 200
