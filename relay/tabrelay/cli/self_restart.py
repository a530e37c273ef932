"""Restart of a relay in its own process: the same program, flags, directory and terminal, on the same port.

`tabrelay restart` sends SIGUSR1. The process executes the program anew when the relay has stopped, so that a service
manager and a terminal see one process all the time. A port that the system chose is kept.
"""

from __future__ import annotations

import os
import sys
from typing import Final, NoReturn

ENVIRONMENT: Final = "TABRELAY_RESTARTED"


def is_restarted() -> bool:
    """Was this process a relay before? Then its page is open already."""
    return os.environ.get(ENVIRONMENT) == "1"


def execute(port: int) -> NoReturn:
    """Execute this program again, on the same port. The sockets of this process close by themselves."""
    from tabrelay.cli import running_relay

    words = [*running_relay.program(), *with_port(sys.argv[1:], port)]
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(words[0], words, {**os.environ, ENVIRONMENT: "1"})


def with_port(words: list[str], port: int) -> list[str]:
    """The flags with this port in place of the one that they name. The last --port counts."""
    return [*words, "--port", str(port)]


def is_service(pid: int) -> bool:
    """Did a service manager start this process? systemd and launchd set a variable."""
    return os.environ.get("SYSTEMD_EXEC_PID") == str(pid) or os.environ.get("XPC_SERVICE_NAME") == "dev.tabrelay.relay"
