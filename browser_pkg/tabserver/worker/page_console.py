"""Consoles of pages: what Python in the worker prints, its warnings, and the tracebacks of its handlers.

The console of a shared worker is hidden, so its lines are sent to pages: to those that named the file that printed,
else to all that named a Python file. A tool of the worker belongs to no tab, so no tab alone is concerned. Lines are
sent a few at a time and up to a bound; the worker's own console has all that is printed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any, Final

Send = Callable[[dict[str, Any]], None]

# Characters that are sent at a time, and kept of a line that is not complete. The rest is counted.
MOST_CHARACTERS: Final = 16 * 1024
MOST_LINES: Final = 200
MOST_WARNED: Final = 256  # tools whose missing description is shown
SEND_AFTER_S: Final = 0.02
_MOST_FRAMES: Final = 100
_PAGE_FILES: Final = ("http://", "https://")
_LEVELS: Final = {"stdout": "log", "stderr": "warn"}


class PageConsole:
    """`later` calls a function after seconds."""

    def __init__(self, later: Callable[[float, Callable[[], None]], None]) -> None:
        self._later = later
        self._pages: dict[object, tuple[frozenset[str], Send]] = {}
        # By stream: the text of a line without its end, and the files that wrote it.
        self._open = dict.fromkeys(_LEVELS, ("", frozenset[str]()))
        self._lines: list[tuple[str, str, frozenset[str]]] = []
        self._size = self._left_out = 0
        self._is_due = False
        self._warned: set[str] = set()

    def attach(self, page: object, urls: Iterable[str], send: Send) -> None:
        self._pages[page] = frozenset(urls), send

    def detach(self, page: object) -> None:
        self._pages.pop(page, None)

    def printed(self, stream: str, text: str) -> None:
        """Python code has written to a stream."""
        if not self._pages:
            return
        files = _files_of_callers()
        *complete, rest = (self._open[stream][0] + text).split("\n")
        for line in complete:
            self._add(_LEVELS[stream], f"{_label(files)}{line}", files)
        self._open[stream] = rest[:MOST_CHARACTERS], files
        if rest:
            self._schedule()

    def report(self, level: str, text: str, files: frozenset[str] = frozenset()) -> None:
        """Show a text of the worker itself."""
        self._add(level, text, files)

    def check_tools(self, tools: Iterable[dict[str, Any]]) -> None:
        """Warn of tools without a description, once for each name."""
        for tool in tools:
            name = tool["name"]
            if tool.get("description", "").strip() or name in self._warned:
                continue
            # defence: bounds: tools whose missing description is shown
            if len(self._warned) < MOST_WARNED:
                self._warned.add(name)
                advice = "Models choose tools by it: write a docstring that says what it does and when to use it."
                self.report("warn", f'Tool "{name}" has no description. {advice} [TR481]')

    def _add(self, level: str, text: str, files: frozenset[str]) -> None:
        if not self._pages:
            return
        if self._size + len(text) > MOST_CHARACTERS or len(self._lines) >= MOST_LINES:
            self._left_out += 1
        else:
            self._size += len(text)
            self._lines.append((level, text, files))
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._later(SEND_AFTER_S, self._send)

    def _send(self) -> None:
        self._is_due = False
        for stream, (rest, files) in self._open.items():
            if rest:
                self._lines.append((_LEVELS[stream], f"{_label(files)}{rest}", files))
        self._open = dict.fromkeys(_LEVELS, ("", frozenset[str]()))
        lines, self._lines = self._lines, []
        left_out, self._left_out, self._size = self._left_out, 0, 0
        if left_out:
            what = "1 more line of Python is" if left_out == 1 else f"{left_out:,} more lines of Python are"
            text = f"{what} in the worker's console only."
            lines.append(("warn", text, frozenset()))
        for urls, send in list(self._pages.values()):
            for level, text, files in lines:
                if self._concerns(urls, files):
                    send({"t": "console", "level": level, "text": text})

    def _concerns(self, urls: frozenset[str], files: frozenset[str]) -> bool:
        named = any(files & known for known, _ in self._pages.values())
        return bool(urls & files) if named else bool(urls)


def _files_of_callers() -> frozenset[str]:
    """The files of pages that lead to this call."""
    files: set[str] = set()
    frame = sys._getframe(2)
    for _ in range(_MOST_FRAMES):
        if (file := frame.f_code.co_filename).startswith(_PAGE_FILES):
            files.add(file)
        if frame.f_back is None:
            break
        frame = frame.f_back
    return frozenset(files)


def _label(files: frozenset[str]) -> str:
    """The name of the file, if one printed."""
    return f"{next(iter(files)).rpartition('/')[2]}: " if len(files) == 1 else ""
