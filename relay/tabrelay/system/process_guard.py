"""Guard process: ends the process groups of a program that was killed before it could end them itself.

The program writes the ids of its children's groups to the guard's standard input. The guard reads until the end of that
pipe, which occurs however the program ends, and sends SIGTERM and then SIGKILL to the remaining groups. Does not use
Linux's PR_SET_PDEATHSIG: it reaches no grandchild, depends on the thread that forked, and needs code between fork and
exec. Windows has no process groups, and no guard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from typing import Final

log = logging.getLogger(__name__)

# Runs in an interpreter without site-packages: 10 ms to start, 8 MiB.
SCRIPT: Final = """
import os, signal, sys, time
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for number in (signal.SIGTERM, signal.SIGKILL):
    for group in list(groups):
        try:
            os.killpg(group, number)
        except OSError:
            groups.discard(group)
    if groups and number == signal.SIGTERM:
        time.sleep(1)
"""


class ProcessGuard:
    """One per program. The guard process starts with the first group."""

    def __init__(self) -> None:
        self._groups: set[int] = set()
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        self._groups.add(group)
        # defence: children of a program that was killed
        if os.name == "posix" and not self._send(f"+{group}\n"):
            self._start()

    def discard(self, group: int) -> None:
        self._groups.discard(group)
        self._send(f"-{group}\n")

    @property
    def groups(self) -> frozenset[int]:
        return frozenset(self._groups)

    def _start(self) -> None:
        """Start the guard, also after it was killed."""
        command = [sys.executable, "-I", "-S", "-c", SCRIPT]
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            log.warning("Children stay alive if this program is killed: no guard process (%s).", error)
            return
        self._send("".join(f"+{group}\n" for group in self._groups))

    def _send(self, lines: str) -> bool:
        process = self._process
        if process is None or process.stdin is None or process.poll() is not None:
            return False
        with contextlib.suppress(OSError):
            process.stdin.write(lines.encode())
            process.stdin.flush()
            return True
        return False
