"""An interactive shell at a terminal: what it makes of a line when Tab is pressed."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from tests.support.waiting import BOUND_S

CONTROL = re.compile(rb"\x1b\[[0-9;?]*[a-zA-Z]|\r|\x08|\x07")
CLEAR_LINE = b"\x15"


class ShellTerminal:
    """Start it with `with`."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str]) -> None:
        self._command, self._env = command, env

    def __enter__(self) -> ShellTerminal:
        self._terminal, shell_side = pty.openpty()
        termios.tcsetwinsize(shell_side, (24, 500))  # no line is wrapped
        self._process = subprocess.Popen(
            self._command, stdin=shell_side, stdout=shell_side, stderr=shell_side, env=self._env, start_new_session=True
        )
        os.close(shell_side)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._terminal)

    def run(self, line: str, shown: str) -> None:
        """Run a line, and wait for this output. The terminal echoes the line itself, so it must not contain `shown`."""
        os.write(self._terminal, line.encode() + b"\n")
        self._read_until(shown)

    def complete(self, line: str, completed: str) -> None:
        """Type a line and Tab, and wait until the shell has made this of it. Then the line is removed."""
        os.write(self._terminal, line.encode() + b"\t")
        self._read_until(completed)
        os.write(self._terminal, CLEAR_LINE)

    def _read_until(self, text: str) -> None:
        shown, end = b"", time.monotonic() + BOUND_S
        while text.encode() not in CONTROL.sub(b"", shown):
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._terminal], [], [], left)[0]:
                raise AssertionError(f"expected {text!r} at the terminal, which has {shown[-500:]!r}")
            shown += os.read(self._terminal, 65536)
