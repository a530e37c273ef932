"""What a client's Accept header says: which types it takes, and which it would rather have. Pure (RFC 9110 §12.5.1)."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

JSON: Final = "application/json"
SSE: Final = "text/event-stream"


@lru_cache(maxsize=256)  # clients send the same one, again and again
def accepts(header: str, kinds: tuple[str, ...]) -> bool:
    """Are all of these types taken?"""
    weights = _weights(header)
    return all(_weight(weights, kind) > 0 for kind in kinds)


@lru_cache(maxsize=256)
def prefers_stream(header: str) -> bool:
    """Would the client rather have an event stream than JSON? By weight; of equals, the one that it names first.

    Wildcards prefer nothing. Every SDK names JSON first.
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
    """Media range -> its weight, in the order they are named."""
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
    """RFC 9110: the most specific range that fits has the last word."""
    for name in (kind, kind.partition("/")[0] + "/*", "*/*"):
        if name in weights:
            return weights[name]
    return 0.0
