"""Encoding of call errors between nodes: the caller gets the same error, whichever relay has the browser.

Pure. An error that can't be decoded becomes `BrowserGone`. Does not send anything.
"""

from __future__ import annotations

from typing import Any, Final

from tabrelay import errors
from tabrelay.errors import BadRequest, BrowserGone, RelayError, RelayUnavailable

RETRY_AFTER_MS: Final = 1000

_KINDS: Final[dict[str, type[RelayError]]] = {
    kind.reason: kind
    for kind in (
        errors.ServerOffline,
        errors.BrowserGone,
        errors.DeadlinePassed,
        errors.Busy,
        errors.ResultTooLarge,
        errors.RelayUnavailable,
        errors.UnknownServer,
        errors.BadAnswer,
        errors.UpstreamGone,
        errors.UpstreamFailed,
    )
}


def unreachable() -> RelayUnavailable:
    text = "This relay can't reach its bus, and so no server on another relay. Try again in a moment."
    return RelayUnavailable(text, retry_after_ms=RETRY_AFTER_MS)


def no_answer(server: str) -> RelayUnavailable:
    text = f'The relay that may have "{server}" does not answer. Try again in a moment.'
    return RelayUnavailable(text, retry_after_ms=RETRY_AFTER_MS)


def to_dict(error: RelayError) -> dict[str, Any]:
    row: dict[str, Any] = {"reason": error.reason, "message": error.message, "retry_after_ms": error.retry_after_ms}
    if isinstance(error, BadRequest):
        row |= {"status": error.status, "code": error.code, "extra": error.extra}
    return row


def from_dict(row: object) -> RelayError:
    """An error that can't be decoded means that the outcome of the call is unknown."""
    if not isinstance(row, dict) or not isinstance(row.get("message"), str):
        return BrowserGone("Another relay reported a failure that this one does not understand.")
    kind = _KINDS.get(str(row.get("reason")))
    retry = row.get("retry_after_ms")
    if kind is not None:
        return kind(row["message"], retry_after_ms=retry if isinstance(retry, int) else None)
    status, code, extra = row.get("status"), row.get("code"), row.get("extra")
    if isinstance(status, int) and isinstance(code, int):
        more = extra if isinstance(extra, dict) else None
        return BadRequest(row["message"], status=status, code=code, reason=str(row.get("reason")), extra=more)
    return BrowserGone(row["message"])
