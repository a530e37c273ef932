"""Private files: a directory of mode 0700 with files of mode 0600, replaced atomically, one writer at a time.

A file is used only if it is a regular file of this user, and no link: another user could have put anything else there.
Several relays and commands of one user share the directory. Does not interpret the files.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "tr_"  # makes a leaked secret recognisable for the log redaction and for secret scanners
CHECK_EVERY_S: Final = 0.02
MOST_READ: Final = 16 * 1024 * 1024  # characters
# defence: links in place of secrets
# defence: links in place of the call log
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)
NO_WAIT: Final = getattr(os, "O_NONBLOCK", 0)  # the path may be a pipe without a writer, and opening it would block


class StateError(Exception):
    """The state directory can't be used; the text says what to do."""


def new_secret() -> str:
    """A new random secret of 256 bits."""
    return PREFIX + secrets.token_urlsafe(32)


def ensure_directory(home: Path) -> None:
    """Create the directory; remove access of other users if they have any."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = home.stat()
        if os.name == "posix" and found.st_mode & 0o077 and _is_ours(found):
            home.chmod(0o700)
    except OSError as error:
        raise StateError(f"Can't use {home} for the relay's state ({error.strerror}). Try: --home DIRECTORY") from error
    if not _is_ours(found):
        raise StateError(f"{home} belongs to another user, who could change what is in it. Try: --home DIRECTORY")


def read_or_create_secret(path: Path) -> str:
    """The secret in a file, which is created if it does not exist."""
    try:
        if not path.exists():
            write(path, new_secret() + "\n", is_new=True)
        secret = read(path).strip()
    except (OSError, UnicodeDecodeError) as error:
        raise StateError(f"Can't read or write {path} ({error}). Try: --home DIRECTORY") from error
    if len(secret) < 32 or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise StateError(f"{path} holds no usable token. Delete it, and the next start makes a new one.")
    return secret


def read(path: Path) -> str:
    """Text of a private file; removes access of other users. Raises StateError, OSError, ValueError."""
    try:
        handle = os.open(path, os.O_RDONLY | NO_LINK | NO_WAIT)
    except OSError as error:
        if path.is_symlink():
            raise StateError(f"{path} is a link. Put the file itself there, or delete it.") from error
        raise
    # The handle refers to this file, even if another one gets its name.
    with os.fdopen(handle, encoding="utf-8") as file:
        make_private(handle, path)
        # defence: a secret that is swapped while it is read
        return file.read(MOST_READ)


def make_private(handle: int, path: Path) -> None:
    """Remove access of other users. Raises StateError unless it is a regular file of this user."""
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode):
        raise StateError(f"{path} is not a regular file. Delete it, and the next start makes a new one.")
    if not _is_ours(found):
        raise StateError(f"{path} belongs to another user, who may know what is in it. Delete it.")
    if os.name == "posix" and found.st_mode & 0o077:
        # defence: modes of the token file
        os.fchmod(handle, 0o600)


def _is_ours(found: os.stat_result) -> bool:
    """Is the owner this user, or root, who has access anyway? Root accepts every owner: in containers the state
    directory often belongs to a user outside."""
    if os.name != "posix":
        return True
    me = os.geteuid()
    # defence: secrets that another user put there
    return me == 0 or found.st_uid in (0, me)


def write(path: Path, text: str, is_new: bool = False) -> None:
    """Write atomically. mkstemp creates the file with mode 0600."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        if is_new:
            try:
                os.link(name, path)  # unlike replace, fails if another relay was first: its file is used
            except FileExistsError:
                pass
            except OSError:  # a file system without hard links
                os.replace(name, path)
        else:
            os.replace(name, path)
    finally:
        Path(name).unlink(missing_ok=True)


class FileWatch:
    """Detects writes to a file. Calls stat at most every `check_every_s`: it costs more than the rest of admitting a
    call."""

    def __init__(self, path: Path, check_every_s: float = CHECK_EVERY_S) -> None:
        self._path = os.fspath(path)
        self._check_every_s = check_every_s
        self._next_check_at: float | None = None
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self, *, force: bool = False) -> bool:
        """True once after each write. `force`: check now, even if the last check was a moment ago."""
        now, due = time.monotonic(), self._next_check_at
        if due is not None and now < due and not force:
            return False
        is_first, self._next_check_at = due is None, now + self._check_every_s
        before, self._seen = self._seen, self._stamp()
        return is_first or self._seen != before

    @property
    def is_there(self) -> bool:
        """Did the file exist at the last check?"""
        return self._seen is not None

    def _stamp(self) -> tuple[int, int, int] | None:
        """Changes with every write, since each write creates a new file."""
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


@contextlib.contextmanager
def locked(home: Path) -> Iterator[None]:
    """Exclusive lock of the directory: no other process changes a file between a read and a write."""
    try:
        import fcntl
    except ImportError:  # not on this system: no process locks
        yield
        return
    handle = os.open(home / ".lock", os.O_RDWR | os.O_CREAT | NO_LINK, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
