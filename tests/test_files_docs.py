"""docs/project/files.md lists every source file with the first sentence of its docstring."""

from __future__ import annotations

import os

from tests.support.file_list import PAGE, page, sources, summary
from tests.support.paths import ROOT


def test_every_source_file_has_a_docstring() -> None:
    assert [path.relative_to(ROOT).as_posix() for path in sorted(sources()) if not summary(path)] == []


def test_the_page_is_up_to_date() -> None:
    text = page()
    if os.environ.get("TABRELAY_WRITE_DOCS"):
        PAGE.write_text(text, encoding="utf-8")
    assert PAGE.read_text(encoding="utf-8") == text
