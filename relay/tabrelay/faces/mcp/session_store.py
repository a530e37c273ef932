"""What changes during a handshake session and must outlive the relay: its log level, its subscriptions, the tab it has
pinned, when it was last used, and whether it has ended. One small file, `sessions.json`; what never changes is in the
session's id itself.

Ids are kept as digests only: the file opens nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from tabrelay.payloads.list_checks import MAX_URI
from tabrelay.system.state_file import StateFile
from tabserver.wire.control_messages import is_tab_id

MAX_SUBSCRIPTIONS: Final = 256  # of one session
MAX_LEVEL: Final = 32  # characters; the longest level of MCP has nine
KEY_CHARACTERS: Final = 32  # characters of a digest
ENDS_TOGETHER_S: Final = 60.0  # sessions that end within so many seconds have one record
RECORDS_AT_ONCE: Final = 1_000  # pages of another process that are taken over in one callback of the event loop
# A page is small, but for its subscriptions, which have a limit together. A larger file is none of ours.
MAX_FILE: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """What the diary says of one session."""

    last_used: float
    level: str | None = None
    subscriptions: tuple[str, ...] = ()
    is_ended: bool = False
    tab: str | None = None


class SessionStore:
    """Bounded: past `most` pages those that were written longest ago go, and past `most_text` characters of
    subscriptions on all pages those of the pages that were written longest ago."""

    def __init__(self, path: Path | None, *, max_records: int = 10_000, max_characters: int = 16 * 1024 * 1024) -> None:
        self.records: dict[str, SessionRecord] = {}  # by the digest of an id, in the order of writing; read by others
        self._max_records = max_records
        self._max_characters = max_characters
        self._characters = 0
        self._last_end = SessionRecord(0.0, is_ended=True)
        # Called with what must not be forgotten: the key of a page, and what it says.
        self.on_write: Callable[[str, dict[str, Any]], None] = lambda key, row: None
        loss = "ended sessions may come back after a restart"
        self._file = StateFile(path, self, loss=loss, most_bytes=MAX_FILE)
        # Sessions go on without what can't be read: they lose a log level, not a handshake.
        self.merge(self._file.load())

    def __len__(self) -> int:
        return len(self.records)

    def find(self, id: str) -> SessionRecord | None:
        return self.records.get(digest(id))

    def write(self, id: str, record: SessionRecord, *, now: bool = False) -> None:
        """Remember. `now`: it must not be forgotten, whatever happens next, and goes into the file soon."""
        key = digest(id)
        self._keep(key, record)
        if now:
            self._file.save_soon()
            self.on_write(key, self.encode(record))

    def receive(self, key: str, row: Any) -> SessionRecord | None:
        """Another relay wrote this page; gives it back if it makes sense. What comes late, after the bus was away, does
        not undo an end."""
        try:
            record = self.decode(key, row)
        except (TypeError, AttributeError, KeyError, ValueError):
            return None
        known = self.records.get(key)
        # defence: an end that is told before what came first
        if record is None or (known is not None and known.is_ended):
            return None
        self._keep(key, record)
        return record

    def _keep(self, key: str, record: SessionRecord) -> None:
        self._drop(key)
        # defence: memory: an ended session takes no record of its own
        self.records[key] = record = self._shared_end(record.last_used) if record.is_ended else record
        self._characters += _size(record)
        while len(self.records) > self._max_records:
            self._drop(next(iter(self.records)))
        if self._characters > self._max_characters:
            self._drop_subscriptions()

    def _shared_end(self, at: float) -> SessionRecord:
        """One record for all sessions that end in the same minute: the end of that minute, so never forgotten early."""
        rounded = -(-at // ENDS_TOGETHER_S) * ENDS_TOGETHER_S
        if self._last_end.last_used != rounded:
            self._last_end = SessionRecord(rounded, is_ended=True)
        return self._last_end

    def _drop(self, key: str) -> None:
        record = self.records.pop(key, None)
        self._characters -= 0 if record is None else _size(record)

    def _drop_subscriptions(self) -> None:
        for key, record in list(self.records.items()):
            if self._characters <= self._max_characters // 2:  # not one page for each that is written from now on
                break
            self._characters -= _size(record)
            self.records[key] = record = replace(record, subscriptions=())
            self._characters += _size(record)

    def end(self, id: str, at: float) -> None:
        """The client ended the session: it stays dead over restarts."""
        self.write(id, SessionRecord(at, is_ended=True), now=True)

    def forget(self, older_than: float) -> None:
        """Drop old pages, as far as they were written before all that are younger."""
        while self.records:
            key = next(iter(self.records))
            if self.records[key].last_used >= older_than:
                break
            self._drop(key)

    def flush(self) -> None:
        """The relay stops: write the file now."""
        self._file.flush()

    # -- what the file holds -------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, SessionRecord]:
        return dict(self.records)

    def encode(self, record: SessionRecord) -> dict[str, Any]:
        row: dict[str, Any] = {"last_used": round(record.last_used)}
        if record.is_ended:
            row["ended"] = True
        if record.level is not None:
            row["level"] = record.level
        if record.subscriptions:
            row["subscriptions"] = record.subscriptions
        if record.tab is not None:
            row["tab"] = record.tab
        return row

    def decode(self, key: str, row: Any) -> SessionRecord | None:
        if len(key) != KEY_CHARACTERS:
            return None
        level, tab = row.get("level"), row.get("tab")
        uris = [uri for uri in row.get("subscriptions", ()) if isinstance(uri, str) and len(uri) <= MAX_URI]
        return SessionRecord(
            float(row["last_used"]),
            level if isinstance(level, str) and len(level) <= MAX_LEVEL else None,
            tuple(uris[-MAX_SUBSCRIPTIONS:]),
            row.get("ended") is True,
            # defence: the bounds of a session's state from a file or another relay
            tab if is_tab_id(tab) else None,
        )

    def accepts(self, key: str, ours: SessionRecord | None, theirs: SessionRecord) -> bool:
        """Of what another process wrote, the newer page counts, and an end for good."""
        if ours is None:
            return True
        return not ours.is_ended and (theirs.is_ended or theirs.last_used > ours.last_used)

    def merge(self, theirs: Mapping[str, SessionRecord]) -> None:
        """The first pages now, the others in later turns of the event loop. At the start there is none: all now."""
        try:
            self._merge(list(theirs.items()), asyncio.get_running_loop())
        except RuntimeError:
            self._merge(list(theirs.items()), None)

    def _merge(self, theirs: list[tuple[str, SessionRecord]], loop: asyncio.AbstractEventLoop | None) -> None:
        now = theirs if loop is None or not self.records else theirs[:RECORDS_AT_ONCE]
        for key, record in now:
            if self.accepts(key, self.records.get(key), record):  # it may have changed since
                self._keep(key, record)
        if loop is not None and len(theirs) > len(now):
            loop.call_soon(self._merge, theirs[len(now) :], loop)


def _size(record: SessionRecord) -> int:
    return sum(map(len, record.subscriptions))


def digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:KEY_CHARACTERS]
