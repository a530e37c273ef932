"""Confusable names (UTS 39, section 4): two names with the same skeleton look alike.

The data is `confusables.txt`, read at the first use. Does not decide what happens to names that look alike.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache
from importlib.resources import files

from tabrelay.payloads.hidden_text import DEFAULT_IGNORABLE


def skeleton(name: str) -> str:
    """Skeleton of a name: the same for all names that look alike."""
    decomposed = unicodedata.normalize("NFD", DEFAULT_IGNORABLE.sub("", name))
    return unicodedata.normalize("NFD", decomposed.translate(_prototypes()))


@lru_cache(maxsize=1)
def _prototypes() -> dict[int, str]:
    """Code point -> the text that it looks like."""
    found: dict[int, str] = {}
    for line in (files("tabrelay.payloads") / "confusables.txt").read_text(encoding="utf-8").splitlines():
        prototype, is_entry, alike = line.partition("=")
        if is_entry and not line.startswith("#"):
            text = "".join(chr(int(code, 16)) for code in prototype.split())
            found |= {int(code, 16): text for code in alike.split()}
    return found
