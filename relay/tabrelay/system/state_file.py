"""State files: JSON objects that outlive the process, each replaced as a whole by a background thread.

`save_soon` never blocks the event loop: the rows are copied, and a thread encodes and writes them one by one, at most
one thread for each file. After each write there is a pause of many times what it took, so that a burst of changes costs
one or two writes. `flush` writes the last state before the process ends. A crash can lose the changes since the last
write, and never leaves half a file.

Other processes may share a file. Each write is an atomic replace, and rows that another process wrote since are read
first; the owner decides which of them are used. Does not interpret the rows.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar

import orjson

from tabrelay.system.private_files import NO_LINK, NO_WAIT

log = logging.getLogger(__name__)

Row = TypeVar("Row")

PAUSE: Final = 20.0  # times what a write took,
LONGEST_PAUSE_S: Final = 2.0  # and no longer than this
FLUSH_S: Final = 10.0  # how long `flush` waits for a running write
BUFFER: Final = 256 * 1024  # bytes; each write of this size releases the GIL
LEFTOVER_S: Final = 3600.0  # a scratch file older than this was left by a process that crashed
_numbers = itertools.count(1)


class StateOwner(Protocol[Row]):
    """The table that a file contains. A row must not change after `rows` has returned it."""

    def rows(self) -> dict[str, Row]:
        """A copy of all rows, made on the event loop."""

    def encode(self, row: Row) -> Any:
        """A row as JSON values. Called in a thread."""

    def decode(self, key: str, value: Any) -> Row | None:
        """The row, or None if it is not valid. May raise the errors of bad values. Called in a thread."""

    def accepts(self, key: str, ours: Row | None, theirs: Row) -> bool:
        """Does a row that another process wrote replace ours? Called in a thread."""

    def merge(self, theirs: Mapping[str, Row]) -> None:
        """Rows of another process that were accepted; called on the event loop."""


class StateFile(Generic[Row]):
    """One file. `loss`: what a user loses when it can't be written. `most_bytes`: a larger file is not read. Without a
    path nothing is stored."""

    def __init__(self, path: Path | None, owner: StateOwner[Row], *, loss: str, most_bytes: int) -> None:
        self._path = path
        self._owner = owner
        self._loss = loss
        self._most_bytes = most_bytes
        self._number = next(_numbers)
        self._seen: tuple[int, int, int] | None = None
        self._thread: threading.Thread | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        self._pause_ends = 0.0

    def load(self) -> dict[str, Row]:
        """The rows that were written last. A file that can't be read does not prevent the start."""
        if self._path is None:
            return {}
        _remove_leftovers(self._path)
        try:
            return self._read(self._path)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            log.warning("Could not read %s (%s): starting without it.", self._path, error)
            return {}

    def save_soon(self) -> None:
        """The rows have changed. Without an event loop, as during construction, they are written now."""
        if self._path is None:
            return
        self._is_due = True
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.flush()
            return
        if self._thread is None and self._timer is None:
            # defence: state files that a thread writes
            self._start_soon(self._path, loop)

    def flush(self) -> None:
        """Write the current rows, and return when that is done."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._path is None:
            return
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.join(FLUSH_S)
            if thread.is_alive():
                log.warning("%s is still being written after %.0f s: %s.", self._path, FLUSH_S, self._loss)
                return
        self._is_due = False
        self._merge_and_pause(time.monotonic(), self._write(self._path, self._owner.rows()))

    # -- on the event loop --------------------------------------------------------------------------------------------

    def _start_soon(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        wait_s = self._pause_ends - time.monotonic()
        # defence: a pause after each write of a state file
        if wait_s > 0:
            self._timer = loop.call_later(wait_s, self._start, path, loop)
        else:
            self._start(path, loop)

    def _start(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        self._is_due = False
        rows, began = self._owner.rows(), time.monotonic()

        def work() -> None:
            theirs: Mapping[str, Row] = {}
            try:
                theirs = self._write(path, rows)
            except Exception:
                log.exception("Could not write %s: %s.", path, self._loss)
            finally:
                with suppress(RuntimeError):  # the loop is closed: `flush` has written since
                    loop.call_soon_threadsafe(self._finished, thread, path, loop, began, theirs)

        # A daemon thread: a disk that hangs must not prevent the exit of the process.
        thread = self._thread = threading.Thread(target=work, name=f"write {path.name}", daemon=True)
        thread.start()

    def _finished(
        self,
        thread: threading.Thread,
        path: Path,
        loop: asyncio.AbstractEventLoop,
        began: float,
        theirs: Mapping[str, Row],
    ) -> None:
        if self._thread is not thread:
            self._owner.merge(theirs)
            return
        self._thread = None
        self._merge_and_pause(began, theirs)
        if self._is_due:
            self._start_soon(path, loop)

    def _merge_and_pause(self, began: float, theirs: Mapping[str, Row]) -> None:
        self._owner.merge(theirs)
        now = time.monotonic()
        self._pause_ends = now + min(PAUSE * (now - began), LONGEST_PAUSE_S)

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _write(self, path: Path, rows: dict[str, Row]) -> Mapping[str, Row]:
        """Returns the rows of another process that went into the file."""
        # defence: rows that another process wrote into a state file
        theirs = self._rows_of_others(path, rows)
        scratch = path.with_suffix(f".{os.getpid()}-{self._number}.tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o600)
            with os.fdopen(handle, "wb", BUFFER) as file:
                file.writelines(_lines((rows | theirs).items(), self._owner.encode))
                file.flush()
                stamp = _stamp(os.fstat(handle))
            scratch.replace(path)
            self._seen = stamp
        except OSError as error:
            log.warning("Could not write %s (%s): %s.", path, error, self._loss)
        finally:
            with suppress(OSError):
                scratch.unlink()
        return theirs

    def _rows_of_others(self, path: Path, rows: Mapping[str, Row]) -> dict[str, Row]:
        try:
            if _stamp(path.stat()) == self._seen:
                return {}
            found = self._read(path)
        except (OSError, ValueError):
            return {}
        return {key: row for key, row in found.items() if self._owner.accepts(key, rows.get(key), row)}

    def _read(self, path: Path) -> dict[str, Row]:
        with os.fdopen(os.open(path, os.O_RDONLY | NO_WAIT), "rb") as file:
            found = os.fstat(file.fileno())
            if found.st_size > self._most_bytes:
                raise ValueError(f"it has {found.st_size:,} bytes, and at most {self._most_bytes:,} are read")
            self._seen = _stamp(found)
            return dict(_parsed(file.read(self._most_bytes), self._owner.decode))


def _lines(rows: Iterable[tuple[str, Row]], encode: Callable[[Row], Any]) -> Iterable[bytes]:
    """One JSON object, one line for each row, so that neither writing nor reading has a long step."""
    before = b"{\n"
    for key, row in rows:
        try:
            line = orjson.dumps(key) + b":" + orjson.dumps(encode(row))
        except orjson.JSONEncodeError:  # lone surrogates
            continue
        yield before + line
        before = b",\n"
    yield b"{}\n" if before == b"{\n" else b"\n}\n"


def _parsed(body: bytes, decode: Callable[[str, Any], Row | None]) -> Iterable[tuple[str, Row]]:
    for key, value in _members(body):
        try:
            row = decode(key, value)
        except (ValueError, TypeError, AttributeError, KeyError):
            continue
        if row is not None:
            yield key, row


def _members(body: bytes) -> list[tuple[str, Any]]:
    lines = body.split(b"\n")
    if lines[0] == b"{" and lines[-2:] == [b"}", b""]:
        with suppress(orjson.JSONDecodeError):
            return [member for line in lines[1:-2] for member in orjson.loads(b"{%b}" % line.rstrip(b",")).items()]
    whole = orjson.loads(body)
    if not isinstance(whole, dict):
        raise ValueError("it holds no JSON object")
    return list(whole.items())


def _stamp(found: os.stat_result) -> tuple[int, int, int]:
    """Changes with every write, since each write creates a new file."""
    return found.st_mtime_ns, found.st_size, found.st_ino


def _remove_leftovers(path: Path) -> None:
    with suppress(OSError):
        for scratch in path.parent.glob(f"{path.stem}.*.tmp"):
            if time.time() - scratch.stat().st_mtime > LEFTOVER_S:
                scratch.unlink()
