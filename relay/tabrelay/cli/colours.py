"""Colour of terminal output: on a terminal, unless the environment decides otherwise.

NO_COLOR and CLICOLOR=0 turn it off, FORCE_COLOR and CLICOLOR_FORCE turn it on, also in a pipe; NO_COLOR counts first.
TERM=dumb has none. Text of servers is made safe in `render` before it gets colour.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Final, TextIO

CODES: Final = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}
ENABLE_VT: Final = 0x0004  # Windows: the console interprets escape sequences


class Colours:
    """`colour("red", "text")`; without colour, the text as it is."""

    def __init__(self, is_on: bool) -> None:
        self.is_on = is_on

    def __call__(self, colour: str, text: str) -> str:
        return f"\x1b[{CODES[colour]}m{text}\x1b[0m" if self.is_on and text else text


PLAIN: Final = Colours(False)


def for_stream(stream: TextIO, env: Mapping[str, str] | None = None) -> Colours:
    return Colours(is_on(stream, os.environ if env is None else env))


def is_on(stream: TextIO, env: Mapping[str, str]) -> bool:
    if env.get("NO_COLOR"):
        return False
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if (value := env.get(name)) is not None:
            if value != "0":
                return True
            if name == "FORCE_COLOR":
                return False
    if env.get("CLICOLOR") == "0" or env.get("TERM") == "dumb" or not _is_terminal(stream):
        return False
    return sys.platform != "win32" or _enable_on_windows(stream)


def _is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:  # closed
        return False


def _enable_on_windows(stream: TextIO) -> bool:
    import ctypes
    import msvcrt

    try:
        kernel = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
        handle = msvcrt.get_osfhandle(stream.fileno())  # type: ignore[attr-defined,unused-ignore]
        mode = ctypes.c_ulong()
        return bool(
            kernel.GetConsoleMode(handle, ctypes.byref(mode)) and kernel.SetConsoleMode(handle, mode.value | ENABLE_VT)
        )
    except OSError:
        return False
