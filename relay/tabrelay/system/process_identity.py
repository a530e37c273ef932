"""Identity of a process over time: its pid, its start time, and the namespace in which the pid is valid.

The system gives the pid of a process that has ended to another one. Pid and start time together name one process until
the next boot; the start time contains the boot. A pid of another container says nothing here. Does not send signals.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

PROC: Final = Path("/proc")
PS_S: Final = 5.0
_START_FIELD: Final = 19  # of /proc/PID/stat, counted from the field after the program's name


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """`started`: an opaque text, empty if the system does not tell it. `namespace`: where the pid is valid."""

    pid: int
    started: str
    namespace: str

    @classmethod
    def of(cls, pid: int) -> Self:
        return cls(pid, start_time(pid) or "", _namespace())

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """Raises KeyError, TypeError, ValueError."""
        return cls(int(value["pid"]), str(value["started"]), str(value["namespace"]))

    def to_dict(self) -> dict[str, Any]:
        return {"pid": self.pid, "started": self.started, "namespace": self.namespace}

    @property
    def is_running(self) -> bool | None:
        """None: that can't be known here."""
        if self.namespace != _namespace():
            return None
        found = start_time(self.pid)
        # defence: a pid that another process has now
        if found is None or (self.started and found and found != self.started):
            return False
        return True if self.started and found else None


def start_time(pid: int) -> str | None:
    """None: there is no such process. Empty: the system does not tell."""
    if pid <= 0:
        return None
    if (PROC / "self" / "stat").exists():
        return _from_proc(pid)
    if sys.platform == "win32":
        return _from_windows(pid)
    return _from_ps(pid)


def _from_proc(pid: int) -> str | None:
    try:
        text = (PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        boot = (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (FileNotFoundError, ProcessLookupError):
        return None
    except OSError:
        return ""
    fields = text.rpartition(")")[2].split()  # the name may contain blanks and brackets
    # A process that has ended and was not waited for does nothing any more.
    return None if fields[:1] == ["Z"] else f"{boot} {fields[_START_FIELD]}"


def _from_ps(pid: int) -> str | None:
    command = ["ps", "-o", "lstart=", "-p", str(pid)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=PS_S, env={**os.environ, "LC_ALL": "C", "TZ": "UTC"}
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() or (None if done.returncode == 1 else "")


def _from_windows(pid: int) -> str | None:
    import ctypes

    limited_information, still_active = 0x1000, 259
    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined,unused-ignore]
    kernel.OpenProcess.restype = ctypes.c_void_p
    handle = kernel.OpenProcess(limited_information, False, pid)
    if not handle:
        return None
    try:
        times = [ctypes.c_ulonglong() for _ in range(4)]
        code = ctypes.c_ulong()
        known = kernel.GetProcessTimes(ctypes.c_void_p(handle), *(ctypes.byref(time) for time in times))
        if kernel.GetExitCodeProcess(ctypes.c_void_p(handle), ctypes.byref(code)) and code.value != still_active:
            return None
        return str(times[0].value) if known else ""
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))


def _namespace() -> str:
    try:
        return os.readlink(PROC / "self" / "ns" / "pid")
    except OSError:
        return ""
