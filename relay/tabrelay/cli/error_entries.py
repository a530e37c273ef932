"""Entries of the reference of errors, as text for a terminal.

An entry is a section whose heading is its code. It has a title, the cause and the remedy. The page is
docs/reference/errors.md, in the wheel or the source tree; nothing is fetched.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tabrelay.cli.output import FAILED, USAGE, ExitWith

CODE: Final = re.compile(r"TR\d+", re.IGNORECASE)
RELAY: Final = "http://127.0.0.1:4747"  # its default address
SITE: Final = "/-/docs/reference/errors/"
_PACKAGE: Final = Path(__file__).resolve().parents[1]
# The wheel has the page beside the site that is made from it.
PLACES: Final = (
    _PACKAGE / "_assets" / "docs" / "reference" / "errors.md",
    _PACKAGE.parents[1] / "docs" / "reference" / "errors.md",
)


def entries(page: str) -> dict[str, str]:
    """The Markdown of each entry, by its code."""
    found = re.findall(r"^### (TR\d{3})\n(.*?)(?=^#{2,3} |^<!-- |\Z)", page, re.MULTILINE | re.DOTALL)
    return {code: text.strip() for code, text in found}


def text_of(code: str) -> str:
    """The entry of a code. Raises ExitWith."""
    path = next((path for path in PLACES if path.is_file()), None)
    if path is None:
        raise ExitWith("The reference of errors is not part of this installation.", FAILED, help="TR318")
    found = entries(path.read_text(encoding="utf-8"))
    if code not in found:
        raise ExitWith(f"{code} is not the code of an error. There are {min(found)} to {max(found)}.", USAGE)
    return f"{code}: {_plain(found[code])}\n\nWhile a relay runs: {RELAY}{SITE}#{code.lower()}"


def _plain(markdown: str) -> str:
    """Without the marks of Markdown. Links become their texts."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", markdown)
    return re.sub(r"\*\*([^*]*)\*\*", r"\1", text)
