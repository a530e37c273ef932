"""Rows and details of captured calls, as the console gets them: redacted, bounded, and never longer than what is kept.

A row is made for each batch of the live feed, so it parses nothing. A detail parses the texts of one call; its maker
calls `detail_of` in a thread, because a large text takes longer than a callback may.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from tabrelay.calls.calls import LISTS
from tabrelay.calls.trace_context import Headers
from tabrelay.errors import RelayError
from tabrelay.mcp_headers import RAW_SESSION_ID
from tabrelay.observe.call_log import shown_text
from tabrelay.observe.capture.captured_call import CANCELLED, CapturedCall, CutText, TimedText, client_of
from tabrelay.observe.log_setup import redact
from tabrelay.observe.redaction import HIDDEN, is_secret_name, redacted, redacted_beginning
from tabserver.wire import methods
from tabserver.wire.help_codes import with_help

Row = dict[str, Any]

MAX_NAME: Final = 300
_LAST_WORD: Final = re.compile(r"\S{1,300}\Z")
KINDS: Final = {
    **dict.fromkeys(LISTS, "list"),
    methods.SERVER_DISCOVER: "list",
    methods.INITIALIZE: "list",
    methods.RESOURCES_READ: "read",
    methods.PROMPTS_GET: "prompt",
    methods.COMPLETION_COMPLETE: "prompt",
    methods.SUBSCRIPTIONS_LISTEN: "listen",
}
# Reasons of errors that state a refusal by the relay.
REFUSALS: Final = frozenset(
    {"busy", "forbidden", "held", "rate_limited", "refused_in_console", "too_large", "too_many_sessions"}
)
SUCCESS: Final = frozenset({"ok", "asks_client"})
# Headers that hold a credential.
SECRET_HEADERS: Final = frozenset({b"authorization", b"proxy-authorization", b"cookie", RAW_SESSION_ID})
# Characters of JSON for each token of a model, roughly.
CHARACTERS_PER_TOKEN: Final = 4


def kind_of(method: str) -> str:
    return KINDS.get(method, "call")


def row_of(call: CapturedCall, relay: str) -> Row:
    client = client_of(call.caller)
    error = call.error
    is_over = call.ended_at is not None
    return {
        "id": call.id,
        "seq": call.seq,
        "group": call.group,
        "server": call.server,
        "method": _label(call.method),
        "name": _label(call.name) if call.name is not None else None,
        "kind": kind_of(call.method),
        "client": {
            "name": _label(client.get("name")) or None,
            "version": _label(client.get("version")) or None,
        },
        "era": call.caller.version if call.caller is not None else None,
        "principal": call.caller.principal if call.caller is not None else None,
        "by": call.by,
        "peer": call.peer,
        "tab": _label(call.tab) if call.tab is not None else None,
        "tab_title": _label(call.tab_title) if call.tab_title is not None else None,
        "started": _ms(call.started),
        "ms": _duration_ms(call.started, call.ended_at) if is_over else None,
        "state": state_of(call),
        "code": error.code if isinstance(error, RelayError) else error,
        "error": _error(call),
        "delivered": error.delivered if isinstance(error, RelayError) else None,
        "approval": call.approval,
        "bytes_in": call.request.size,
        "bytes_out": call.answer.size,
        "tokens_in": call.request.size // CHARACTERS_PER_TOKEN,
        "tokens_out": call.answer.size // CHARACTERS_PER_TOKEN if is_over else None,
        "trace": call.trace_id,
        "rounds": call.rounds,
        "replays": call.replays,
        "held": call.is_held_now,
        "relay": relay,
    }


def _label(text: Any) -> str:
    """A short text of another program. Of a long one, only what is shown is searched for secrets, and its last word is
    left out: it may be the half of one. Many calls may have long names that differ."""
    # defence: loop time of captured names
    if isinstance(text, str) and len(text) > MAX_NAME:
        text = _LAST_WORD.sub("", text[:MAX_NAME]) + "…"
    return shown_text(text, MAX_NAME + 1)


def state_of(call: CapturedCall) -> str:
    if call.ended_at is None:
        return "waiting" if call.is_waiting else "running"
    if call.outcome in SUCCESS:
        return "done"
    if call.outcome == CANCELLED:
        return CANCELLED
    return "refused" if call.outcome in REFUSALS else "failed"


def _error(call: CapturedCall) -> Row | None:
    if call.ended_at is None or call.outcome in SUCCESS:
        return None
    message = call.error.message if isinstance(call.error, RelayError) else None
    return {"reason": call.outcome, "message": _label(message) if message else None}


def detail_of(call: CapturedCall, row: Row) -> Row:
    """Everything that is kept of a call. May take a while: see the module's docstring."""
    is_listing = row["kind"] == "list"
    request = _message(call.request, is_listing=False)
    answer = _message(call.answer, is_listing=is_listing)
    spans = _spans(call)
    truncated = {"request": call.request.is_cut, "response": call.answer.is_cut}
    return {
        "row": row,
        "request": {
            "method": row["method"],
            "params": request.get("params", request if "text" in request else None),
            "headers": shown_headers(call.headers),
        },
        "response": _response(call, answer),
        "notices": [_notice(each) for each in call.notices],
        "events": [
            {"at": _ms(each.at), "kind": each.kind, "text": shown_text(each.text, 2000)} for each in call.events
        ],
        "dropped": call.dropped,
        "spans": spans,
        "total_ms": round(sum(span["ms"] for span in spans), 3),
        "clock": _clock(call),
        "truncated": truncated if any(truncated.values()) else False,
    }


def _spans(call: CapturedCall) -> list[Row]:
    """Where the time went, in the order of the hops."""
    began = call.hops.began
    return [
        {
            "name": span.name,
            "hop": span.hop,
            "at": _ms(call.started + span.began - began),
            "ms": round((span.ended - span.began) * 1000, 3),
            "why": span.why,
        }
        for span in call.hops.spans()
    ]


def _clock(call: CapturedCall) -> Row | None:
    """How the worker's clock compares with the relay's."""
    exchange = call.hops.exchange
    return None if exchange is None else {"offset_ms": _ms(exchange.offset_s), "error_ms": _ms(exchange.error_s)}


def _response(call: CapturedCall, answer: Row) -> Row | None:
    if isinstance(call.error, RelayError):
        data = with_help(call.error.code, call.error.data(call.server))
        return {"error": {"code": call.error.code, "message": redact(call.error.message), "data": data}}
    if not call.answer.text:
        return None
    return {key: answer[key] for key in ("result", "error", "text") if key in answer} or None


def _notice(each: TimedText) -> Row:
    message: Row = _message(CutText(each.text, len(each.text), is_cut=False), is_listing=False)
    about: Row = {key: message[key] for key in ("id", "method", "params", "text") if key in message}
    return {"at": _ms(each.at), **about}


def _message(text: CutText, *, is_listing: bool) -> Row:
    """A JSON-RPC message without secrets; `{"text": …}` if only its beginning is kept. What tools declare is no secret
    by its name, such as an argument `token`."""
    if text.text and not text.is_cut:
        try:
            value = orjson.loads(text.text)
            clean = _redacted_texts(value) if is_listing else redacted(value)
            return clean if isinstance(clean, dict) else {"text": orjson.dumps(clean).decode()}
        except (ValueError, RecursionError):
            pass
    return {"text": redacted_beginning(text.text)} if text.text else {}


def _redacted_texts(value: Any) -> Any:
    """Redacted by form only."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redacted_texts(each) for each in value]
    return {key: _redacted_texts(each) for key, each in value.items()} if isinstance(value, dict) else value


def shown_headers(headers: Headers) -> dict[str, str]:
    """Names in lower case; credentials are hidden."""
    # defence: credentials in captured headers
    return {
        (name := raw.decode("latin-1")): HIDDEN
        if raw in SECRET_HEADERS or is_secret_name(name.replace("-", "_"))
        else redact(value)
        for raw, value in headers.items()
    }


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 3)


def _duration_ms(began: float, ended: float | None) -> float | None:
    return None if ended is None else round(max(0.0, ended - began) * 1000, 3)
