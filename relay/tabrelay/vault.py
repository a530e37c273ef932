"""Private files: a directory of mode 0700, files of mode 0600, each written whole or not at all, one writer at a time.

Several relays and commands of one user share the directory. What the files mean is not known here.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "tr_"  # makes a leaked secret recognisable: for the log redaction, and for secret scanners
GLANCE_S: Final = 0.02


class StateError(Exception):
    """The state directory can't be used; the text says what to do."""


def new_secret() -> str:
    """256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def prepare(home: Path) -> None:
    """Make the directory, or close it again if others could look inside."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.name == "posix" and home.stat().st_mode & 0o077:
            home.chmod(0o700)
    except OSError as error:
        raise StateError(f"Can't use {home} for the relay's state ({error.strerror}). Try: --home DIRECTORY") from error


def secret_in(path: Path) -> str:
    """The secret that a file holds; made if there is none."""
    try:
        if not path.exists():
            write(path, new_secret() + "\n", is_new=True)
        if os.name == "posix" and path.stat().st_mode & 0o077:
            path.chmod(0o600)
        secret = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"Can't read or write {path} ({error}). Try: --home DIRECTORY") from error
    if len(secret) < 32 or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise StateError(f"{path} holds no usable token. Delete it, and the next start makes a new one.")
    return secret


def write(path: Path, text: str, is_new: bool = False) -> None:
    """Write whole or not at all; mkstemp makes the file 0600 from the first moment."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if is_new:
            try:
                os.link(name, path)  # unlike replace, fails if another relay was first: then theirs counts
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
                os.replace(name, path)
        else:
            os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


class Watch:
    """Was a file written since? Looks at most every GLANCE_S: asking the system costs more than the rest of admitting
    a call does."""

    def __init__(self, path: Path, glance_s: float = GLANCE_S) -> None:
        self._path = os.fspath(path)
        self._glance_s = glance_s
        self._looked: float | None = None
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self, *, look: bool = False) -> bool:
        """True once after each write. `look`: now, however short ago the last look was."""
        now = time.monotonic()
        if not look and self._looked is not None and now - self._looked < self._glance_s:
            return False
        is_first, self._looked = self._looked is None, now
        before, self._seen = self._seen, self._stamp()
        return is_first or self._seen != before

    @property
    def is_there(self) -> bool:
        """At the last look."""
        return self._seen is not None

    def _stamp(self) -> tuple[int, int, int] | None:
        """Another value after every write: each one makes a new file."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Between reading a file and writing it, nobody else writes it."""
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody locks
        yield
        return
    handle = os.open(home / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
