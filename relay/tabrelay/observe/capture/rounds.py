"""Rounds of one call: finds the captured call whose questions a request answers.

A client of 2026-07-28 makes its call again, with the answers and with the state that came with the questions. Both are
compared with what captured calls returned. Reads the ring of captured calls and changes nothing.
"""

from __future__ import annotations

from itertools import islice
from typing import Any, Final

import orjson

from tabrelay.observe.capture.captured_call import ASKS_CLIENT, CapturedCall
from tabrelay.observe.capture.ring import CaptureRing

# A request that answers reads so many calls at most, and the results of so many that asked, if they are this short.
MAX_CALLS: Final = 1000
MAX_ASKED: Final = 16
MAX_RESULT: Final = 16 * 1024


def round_before(ring: CaptureRing, server: str, message: dict[str, Any]) -> CapturedCall | None:
    """The newest call that asked what this request answers; None if it answers nothing that was captured."""
    params = message.get("params")
    if not isinstance(params, dict) or not ("requestState" in params or "inputResponses" in params):
        return None
    method, name = message["method"], params.get("name", params.get("uri"))
    newest = islice(ring.newest(), MAX_CALLS)
    asked = (
        call
        for call in newest
        if call.outcome == ASKS_CLIENT and (call.server, call.method, call.name) == (server, method, name)
    )
    return next((call for call in islice(asked, MAX_ASKED) if _is_answered(call, params)), None)


def _is_answered(call: CapturedCall, params: dict[str, Any]) -> bool:
    if call.answer.size > MAX_RESULT or call.answer.is_cut:
        return False
    try:
        result = orjson.loads(call.answer.text).get("result")
    except ValueError:  # text that only the standard library reads
        return False
    if not isinstance(result, dict):
        return False
    asked, given = result.get("inputRequests", {}), params.get("inputResponses", {})
    is_same = result.get("requestState") == params.get("requestState")
    return is_same and isinstance(asked, dict) and isinstance(given, dict) and given.keys() <= asked.keys()
