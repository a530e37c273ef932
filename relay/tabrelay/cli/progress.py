"""Progress bar on the terminal for a running call, from the server's progress notifications.

It draws on one line and removes it at the end. If the stream is not a terminal, it draws nothing.
"""

from __future__ import annotations

from typing import Any, Final, TextIO

from tabrelay.cli.render import printable

WIDTH: Final = 24


class ProgressBar:
    """Draws on one line of the terminal, and clears it at the end."""

    def __init__(self, stream: TextIO, columns: int = 80) -> None:
        self._stream = stream
        self._columns = columns
        self._is_on = stream.isatty()
        self._is_drawn = False

    def step(self, params: dict[str, Any]) -> None:
        if self._is_on:
            self._is_drawn = True
            self._stream.write("\r\x1b[2K" + line(params, self._columns))
            self._stream.flush()

    def end(self) -> None:
        if self._is_drawn:
            self._is_drawn = False
            self._stream.write("\r\x1b[2K")
            self._stream.flush()


def line(params: dict[str, Any], columns: int) -> str:
    """One notification as a line: a bar if the total is known, otherwise the number."""
    done, whole = params.get("progress"), params.get("total")
    text = printable(" ".join(str(params.get("message") or "").split()))
    if not isinstance(done, int | float):
        shown = "…"
    elif isinstance(whole, int | float) and whole > 0:
        part = min(1.0, max(0.0, done / whole))
        full = round(part * WIDTH)
        shown = f"[{'█' * full}{'·' * (WIDTH - full)}] {part:4.0%}"
    else:
        shown = f"{done:g} …"
    return f"{shown}  {text}".rstrip()[: columns - 1]
