"""A log file of bounded size that only this user can read: when it is full it is put aside, and the oldest goes.

Apart from `logs`, because what it is made of takes a while to load and only the relay needs it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tabrelay.vault import NO_LINK, NO_WAIT, StateError, close_to_others


class LogFile(RotatingFileHandler):
    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        """Raises OSError if it can't be written."""
        self._is_told = False
        self.failures = 0
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        # One that is there already may be anybody's, /tmp or a project: its mode is none of our business. One that is
        # gone, because somebody cleaned up, is made again.
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # A link could lead to any file of this user's, and what is written is what others say. A pipe would be
            # waited for until somebody reads it, who may be anybody.
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK | NO_WAIT, 0o600)
        except OSError:
            if path.is_symlink():
                raise OSError(f"{path} is a link. Put a file there, or delete it.") from None
            raise
        # What was opened counts, and not what has that name by now. A device, as /dev/null, is as its system made it.
        if not stat.S_ISCHR(os.fstat(handle).st_mode):
            try:
                close_to_others(handle, path)
            except StateError as problem:
                os.close(handle)
                raise OSError(str(problem)) from None
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is said once, and not in the file."""
        self.failures += 1
        with contextlib.suppress(OSError):
            self.close()
        if not self._is_told:
            self._is_told = True
            logging.getLogger().removeHandler(self)
            logging.getLogger("tabrelay").warning("The log file can't be written any more: %s", self.baseFilename)
