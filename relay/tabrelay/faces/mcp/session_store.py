"""Persistent store of mutable session state: log level, subscriptions, pinned tab, last use, and whether it has ended.

One small file, `sessions.json`, in the relay's home; what never changes is in the session id. Ids are stored as digests
only, so the file gives access to nothing. Bounded by the number of records and by the characters of their
subscriptions. Does not decide when a session ends.
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
ENDS_TOGETHER_S: Final = 60.0  # sessions that end within this time share one record
RECORDS_AT_ONCE: Final = 1_000  # records of another process that are merged in one callback of the event loop
# Bytes. Records are small except for subscriptions, which have a common limit: a larger file is not ours.
MAX_FILE: Final = 128 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """Stored state of one session."""

    last_used: float
    level: str | None = None
    subscriptions: tuple[str, ...] = ()
    is_ended: bool = False
    tab: str | None = None


class SessionStore:
    """Bounded: past `max_records` the oldest records are dropped, and past `max_characters` of subscriptions the
    subscriptions of the oldest records."""

    def __init__(self, path: Path | None, *, max_records: int = 10_000, max_characters: int = 16 * 1024 * 1024) -> None:
        self.records: dict[
            str, SessionRecord
        ] = {}  # by the digest of an id, in the order of writing; other modules read it
        self._max_records = max_records
        self._max_characters = max_characters
        self._characters = 0
        self._last_end = SessionRecord(0.0, is_ended=True)
        # Called with the key and the row of every record that must be kept.
        self.on_write: list[Callable[[str, dict[str, Any]], None]] = []
        loss = "ended sessions may come back after a restart"
        self._file = StateFile(path, self, loss=loss, most_bytes=MAX_FILE)
        # Sessions continue without what can't be read: they lose a log level, not their initialization.
        self.merge(self._file.load())

    def __len__(self) -> int:
        return len(self.records)

    def find(self, id: str) -> SessionRecord | None:
        return self.records.get(digest(id))

    def write(self, id: str, record: SessionRecord, *, now: bool = False) -> None:
        """Store a record. `now`: it must survive a crash, so the file is written soon and other relays are informed."""
        key = digest(id)
        self._keep(key, record)
        if now:
            self._file.save_soon()
            for notify in self.on_write:
                notify(key, self.encode(record))

    def receive(self, key: str, row: Any) -> SessionRecord | None:
        """Store a record of another relay. Returns it if it was accepted: a record that arrives late, after the bus was
        down, does not undo an end."""
        try:
            record = self.decode(key, row)
        except (TypeError, AttributeError, KeyError, ValueError):
            return None
        known = self.records.get(key)
        # defence: an end that is reported before earlier messages
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
        """One record for all sessions that end in the same minute, dated to its end so that it never expires early."""
        rounded = -(-at // ENDS_TOGETHER_S) * ENDS_TOGETHER_S
        if self._last_end.last_used != rounded:
            self._last_end = SessionRecord(rounded, is_ended=True)
        return self._last_end

    def _drop(self, key: str) -> None:
        record = self.records.pop(key, None)
        self._characters -= 0 if record is None else _size(record)

    def _drop_subscriptions(self) -> None:
        for key, record in list(self.records.items()):
            if self._characters <= self._max_characters // 2:  # halve it, rather than drop one for each new record
                break
            self._characters -= _size(record)
            self.records[key] = record = replace(record, subscriptions=())
            self._characters += _size(record)

    def end(self, id: str, at: float) -> None:
        """The client ended the session: it stays ended over restarts."""
        self.write(id, SessionRecord(at, is_ended=True), now=True)

    def forget(self, older_than: float) -> None:
        """Drop old records, up to the first that is younger, in the order of writing."""
        while self.records:
            key = next(iter(self.records))
            if self.records[key].last_used >= older_than:
                break
            self._drop(key)

    def flush(self) -> None:
        """The relay stops: write the file now."""
        self._file.flush()

    # -- contents of the file ------------------------------------------------------------------------------------------

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
        """Of records of another process the newer one counts; an end is final."""
        if ours is None:
            return True
        return not ours.is_ended and (theirs.is_ended or theirs.last_used > ours.last_used)

    def merge(self, theirs: Mapping[str, SessionRecord]) -> None:
        """The first records now, the others in later callbacks of the event loop; at the start, without a loop, all."""
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
