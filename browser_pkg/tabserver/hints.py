"""What to say to somebody who asked for a name that there is not."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def unknown(noun: str, name: str, offered: Iterable[dict[str, Any]]) -> str:
    """That there is no such thing, and what was probably meant."""
    known = [str(item.get("name")) for item in offered]
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    if near:
        hint = f" Did you mean {' or '.join(json.dumps(word, ensure_ascii=False) for word in near)}?"
    else:
        hint = f" There are: {', '.join(known[:10])}{', …' if len(known) > 10 else ''}." if known else ""
    shown = json.dumps(name[:128], ensure_ascii=False)
    return f"Unknown {noun} {shown}.{hint or f' No {noun}s are offered right now.'}"
