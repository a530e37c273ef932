"""Persistent store of server names and their last catalogues: one JSON file, `servers.json`.

The whole file is read at start and replaced after a change. A single change is written at once; many together, as when
thousands of browsers reconnect, are written together (`state_file`). It is no database, and has a limit of names.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson

from tabrelay.payloads.list_checks import (
    ANY_SIZE,
    DESCRIPTION_MEMBERS,
    inspecting,
    read_server_description,
    run_to_end,
)
from tabrelay.routing.tool_drift import Baseline
from tabrelay.system.state_file import StateFile
from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_address
from tabserver.wire.static_tools import is_static

# A client that invents names must not fill the disk: past this, the least recently seen names are removed.
MAX_NAMES: Final = 512
MAX_FILE_BYTES: Final = 128 * 1024 * 1024  # a larger file was not written by the relay
# Memory beside the text, in Python 3.11: for each value, object and array.
VALUE_BYTES: Final = 64
OBJECT_BYTES: Final = 200
ARRAY_BYTES: Final = 64
# The catalogue's name of a list -> its key in the result of MCP
LISTS: Final = {"tools": "tools", "resources": "resources", "templates": "resourceTemplates", "prompts": "prompts"}


@dataclass(frozen=True, slots=True)
class Catalogue:
    """Description of a server: its `initialize` result and its lists, in the shape of legacy MCP."""

    initialize: dict[str, Any] = field(default_factory=dict)
    tools: tuple[dict[str, Any], ...] = ()
    resources: tuple[dict[str, Any], ...] = ()
    templates: tuple[dict[str, Any], ...] = ()
    prompts: tuple[dict[str, Any], ...] = ()
    # Unique per catalogue, so that others can refer to one without keeping it.
    number: int = field(default_factory=itertools.count(1).__next__, init=False, compare=False)

    def without_statics(self) -> Catalogue:
        """Without static tools, which depend on the present settings."""
        return replace(self, tools=tuple(tool for tool in self.tools if not is_static(tool)))

    def to_dict(self) -> dict[str, Any]:
        return {"initialize": self.initialize, **{name: getattr(self, name) for name in LISTS}}

    @classmethod
    def from_dict(cls, row: object) -> Catalogue | None:
        """The only conversion from values of a server, a file or another relay: what does not have the type that MCP
        defines is left out. None if there is no `initialize` result."""
        return run_to_end(cls.reading(row))

    @classmethod
    def reading(cls, row: object) -> Generator[None, None, Catalogue | None]:
        """The same, with a `yield` after each item."""
        if not isinstance(row, dict) or not isinstance(row.get("initialize"), dict):
            return None
        # defence: the types of a server's description of itself
        about = read_server_description(row["initialize"])
        lists: dict[str, tuple[dict[str, Any], ...]] = {}
        for name, key in LISTS.items():
            items, _ = yield from inspecting(key, row.get(name) or [], ANY_SIZE)
            lists[name] = tuple(items)
        return cls({name: about[name] for name in DESCRIPTION_MEMBERS if name in about}, **lists)

    @property
    def size(self) -> int:
        """Estimated bytes of memory. An empty object is two bytes of JSON and 64 of memory."""
        text = orjson.dumps([self.initialize, self.tools, self.resources, self.templates, self.prompts])
        values = text.count(b",") + text.count(b":")
        # defence: catalogues: the memory of a catalogue
        return len(text) + values * VALUE_BYTES + text.count(b"{") * OBJECT_BYTES + text.count(b"[") * ARRAY_BYTES

    def changes(self, before: Catalogue | None) -> frozenset[str]:
        """The lists that differ, by the names of their MCP notifications."""
        old = before or Catalogue()
        changed = {name for name in ("tools", "resources", "prompts") if getattr(self, name) != getattr(old, name)}
        return frozenset(changed | ({"resources"} if self.templates != old.templates else set()))

    def digests(self) -> dict[str, bytes]:
        """A digest per list, by the names of their MCP notifications. They differ where `changes` finds a change."""
        lists = {"tools": self.tools, "resources": (self.resources, self.templates), "prompts": self.prompts}
        return {
            name: hashlib.sha256(orjson.dumps(items, option=orjson.OPT_SORT_KEYS)).digest()
            for name, items in lists.items()
        }


@dataclass(frozen=True, slots=True)
class StoredServer:
    catalogue: Catalogue | None = None
    last_seen: float | None = None
    # Fingerprint of the configuration of an upstream; None for browsers.
    source: str | None = None
    # Its tools at their first use.
    baseline: Baseline | None = None


class CatalogueStore:
    """One JSON file, private to the user. Without a path nothing is written."""

    def __init__(self, path: Path | None, *, most: int = MAX_NAMES) -> None:
        """`most`: limit of names."""
        self._most = most
        self._records: dict[str, StoredServer] = {}
        self._removed: dict[str, None] = {}
        self._file = StateFile(
            path, self, loss="servers will be forgotten at the next restart", most_bytes=MAX_FILE_BYTES
        )

    def load(self) -> dict[str, StoredServer]:
        self._records = self._file.load()
        return dict(self._records)

    def has(self, name: str) -> bool:
        return name in self._records

    def get(self, name: str) -> StoredServer | None:
        return self._records.get(name)

    def remove(self, name: str) -> None:
        if self._records.pop(name, None) is not None:
            self._removed[name] = None
            while len(self._removed) > self._most:
                del self._removed[next(iter(self._removed))]
            self._file.save_soon()

    def put(self, name: str, record: StoredServer) -> None:
        before = self._records.get(name)
        self._records[name] = record
        self._removed.pop(name, None)
        self._evict()
        # A browser that reconnects changes only `last_seen`: not worth a write each time, `flush` writes it at the end.
        kept = (record.catalogue, record.source, record.baseline)
        if before is None or (before.catalogue, before.source, before.baseline) != kept:
            self._file.save_soon()

    def _evict(self) -> None:
        while len(self._records) > self._most:
            oldest = min(self._records, key=lambda name: self._records[name].last_seen or 0.0)
            del self._records[oldest]

    def flush(self) -> None:
        """The relay stops: write the file now."""
        self._file.flush()

    # -- rows of the file ---------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, StoredServer]:
        return dict(self._records)

    def encode(self, record: StoredServer) -> dict[str, Any]:
        return {
            "last_seen": record.last_seen,
            **({"source": record.source} if record.source else {}),
            **({"baseline": record.baseline.dump()} if record.baseline else {}),
            **(record.catalogue.to_dict() if record.catalogue else {"initialize": None}),
        }

    def decode(self, name: str, value: Any) -> StoredServer | None:
        try:
            check_address(name)
        except ServerNameError:
            return None
        if not isinstance(value, dict):
            return None
        catalogue = Catalogue.from_dict(value)
        last_seen, source = value.get("last_seen"), value.get("source")
        last_seen = last_seen if isinstance(last_seen, int | float) else None
        source = source if isinstance(source, str) else None
        return StoredServer(catalogue, last_seen, source, Baseline.load(value.get("baseline")))

    def accepts(self, name: str, ours: StoredServer | None, theirs: StoredServer) -> bool:
        """Several relays of one user write the same file. A newer row of another one is not overwritten."""
        is_newer = ours is None or (theirs.last_seen or 0) > (ours.last_seen or 0)
        return is_newer and name not in self._removed

    def merge(self, theirs: Mapping[str, StoredServer]) -> None:
        self._records |= theirs
        self._evict()
