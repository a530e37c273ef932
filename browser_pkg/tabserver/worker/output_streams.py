"""`sys.stdout` and `sys.stderr` of an interpreter that serves several callers: captured for a run, else passed on.

The streams are replaced once. A context variable selects the output of a run, because runs of several callers
interleave. What no run captures goes to a listener and to the original stream. What the listener does with it is in
`page_console`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, TextIO

# Called with "stdout" or "stderr", and a text.
Printed = Callable[[str, str], None]


class CapturedOutput:
    """The output of one run, up to a bound for each stream."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._parts: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._sizes = dict.fromkeys(self._parts, 0)

    def write(self, stream: str, text: str) -> None:
        room = self._bound - self._sizes[stream]
        if room > 0:
            self._parts[stream].append(text[:room])
        self._sizes[stream] += len(text)

    def text(self, stream: str) -> str:
        kept = "".join(self._parts[stream])
        return kept + left_out(self._sizes[stream] - len(kept))


captured_output: ContextVar[CapturedOutput | None] = ContextVar("captured_output", default=None)


class _Stream:
    """sys.stdout or sys.stderr: writes to the output of the current run, else to the listener and the original."""

    def __init__(self, name: str, before: TextIO, printed: Printed) -> None:
        self._name, self._before, self._printed = name, before, printed

    def write(self, text: str) -> int:
        output = captured_output.get()
        if output is None:
            self._printed(self._name, text)
            return self._before.write(text)
        output.write(self._name, text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._before, name)


def replace_streams(printed: Printed = lambda stream, text: None) -> None:
    """Replace the streams, unless they were replaced before."""
    for name in ("stdout", "stderr"):
        if not isinstance(now := getattr(sys, name), _Stream):
            setattr(sys, name, _Stream(name, now or getattr(sys, f"__{name}__"), printed))


def left_out(count: int) -> str:
    return f"… ({count:,} characters left out)" if count > 0 else ""
