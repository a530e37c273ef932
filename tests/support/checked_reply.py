"""Validation of a reply to a list request in one call."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from tabrelay.payloads.list_checks import ListBounds, Rejection, checking_reply, run_to_end


def check_reply(method: str, payload: str, bounds: ListBounds) -> tuple[str, Sequence[Rejection]]:
    """The reply without rejected items, as the relay passes it on."""
    sifted, flaws = run_to_end(checking_reply(method, orjson.loads(payload), bounds))
    return payload if sifted is None else orjson.dumps(sifted).decode(), flaws
