"""docs/files.md lists every source file with the first sentence of its docstring."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.file_list import PAGE, page, sources, summary
from tests.support.paths import ROOT


@pytest.mark.parametrize("path", sorted(sources()), ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_source_file_has_a_docstring(path: Path) -> None:
    assert summary(path)


def test_the_page_is_up_to_date() -> None:
    text = page()
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
