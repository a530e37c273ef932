"""JSON-RPC 2.0 as MCP uses it: error codes, ids, constructors of messages, and values in error texts.

An id is a string or an integer of bounded length. Messages are dictionaries; nothing here parses or serializes them.
"""

from __future__ import annotations

import json
from typing import Any, Final, TypeGuard

from .help_codes import with_help

RequestId = int | str
Message = dict[str, Any]

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800
HEADER_MISMATCH: Final = -32020
MISSING_CAPABILITY: Final = -32021
UNSUPPORTED_VERSION: Final = -32022
# The code of handshake versions for an unknown resource. The modern version has none.
RESOURCE_NOT_FOUND: Final = -32002


# Characters of an id or a progress token. L16: frame headers, responses and every message about a request repeat it.
MAX_ID: Final = 1024
_LARGEST: Final = 1 << 64


def is_request_id(value: object) -> TypeGuard[RequestId]:
    """MCP narrows JSON-RPC: an id is a string or an integer, never null, a fraction or a boolean. A string has at most
    MAX_ID characters, an integer at most 64 bits."""
    if isinstance(value, str):
        # defence: the length of an id, where messages enter
        return len(value) <= MAX_ID
    return isinstance(value, int) and not isinstance(value, bool) and -_LARGEST < value < _LARGEST


def id_flaw(value: object, what: str = "A request's id") -> str | None:
    """The error in an id or a progress token, as a text for its sender; None if there is none."""
    if is_request_id(value):
        return None
    if isinstance(value, str):
        return f"{what} has at most {MAX_ID:,} characters; this one has {len(value):,}."
    return f"{what} must be a string or an integer."


def result_message(id: RequestId, result: Any) -> Message:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def error_message(id: RequestId | None, code: int, message: str, data: Any = None) -> Message:
    """An error of this product: its `data` has the code of its entry in the reference."""
    error: dict[str, Any] = {"code": code, "message": message}
    data = with_help(code, data)
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def notification(method: str, params: dict[str, Any] | None = None) -> Message:
    message: Message = {"jsonrpc": "2.0", "method": method}
    if params is not None:
        message["params"] = params
    return message


def request(id: RequestId, method: str, params: dict[str, Any] | None = None) -> Message:
    message = notification(method, params)
    message["id"] = id
    return message


# The types that json.loads returns; others take the slower branch.
_KINDS: Final[dict[type, str]] = {
    str: "string",
    dict: "object",
    list: "array",
    int: "number",
    float: "number",
    bool: "boolean",
    type(None): "null",
}


def kind_of(value: object) -> str:
    """The JSON name of a value's kind."""
    kind = _KINDS.get(type(value))
    if kind is not None:
        return kind
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


def show(value: object) -> str:
    """A value in an error message: its kind and, if short, its text."""
    kind = kind_of(value)
    if kind == "null":
        return "null"
    if kind in ("array", "object"):
        return kind
    text = json.dumps(value, ensure_ascii=False)
    return f"{kind} {text if len(text) <= 42 else text[:40] + '…'}"
