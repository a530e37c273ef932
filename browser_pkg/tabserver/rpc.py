"""JSON-RPC messages as JSON text: parsing with errors that name the path, and serializing.

Parsing refuses NaN and nesting deeper than MAX_DEPTH; serializing gives one line without NaN and lone surrogates. The
meaning of methods is not defined here: see `mcp/server.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable
from difflib import get_close_matches
from json.encoder import encode_basestring
from typing import Any, Final, NoReturn

from .wire import methods
from .wire.frames import depth
from .wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, PARSE_ERROR, RequestId, show

MAX_DEPTH: Final = 256

_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")


class Refusal(Exception):
    """A JSON-RPC error as the answer to the current request."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


def load(text: str) -> Any:
    """Parse untrusted JSON. Raises ValueError, also for NaN and for nesting deeper than MAX_DEPTH.

    In a browser the interpreter runs on a small stack: deep nesting would not raise there but end the whole worker.
    """
    if text.count("[") + text.count("{") > MAX_DEPTH and depth(text) > MAX_DEPTH:
        raise ValueError(f"nested deeper than {MAX_DEPTH} levels")
    # Most texts have no white space around them, which `decode` would skip with Python code.
    try:
        value, end = _READER.raw_decode(text)
    except ValueError:
        end = -1
    return value if end == len(text) else _READER.decode(text)


def parse(payload: str, id: RequestId | None) -> tuple[str, dict[str, Any]]:
    """Method and params of a request or notification. Raises Refusal for anything else."""
    try:
        message: object = load(payload)
    except (ValueError, RecursionError) as error:
        raise Refusal(PARSE_ERROR, f"The message is not valid JSON: {error}") from None
    if type(message) is not dict or message.get("jsonrpc") != "2.0":
        raise Refusal(INVALID_REQUEST, 'A message is an object with "jsonrpc": "2.0"')
    # The types are compared too: in Python 1 equals True and 1.0.
    if id is not None and (message.get("id") != id or type(message["id"]) is not type(id)):
        raise Refusal(INVALID_REQUEST, f"id: expected {show(id)}, got {show(message.get('id'))}")
    method, params = message.get("method"), message.get("params", {})
    if type(method) is not str:
        raise Refusal(INVALID_REQUEST, f"method: expected string, got {show(method)}")
    if type(params) is not dict:
        raise Refusal(INVALID_PARAMS, f"params: expected object, got {show(params)}")
    # defence: params of any type: the envelope of a request in the worker
    if type(params.get("_meta", {})) is not dict:
        raise Refusal(INVALID_PARAMS, f"params._meta: expected object, got {show(params['_meta'])}")
    return method, params


def parse_answer(payload: str) -> tuple[str, dict[str, Any] | Refusal] | None:
    """Id and result, or error, of a response to a request of this server; None if it is no such response."""
    try:
        message: object = load(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or not isinstance(message.get("id"), str):
        return None
    result, error = message.get("result"), message.get("error")
    if isinstance(result, dict):
        return message["id"], result
    if isinstance(error, dict) and isinstance(error.get("code"), int):
        return message["id"], Refusal(error["code"], str(error.get("message", "")), error.get("data"))
    return None


def read_level(value: object, path: str) -> str:
    if not isinstance(value, str) or value not in methods.LOG_LEVELS:
        raise Refusal(INVALID_PARAMS, f"{path}: expected one of {', '.join(methods.LOG_LEVELS)}, got {show(value)}")
    return value


def is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def loggable(data: Any) -> Any:
    """The value for a log message: the value itself, or its repr if JSON can't represent it."""
    try:
        dump(data)
    except (ValueError, TypeError, RecursionError):
        return repr(data)
    return data


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")


# Created once: `json.loads` and `json.dumps` create a new object for each text if any option differs from the default.
_READER: Final = json.JSONDecoder(parse_constant=_no_constant)
_WRITER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def quote(text: str) -> str:
    """`dump` for a string."""
    quoted = encode_basestring(text)
    return quoted if quoted.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", quoted)


def dump(value: Any) -> str:
    """One line of strict JSON, as the link requires: no raw newline, no NaN, no half of a surrogate pair."""
    text = _WRITER.encode(value)
    return text if text.isascii() else _LONE_SURROGATE.sub("\N{REPLACEMENT CHARACTER}", text)


def unknown(noun: str, name: str, offered: Iterable[dict[str, Any]]) -> str:
    """The error text for an unknown name, with the names that were probably meant."""
    known = [str(item.get("name")) for item in offered]
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        hint = f" Did you mean {' or '.join(json.dumps(word, ensure_ascii=False) for word in near)}?"
    else:
        hint = f" There are: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else ""
    shown = json.dumps(name[:128], ensure_ascii=False)
    return f"Unknown {noun} {shown}.{hint or f' No {noun}s are offered right now.'}"
