"""Validation and classification of a browser's response: a result, an error, or not a response to this request.

Each response is parsed once. A large one is checked by its skeleton, without its long strings. Pure functions: the
caller fails or finishes the call.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from tabrelay.errors import BadAnswer, RelayError, ResultTooLarge
from tabrelay.payloads.json_limits import DENSEST, is_heavy
from tabrelay.payloads.json_skeleton import LONGEST_ID
from tabrelay.payloads.sliced import Payload, SlicedPayload, text_of
from tabserver.wire.jsonrpc import RequestId

MAX_ESCAPED: Final = 12
"""Characters that JSON may need for one character: an escaped pair of surrogates."""


def read(payload: str, most: int) -> dict[str, Any] | None:
    """The object in one line of valid JSON, or None. A raw newline would forge events on a caller's SSE stream. A
    message of more than `most` values would take too long to parse."""
    # F2: a payload is one line of valid JSON.
    # defence: values of a message in one frame
    if "\n" in payload or "\r" in payload or (len(payload) * DENSEST > most and is_heavy(payload, most)):
        return None
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return message if type(message) is dict else None


def read_skeleton(payload: Payload, most: int) -> dict[str, Any] | None:
    """The same for a message that may be long: then without its long strings, except an `id`."""
    if isinstance(payload, str):
        return read(payload, most)
    skeleton, payload.skeleton = payload.skeleton, None  # it may be as large as the rest
    return None if skeleton is None else read(skeleton, most)


def classify(payload: Payload, id: RequestId, most: int) -> tuple[int | None, bool]:
    """The code of its error, if it is one, and whether it is a plain result: neither a tool's error nor a question.
    Raises BadAnswer if it is no response to this request, ResultTooLarge if it has more than `most` values."""
    if type(payload) is SlicedPayload:
        message = read_skeleton(payload, most)
        if message is not None and isinstance(id, str) and len(id) * MAX_ESCAPED > LONGEST_ID:
            message["id"] = (read(payload.decode(), most) or {}).get("id")
    else:
        message = read(text_of(payload), most)
    if message is None or message.get("id") != id:
        raise _refusal(payload, most)
    if "error" in message:
        error = message["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int):
            return code, False
    if "result" not in message:
        raise BadAnswer("The browser's answer has neither a result nor an error.")
    result = message["result"]
    is_plain = type(result) is dict and not result.get("isError") and result.get("resultType") != "input_required"
    if not is_plain and isinstance(payload, SlicedPayload) and type(result) is dict:
        kind = {key: result[key] for key in ("isError", "resultType") if type(result.get(key)) in (bool, str)}
        payload.summary = orjson.dumps({"result": kind}).decode()
    return None, is_plain


def _refusal(payload: Payload, most: int) -> RelayError:
    if payload.is_heavy if isinstance(payload, SlicedPayload) else is_heavy(payload, most):
        return ResultTooLarge(
            f"The browser's answer has more than {most:,} values, where keys and lists count twice. "
            "Ask for less at once, or let the tool return them as one text."
        )
    return BadAnswer("The browser's answer is not a JSON-RPC response to this request.")
