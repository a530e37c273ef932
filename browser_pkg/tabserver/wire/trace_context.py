"""W3C trace context of MCP requests: the trace that a call belongs to, and the caller's span.

MCP 2026-07-28 reserves three `_meta` keys without a prefix for it: `traceparent`, `tracestate` and `baggage`. The
worker and the relay read them here. An invalid context is ignored; no request is refused because of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
BAGGAGE: Final = "baggage"
# W3C Trace Context, 3.3.1.3: a longer one may be dropped. W3C Baggage, 3.3.2: the limit of its text.
MAX_STATE: Final = 512
MAX_BAGGAGE: Final = 8192
# A later version may have more fields after these. `ff` is forbidden.
_PARENT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-[\x21-\x7e]{0,200})?")
_TEXT: Final = re.compile(r"[\x20-\x7e\t]*")


@dataclass(frozen=True, slots=True)
class TraceContext:
    """`traceparent` is always valid; the others are empty if they were absent or invalid."""

    traceparent: str
    tracestate: str = ""
    baggage: str = ""

    @property
    def trace_id(self) -> str:
        return self.traceparent[3:35]

    @property
    def span_id(self) -> str:
        """The caller's span: the parent of all spans made here."""
        return self.traceparent[36:52]

    @property
    def is_sampled(self) -> bool:
        """Does the caller record this trace?"""
        return bool(int(self.traceparent[53:55], 16) & 1)

    def to_dict(self) -> dict[str, str]:
        more = {STATE: self.tracestate, BAGGAGE: self.baggage}
        return {PARENT: self.traceparent} | {key: value for key, value in more.items() if value}

    @classmethod
    def read(cls, source: object) -> TraceContext | None:
        """Read a request's `_meta`, or headers of the same names; None if there is no valid parent."""
        if not isinstance(source, Mapping) or PARENT not in source:
            return None
        parent = source[PARENT]
        match = _PARENT.fullmatch(parent) if isinstance(parent, str) else None
        if match is None or (match[1] == "00" and match[5] is not None):
            return None
        if match[2] == "0" * 32 or match[3] == "0" * 16:
            return None
        return cls(match[0], _text(source.get(STATE), MAX_STATE), _text(source.get(BAGGAGE), MAX_BAGGAGE))


def _text(value: Any, most: int) -> str:
    return value if isinstance(value, str) and len(value) <= most and _TEXT.fullmatch(value) else ""
