"""What outlives the relay: the names it has seen and the last catalogue of each, in one small file.

Not a database: the whole file is read at start and written again, atomically, when something in it changed. A change
that comes alone is written at once. Many of them, as when thousands of browsers come back at a time, are written
together: after each write there is a pause of many times what it took.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from tabrelay.drift import Baseline
from tabrelay.vault import NO_LINK
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_address
from tabserver.wire.statics import is_static

log = logging.getLogger(__name__)

# The names of a token holder who makes up new ones for ever must not fill a disk: past this the longest unseen go.
MAX_NAMES: Final = 512
PAUSE: Final = 20.0  # times what a write took,
LONGEST_PAUSE_S: Final = 2.0  # and no longer than this
LISTS: Final = ("tools", "resources", "templates", "prompts")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What a server said of itself: its `initialize` result and its lists, as legacy MCP shapes them."""

    initialize: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()

    def without_statics(self) -> Catalogue:
        """Those belong to the relay's settings, which may be others by now."""
        return replace(self, tools=tuple(tool for tool in self.tools if not is_static(tool)))

    def to_dict(self) -> dict[str, Any]:
        return {"initialize": self.initialize, **{name: getattr(self, name) for name in LISTS}}

    @classmethod
    def from_dict(cls, row: dict[str, Any]) -> Catalogue | None:
        """None where a server said nothing of itself."""
        if not isinstance(row.get("initialize"), dict):
            return None
        lists = (row.get(name) or () for name in LISTS)
        return cls(row["initialize"], *(tuple(item for item in items if isinstance(item, dict)) for items in lists))

    @property
    def size(self) -> int:
        """In bytes of JSON."""
        return len(orjson.dumps([self.initialize, self.tools, self.resources, self.templates, self.prompts]))

    def changes(self, before: Catalogue | None) -> frozenset[str]:
        """Which lists are others now, by the names that MCP has for such news."""
        old = before or Catalogue()
        changed = {name for name in ("tools", "resources", "prompts") if getattr(self, name) != getattr(old, name)}
        return frozenset(changed | ({"resources"} if self.templates != old.templates else set()))


@dataclass(frozen=True, slots=True)
class Record:
    catalogue: Catalogue | None = None
    last_seen: float | None = None
    # What a server elsewhere was made of; None for browsers.
    source: str | None = None
    # Its tools at their first use.
    baseline: Baseline | None = None


class Shelf:
    """One file of JSON, `servers.json`, private to the user. With no path it only remembers in memory."""

    def __init__(self, path: Path | None, *, is_shared: bool = False, most: int = MAX_NAMES) -> None:
        """`is_shared`: other relays write the file too, and what they remember is kept. `most`: names in it."""
        self._path = path
        self._most = most
        self._texts: dict[str, orjson.Fragment] = {}  # records as they stand in the file
        self._pause_ends = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._is_shared = is_shared
        self._records: dict[str, Record] = {}
        self._forgotten: set[str] = set()

    def load(self) -> dict[str, Record]:
        if self._path is not None and self._path.exists():
            try:
                self._records = dict(_read(self._path.read_bytes()))
            except (OSError, ValueError, TypeError, AttributeError) as error:
                # A broken memory is no reason not to start: the names come back when their pages do.
                log.warning("Could not read %s (%s): starting without the servers it named.", self._path, error)
        return dict(self._records)

    def forget(self, name: str) -> None:
        if self._records.pop(name, None) is not None:
            self._forgotten.add(name)
            self._texts.pop(name, None)
            self._changed()

    def remember(self, name: str, record: Record) -> None:
        before = self._records.get(name)
        self._records[name] = record
        self._texts.pop(name, None)
        self._forgotten.discard(name)
        self._drop()
        # A browser that comes and goes moves only `last_seen`: not worth a write each time, `flush` has it in the end.
        kept = (record.catalogue, record.source, record.baseline)
        if before is None or (before.catalogue, before.source, before.baseline) != kept:
            self._changed()

    def _drop(self) -> None:
        while len(self._records) > self._most:
            oldest = min(self._records, key=lambda name: self._records[name].last_seen or 0.0)
            del self._records[oldest]
            self._texts.pop(oldest, None)

    def _changed(self) -> None:
        """Write it now; or, if that was done a moment ago, soon."""
        wait_s = self._pause_ends - time.monotonic()
        try:
            loop = asyncio.get_running_loop() if wait_s > 0 and self._path is not None else None
        except RuntimeError:  # the relay is being put together
            loop = None
        if loop is None:
            self.flush()
        elif self._timer is None:
            self._timer = loop.call_later(wait_s, self.flush)

    def flush(self) -> None:
        """Write the file now: after a change that matters, and when the relay stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._path is None:
            return
        began = time.monotonic()
        self._write(self._path)
        ended = time.monotonic()
        self._pause_ends = ended + min(PAUSE * (ended - began), LONGEST_PAUSE_S)

    def _text(self, name: str, record: Record) -> orjson.Fragment:
        text = self._texts.get(name)
        if text is None:
            text = self._texts[name] = orjson.Fragment(orjson.dumps(_row(record)))
        return text

    def _write(self, path: Path) -> None:
        if self._is_shared:
            self._merge(path)
        body = orjson.dumps({name: self._text(name, record) for name, record in self._records.items()})
        scratch = path.with_suffix(f".{os.getpid()}.tmp" if self._is_shared else ".tmp")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
            scratch.replace(path)
        except OSError as error:
            log.warning("Could not write %s (%s): servers will be forgotten at the next restart.", path, error)

    def _merge(self, path: Path) -> None:
        """What another relay has seen since is not written over."""
        try:
            theirs = dict(_read(path.read_bytes()))
        except (OSError, ValueError, TypeError, AttributeError):
            return
        for name, record in theirs.items():
            ours = self._records.get(name)
            if name not in self._forgotten and (ours is None or (record.last_seen or 0) > (ours.last_seen or 0)):
                self._records[name] = record
                self._texts.pop(name, None)
        self._drop()


def _row(record: Record) -> dict[str, Any]:
    return {
        "last_seen": record.last_seen,
        **({"source": record.source} if record.source else {}),
        **({"baseline": record.baseline.dump()} if record.baseline else {}),
        **(record.catalogue.to_dict() if record.catalogue else {"initialize": None}),
    }


def _read(body: bytes) -> list[tuple[str, Record]]:
    records = []
    for name, record in orjson.loads(body).items():
        try:
            check_address(name)
        except ServerNameError:
            continue
        catalogue = Catalogue.from_dict(record)
        last_seen, source = record.get("last_seen"), record.get("source")
        last_seen = last_seen if isinstance(last_seen, int | float) else None
        source = source if isinstance(source, str) else None
        records.append((name, Record(catalogue, last_seen, source, Baseline.load(record.get("baseline")))))
    return records
