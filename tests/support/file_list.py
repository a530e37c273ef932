"""Source files in docs/project/files.md: a row for each file, taken from the first sentence of its docstring."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.paths import ROOT

PAGE: Final = ROOT / "docs" / "project" / "files.md"
FOLDERS: Final = ("relay/tabrelay", "browser_pkg/tabserver", "web_demo")
INTRODUCTION: Final = """# Files

One line for each source file, taken from its docstring. Packages and how they work together are in
[architecture.md](../concepts/architecture.md).
`TABRELAY_WRITE_DOCS=1 python -m pytest tests/test_files_docs.py` writes this page.
"""
_COMMENT: Final = re.compile(r"\A\s*(?:/\*\*(?P<block>.*?)\*/|(?P<lines>(?://[^\n]*\n)+))", re.DOTALL)


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for pattern in ("*.py", "*.js", "*.d.ts"):
            yield from (path for path in (ROOT / folder).rglob(pattern) if "__pycache__" not in path.parts)


@functools.cache
def summary(path: Path) -> str:
    """The first sentence of a file's docstring or leading comment; empty if there is none."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        found = ast.get_docstring(ast.parse(text)) or ""
    else:
        comment = _COMMENT.match(text)
        if comment is None:
            return ""
        found = re.sub(r"^\s*(?:\*|//) ?", "", comment["block"] or comment["lines"], flags=re.MULTILINE)
    paragraph = " ".join(found.strip().split("\n\n")[0].split())
    return re.split(r"(?<=[.:])\s(?=[A-Z`])", paragraph)[0].rstrip(".:").replace("|", "\\|")


def page() -> str:
    folders: dict[str, list[str]] = {}
    purposes: dict[str, str] = {}
    for path in sorted(sources(), key=lambda path: (path.parent.as_posix(), path.name)):
        folder = path.parent.relative_to(ROOT).as_posix()
        if path.name == "__init__.py":
            purposes[folder] = summary(path)
        else:
            folders.setdefault(folder, []).append(f"| `{path.name}` | {summary(path)} |")
    parts = [INTRODUCTION]
    for folder, rows in folders.items():
        purpose = f"\n{purposes[folder]}.\n" if purposes.get(folder) else ""
        parts.append(f"## `{folder}`\n{purpose}\n| file | contents |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)
