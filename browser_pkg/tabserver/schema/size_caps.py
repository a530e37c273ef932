"""Size limits for the names, titles, descriptions and schemas that a page offers.

Offers over a limit are refused with an error, because the relay would leave them out of its lists without one. The same
numbers are the defaults of the relay's settings and constants in js/client/offers.js; a test compares them. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ..wire.limits import MAX_ITEM_NAME, MAX_TITLE

MAX_DESCRIPTION: Final = 8 * 1024
MAX_DEPTH: Final = 32
# Control characters (but for tabs and line breaks), and characters that reverse or hide text.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f]"
)


def check_caps(item: Mapping[str, Any]) -> None:
    """Raises ValueError with the size and its limit."""
    name = item.get("name")
    if isinstance(name, str) and len(name) > MAX_ITEM_NAME and "uri" not in item and "uriTemplate" not in item:
        raise ValueError(f"Its name has {len(name):,} characters; at most {MAX_ITEM_NAME} are passed on.")
    for key, most in (("title", MAX_TITLE), ("description", MAX_DESCRIPTION)):
        text = item.get(key)
        if not isinstance(text, str):
            continue
        if len(text) > most:
            raise ValueError(f"Its {key} has {len(text):,} characters; at most {most:,} are passed on.")
        if _UNSEEN.search(text):
            raise ValueError(f"Its {key} has control or direction characters, which are never passed on.")
    for key in ("inputSchema", "outputSchema"):
        if (depth := _depth(item.get(key))) > MAX_DEPTH:
            raise ValueError(f"Its {key} nests {depth} levels deep; at most {MAX_DEPTH} are passed on.")


def _depth(value: Any) -> int:
    """Without recursion: the value may be deeper than Python's stack."""
    deepest, open_ = 0, [(value, 1)]
    while open_:
        each, level = open_.pop()
        inner = each.values() if isinstance(each, dict) else each if isinstance(each, list) else None
        if inner is not None:
            deepest = max(deepest, level)
            open_ += [(one, level + 1) for one in inner]
    return deepest
