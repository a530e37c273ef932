"""One mutation: a defence that is removed from the source, found by the marker comment above it.

A marker is a line `# defence: NAME` (`// defence: NAME` in JavaScript). NAME is unique in the product. The mutation
replaces the `lines` lines below it; other markers in between do not count. `after` is indented as those lines are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
SOURCES: Final = ("relay/tabrelay", "browser_pkg/tabserver", "web_demo/playground")
MARKER: Final = re.compile(r" *(?:#|//) defence: (?P<name>.+)")


@dataclass(frozen=True, slots=True)
class Mutation:
    """`after`: None removes the lines. `tests`: arguments for pytest; at least one of these tests must fail."""

    name: str
    after: str | None
    tests: str
    lines: int = 1

    def apply(self, text: str) -> str:
        """The text of the marked file without the defence."""
        lines = text.split("\n")
        first = next(number for number, line in enumerate(lines) if _name(line) == self.name) + 1
        while _name(lines[first]):
            first += 1
        end, left = first, self.lines
        while left:
            left -= not _name(lines[end])
            end += 1
        margin = min(len(line) - len(line.lstrip()) for line in lines[first:end] if line.strip())
        fresh = [] if self.after is None else [" " * margin + line if line else line for line in self.after.split("\n")]
        return "\n".join([*lines[:first], *fresh, *lines[end:]])


def _name(line: str) -> str | None:
    found = MARKER.fullmatch(line)
    return found["name"] if found else None


def sources(root: Path = ROOT) -> Iterable[Path]:
    for folder in SOURCES:
        for pattern in ("*.py", "*.js"):
            yield from sorted((root / folder).rglob(pattern))


@lru_cache(maxsize=1)
def marked() -> dict[str, list[str]]:
    """The files of each marker; more than one is a mistake."""
    found: dict[str, list[str]] = {}
    for path in sources():
        for line in path.read_text(encoding="utf-8").split("\n"):
            if name := _name(line):
                found.setdefault(name, []).append(path.relative_to(ROOT).as_posix())
    return found
