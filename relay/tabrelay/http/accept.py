"""Content negotiation by the Accept header (RFC 9110 §12.5.1): which media types a client accepts and prefers.

Pure. An unreadable weight counts as 1. Does not choose the response: the faces do.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

JSON: Final = "application/json"
SSE: Final = "text/event-stream"


@lru_cache(maxsize=256)  # a client sends the same header with each request
def accepts(header: str, kinds: tuple[str, ...]) -> bool:
    """Are all of these types accepted?"""
    weights = _weights(header)
    return all(_weight(weights, kind) > 0 for kind in kinds)


@lru_cache(maxsize=256)
def prefers_stream(header: str) -> bool:
    """Does the client prefer an event stream to JSON? By weight; with equal weights, by order.

    Wildcards express no preference. Every SDK lists JSON first.
    """
    weights = _weights(header)
    if SSE not in weights:
        return False
    stream, json = weights[SSE], _weight(weights, JSON)
    if stream != json or JSON not in weights:
        return stream > json
    names = list(weights)
    return names.index(SSE) < names.index(JSON)


def _weights(header: str) -> dict[str, float]:
    """Media range -> its weight, in the order of the header."""
    weights: dict[str, float] = {}
    for part in header.split(","):
        name, *parameters = (piece.strip().lower() for piece in part.split(";"))
        weight = next((text[2:] for text in parameters if text.startswith("q=")), "1")
        try:
            weights.setdefault(name, min(max(float(weight), 0.0), 1.0))
        except ValueError:
            weights.setdefault(name, 1.0)
    return weights


def _weight(weights: dict[str, float], kind: str) -> float:
    """RFC 9110: the most specific matching range decides."""
    for name in (kind, kind.partition("/")[0] + "/*", "*/*"):
        if name in weights:
            return weights[name]
    return 0.0
