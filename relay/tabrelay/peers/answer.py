"""What a browser answers, looked at once: is it an answer to this request at all, and of which kind? Pure."""

from __future__ import annotations

from typing import Any, Final

import orjson

from tabrelay.bulk import SMALL, is_bulky
from tabrelay.errors import BadAnswer
from tabrelay.gist import SHORT
from tabrelay.slices import Payload, Slices
from tabserver.wire.jsonrpc import RequestId

ESCAPED: Final = 12
"""So many characters may one take as it is written: a pair of surrogates."""


def read(payload: str) -> dict[str, Any] | None:
    """One line of valid JSON, and an object. A raw newline would forge events on a caller's SSE stream; what has too
    many values would take all memory."""
    if "\n" in payload or "\r" in payload or (len(payload) > SMALL and is_bulky(payload)):
        return None
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None
    return message if isinstance(message, dict) else None


def judge(payload: Payload, id: RequestId) -> tuple[int | None, bool]:
    """The code of its error, if it is one; and is it a plain result, neither a tool's error nor a question? Raises the
    truth about an answer that is none."""
    message = read(payload) if isinstance(payload, str) else _skimmed(payload, id)
    if message is None or message.get("id") != id:
        raise BadAnswer("The browser's answer is not a JSON-RPC response to this request.")
    if "error" in message:
        error = message["error"]
        code = error.get("code") if isinstance(error, dict) else None
        if isinstance(code, int):
            return code, False
    if "result" not in message:
        raise BadAnswer("The browser's answer has neither a result nor an error.")
    result = message["result"]
    is_plain = type(result) is dict and not result.get("isError") and result.get("resultType") != "input_required"
    return None, is_plain


def _skimmed(payload: Slices, id: RequestId) -> dict[str, Any] | None:
    """A long answer without its long strings, in which is nothing that anybody asks for: unless the id is one."""
    gist, payload.gist = payload.gist, None  # it may be as large as the rest
    message = None if gist is None else read(gist)
    if message is not None and isinstance(id, str) and len(id) * ESCAPED > SHORT:
        message["id"] = (read(payload.decode()) or {}).get("id")
    return message
