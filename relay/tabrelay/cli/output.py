"""Exit codes, error exit and tables for commands that print results.

A command raises `ExitWith` to end the program with one line on stderr. `table` aligns rows in columns; `ago` formats a
duration. Text that comes from servers is made safe for terminals in `render`, not here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2


class ExitWith(Exception):
    """Ends the program with one line on stderr and this exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [head, *rows]]
    return "\n".join(line.rstrip() for line in lines)


def ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
