"""Rotating log file of bounded size, private to this user; several processes may append to it.

Each process appends whole lines. Only the holder of a lock rotates; the others do not wait, and their lines meanwhile
go into the file that is renamed. Where the system has no file locks, this holds within one process.

Separate from `log_setup`, because its imports are slow and only the relay needs it. Does not redact or format.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import threading
from collections.abc import Iterator
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Final

from tabrelay.system.private_files import NO_LINK, NO_WAIT, StateError, make_private

_ROTATING: Final = threading.Lock()  # where the system has no file locks


class PrivateRotatingFile(RotatingFileHandler):
    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        """Raises OSError if it can't be written."""
        self._has_warned = False
        self.failures = 0
        # defence: the call log's size
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        # An existing directory may be shared, such as /tmp or a project: its mode is not changed. A deleted one is
        # created again.
        # defence: a log directory that is deleted
        # defence: directories of others' log files
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # A link could lead to any file of this user, and log lines contain text of others. Opening a pipe would
            # block until any process reads it.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK | NO_WAIT, 0o600)
        except OSError:
            if path.is_symlink():
                raise OSError(f"{path} is a link. Put a file there, or delete it.") from None
            raise
        # Check the opened file, not the one that has the name by now. A device such as /dev/null keeps its mode.
        # defence: a pipe in place of the call log
        # defence: a call log that is swapped while it is opened
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            try:
                make_private(handle, path)
            except StateError as problem:
                os.close(handle)
                raise OSError(str(problem)) from None
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        if self.stream is not None and not self._is_current(self.stream):
            # Another process has rotated it, or it was deleted.
            self.stream.close()
            self.stream = None
        return bool(super().shouldRollover(record))

    def doRollover(self) -> None:
        """Only the holder of the lock of the current file renames any of them, and renames the current one last."""
        assert self.stream is not None
        with _rotation_lock(self.stream.fileno()) as is_alone:
            # defence: one that puts the call log aside at a time
            if not is_alone:
                return  # this line goes into the file that is just being renamed
            # defence: a call log that another has put aside
            if self._is_current(self.stream):
                if os.name == "nt":  # an open file can't be renamed there
                    self.stream.close()
                if self.backupCount == 0:  # nothing is kept: start a new file
                    os.unlink(self.baseFilename)
                for number in range(self.backupCount - 1, -1, -1):
                    self._move(number)
        self.stream.close()
        self.stream = None
        self.stream = self._open()

    def _move(self, number: int) -> None:
        source = f"{self.baseFilename}.{number}" if number else self.baseFilename
        with contextlib.suppress(FileNotFoundError):
            os.replace(source, f"{self.baseFilename}.{number + 1}")

    def _is_current(self, stream: TextIOWrapper) -> bool:
        """Is the open file still the one that has the name?"""
        try:
            return os.path.samestat(os.fstat(stream.fileno()), os.stat(self.baseFilename))
        except OSError:
            return False

    def handleError(self, record: logging.LogRecord) -> None:
        """Warn once, and not in the file: the disk may be full."""
        self.failures += 1
        with contextlib.suppress(OSError):
            self.close()
        if not self._has_warned:
            self._has_warned = True
            logging.getLogger().removeHandler(self)
            logging.getLogger("tabrelay").warning("The log file can't be written any more: %s", self.baseFilename)


@contextlib.contextmanager
def _rotation_lock(handle: int) -> Iterator[bool]:
    """Lock for rotating this file. Yields False at once if another process or thread has it."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        yield False
    except (ImportError, OSError):  # not on this system, or not on this disk
        is_alone = _ROTATING.acquire(blocking=False)
        try:
            yield is_alone
        finally:
            if is_alone:
                _ROTATING.release()
    else:
        try:
            yield True
        finally:
            fcntl.flock(handle, fcntl.LOCK_UN)
