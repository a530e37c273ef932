"""What outlives the relay: the names it has seen and the last catalogue of each, in one small file.

Not a database: the whole file is read at start and written again, atomically, when something in it changed.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from tabrelay.drift import Baseline
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_address
from tabserver.wire.statics import is_static

log = logging.getLogger(__name__)

# The names of a token holder who makes up new ones for ever must not fill a disk: past this the longest unseen go.
MAX_NAMES: Final = 512
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

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._records: dict[str, Record] = {}

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
            self.flush()

    def remember(self, name: str, record: Record) -> None:
        before = self._records.get(name)
        self._records[name] = record
        if len(self._records) > MAX_NAMES:
            del self._records[min(self._records, key=lambda name: self._records[name].last_seen or 0.0)]
        # A browser that comes and goes moves only `last_seen`: not worth a write each time, `flush` has it in the end.
        kept = (record.catalogue, record.source, record.baseline)
        if before is None or (before.catalogue, before.source, before.baseline) != kept:
            self.flush()

    def flush(self) -> None:
        """Write the file now: after a change that matters, and when the relay stops."""
        if self._path is None:
            return
        body = orjson.dumps(
            {
                name: {
                    "last_seen": record.last_seen,
                    **({"source": record.source} if record.source else {}),
                    **({"baseline": record.baseline.dump()} if record.baseline else {}),
                    "initialize": record.catalogue.initialize if record.catalogue else None,
                    **{name: getattr(record.catalogue, name) for name in LISTS if record.catalogue},
                }
                for name, record in self._records.items()
            }
        )
        scratch = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(body)
            scratch.replace(self._path)
        except OSError as error:
            log.warning("Could not write %s (%s): servers will be forgotten at the next restart.", self._path, error)


def _read(body: bytes) -> list[tuple[str, Record]]:
    records = []
    for name, record in orjson.loads(body).items():
        try:
            check_address(name)
        except ServerNameError:
            continue
        catalogue = None
        if isinstance(record.get("initialize"), dict):
            lists = (record.get(name) or () for name in LISTS)
            catalogue = Catalogue(
                record["initialize"], *(tuple(item for item in items if isinstance(item, dict)) for items in lists)
            )
        last_seen, source = record.get("last_seen"), record.get("source")
        last_seen = last_seen if isinstance(last_seen, int | float) else None
        source = source if isinstance(source, str) else None
        records.append((name, Record(catalogue, last_seen, source, Baseline.load(record.get("baseline")))))
    return records
