"""docs/reference/api.md agrees with the docstrings and is complete."""

from __future__ import annotations

import os
import re
from pathlib import Path

import tabserver
from tests.support.api_reference import TYPES, reference

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "api.md"


def test_the_reference_is_generated_from_the_docstrings() -> None:
    """Run with TABRELAY_WRITE_DOCS=1 to write it again."""
    made = reference()
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        PAGE.write_text(made, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == made


def test_every_public_name_is_in_it_and_documented() -> None:
    headings = set(re.findall(r"^### `(\w+)`", reference(), re.MULTILINE))
    types = "".join(file.read_text(encoding="utf-8") for file in TYPES.values())
    exported = set(re.findall(r"^export (?:declare )?\w+ (\w+)", types, re.MULTILINE))
    assert set(tabserver.__all__) | (exported - {"function", "class"}) <= headings
    undocumented = [name for name in tabserver.__all__ if not getattr(tabserver, name).__doc__]
    assert undocumented == []
