"""A log file of bounded size that only this user can read: when it is full it is put aside, and the oldest goes.

Apart from `logs`, because what it is made of takes a while to load and only the relay needs it.
"""

from __future__ import annotations

import contextlib
import logging
import os
from io import TextIOWrapper
from logging.handlers import RotatingFileHandler
from pathlib import Path

from tabrelay.vault import prepare


class LogFile(RotatingFileHandler):
    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        """Raises OSError if it can't be written."""
        try:
            prepare(path.parent)
        except Exception as problem:
            raise OSError(str(problem)) from None
        self._has_failed = False
        super().__init__(path, maxBytes=max_bytes, backupCount=keep, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(handle, "a", encoding="utf-8", errors="backslashreplace")

    def handleError(self, record: logging.LogRecord) -> None:
        """A full disk is said once, and not in the file."""
        if not self._has_failed:
            self._has_failed = True
            logging.getLogger().removeHandler(self)
            with contextlib.suppress(OSError):
                self.close()
            logging.getLogger("tabrelay").warning("The log file can't be written any more: %s", self.baseFilename)
