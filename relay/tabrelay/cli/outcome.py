"""How a verb ends: exit codes, and the one line that says why it could not go on."""

from __future__ import annotations

from typing import Final

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2


class ExitWith(Exception):
    """Ends the program with one line on stderr and this exit code."""

    def __init__(self, message: str, code: int = USAGE) -> None:
        super().__init__(message)
        self.code = code
