"""Exit codes, error exit and tables for commands that print results.

A command raises `ExitWith` to end the program with one line on stderr. `table` aligns rows in columns; `ago` formats a
duration. Text that comes from servers is made safe for terminals in `render`, not here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
REFUSED: Final = 4
INTERRUPTED: Final = 130
CLOSED_PIPE: Final = 141
# The table of docs/reference/cli.md, for all commands.
CODES: Final = {
    OK: "It worked.",
    FAILED: "It did not work; stderr has the reason. `call`: the tool reports an error. `doctor`: a check failed.",
    USAGE: "The command is wrong, or one of its settings or files.",
    UNREACHABLE: "Nothing answers: no relay runs, or the server can't be reached.",
    REFUSED: "The server answers with an error, or has no such tool.",
    INTERRUPTED: "Ctrl+C. A relay that Ctrl+C stops ends with 0.",
    CLOSED_PIPE: "The program that read the output has closed the pipe, as `head` does.",
}


# The code of the reference, for errors that name none.
HELP: Final = {USAGE: "TR301", UNREACHABLE: "TR302", REFUSED: "TR308"}


class ExitWith(Exception):
    """Ends the program with one line on stderr and this exit code. `help`: code of the entry in the reference."""

    def __init__(self, message: str, code: int = USAGE, help: str | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.help = help or HELP.get(code)


def help_line(code: str) -> str:
    """The last line of an error. The main module makes the command one that can be pasted."""
    return f"Help: tabrelay help {code}"


def table(
    head: Sequence[str], rows: Sequence[Sequence[str]], colour: Callable[[int, str], str] = lambda column, cell: cell
) -> str:
    """`colour` adds colour to the cell of a column, which takes no room."""
    widths = [max(len(row[column]) for row in [head, *rows]) for column in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(head, widths, strict=True))]
    for row in rows:
        cells = zip(range(len(row)), row, widths, strict=True)
        lines.append("  ".join(colour(column, cell) + " " * (width - len(cell)) for column, cell, width in cells))
    return "\n".join(line.rstrip() for line in lines)


def ago(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}"
    return f"{max(0, int(seconds))} s"
