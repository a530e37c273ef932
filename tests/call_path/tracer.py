"""Call tracer for Python: the functions of the product that run, in order, and the product file that called each.

Frames of libraries, tests and the standard library are skipped: a function that a library calls was entered from the
product file below the library. A coroutine or generator that continues has not been entered again. This file runs in
the relay's process and, as text, in the worker's Pyodide; so it imports no other file of the tests.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

RESUME = dis.opmap["RESUME"]
# Newer versions of Python do not call functions for most of these.
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
# The caller of a function that no product file has called: JavaScript, or the event loop.
FROM_JAVASCRIPT = "JavaScript"
FROM_LOOP = "event loop"

# Phase ("in" or "out"), calling file, file, function.
Step = tuple[str, str, str, str]


class Tracer:
    """Records steps between `start` and `stop`. `label`: the name of a product file, None for other files."""

    def __init__(self, label: Callable[[str], str | None]) -> None:
        self._label = label
        self._labels: dict[str, str | None] = {}
        self.phase = "in"
        self.steps: list[Step] = []

    def start(self) -> None:
        self.phase, self.steps = "in", []
        sys.setprofile(self._profile)

    def stop(self) -> list[Step]:
        sys.setprofile(None)
        return self.steps

    def _profile(self, frame: FrameType, event: str, arg: Any) -> None:
        if event != "call":
            return
        file, function = self._file(frame), frame.f_code.co_qualname
        if file is None or function.endswith(COMPREHENSIONS):
            return
        below = frame.f_back
        while below is not None and self._file(below) is None:
            below = below.f_back
        if below is not None:
            caller = self._file(below) or ""
        else:
            caller = FROM_JAVASCRIPT if frame.f_back is None else FROM_LOOP
        if _is_continued(frame):
            caller = file
        self.steps.append((self.phase, caller, file, function))

    def _file(self, frame: FrameType) -> str | None:
        name = frame.f_code.co_filename
        if name not in self._labels:
            self._labels[name] = self._label(name)
        return self._labels[name]


def _is_continued(frame: FrameType) -> bool:
    """Whether a generator or coroutine continues here. Its RESUME instruction shows after what."""
    code, at = frame.f_code.co_code, frame.f_lasti
    return at >= 0 and code[at] == RESUME and code[at + 1] & 3 != 0
