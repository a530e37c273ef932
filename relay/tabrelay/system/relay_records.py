"""Records of the running relays of one user: a file for each relay in `relays` of the state directory.

A record has the relay's URL, its process and the names of its servers. The relay writes it while it runs
(`server.registration`) and removes it at its end. The record of a relay that was killed stays: its process is gone, or
the program at its URL does not prove that it is the relay. Readers remove records of processes that are gone. Reading
starts no connection.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit

from tabrelay.system import private_files
from tabrelay.system.process_identity import ProcessIdentity

FOLDER: Final = "relays"
ABOUT: Final = "-"  # the key of the relay itself; no server has this name
MAX_RECORDS: Final = 64  # the newest ones are read
MAX_BYTES: Final = 1024 * 1024
UNKNOWN_LIFE_S: Final = 7 * 86_400.0  # of a record whose process can't be looked up from here
# What a relay has of a server, best first.
HELD: Final = "held"  # a page or an upstream has the name
DECLARED: Final = "declared"  # the command line or the configuration names it
KNOWN: Final = "known"  # seen or paired once
RANKS: Final = {HELD: 0, DECLARED: 1, KNOWN: 2}


@dataclass(frozen=True, slots=True)
class RelayRecord:
    """One running relay. `command`: its words after the program's name; `port` and `host`: where it listens; `app_url`:
    of the app that `tabrelay dev` serves on another port, otherwise empty."""

    id: str
    url: str
    host: str
    port: int
    process: ProcessIdentity
    version: str
    command: tuple[str, ...]
    folder: str
    began: float
    service: bool = False
    servers: dict[str, str] = field(default_factory=dict)
    app_url: str = ""

    @property
    def address(self) -> str:
        """The URL that the relay printed at its start, for messages."""
        return self.app_url or self.url

    @property
    def ports(self) -> frozenset[int]:
        """All ports on which it listens, each of which selects it."""
        return frozenset({self.port, _port_of(self.address, self.port)})

    @property
    def shown_port(self) -> int:
        return _port_of(self.address, self.port)

    def about(self) -> dict[str, Any]:
        return {
            "url": self.url,
            "host": self.host,
            "port": self.port,
            "process": self.process.to_dict(),
            "version": self.version,
            "command": list(self.command),
            "folder": self.folder,
            "began": self.began,
            "service": self.service,
            "app_url": self.app_url,
        }

    @classmethod
    def parse(cls, id: str, text: str) -> Self | None:
        try:
            rows = json.loads(text)
            about = rows.pop(ABOUT)
            return cls(
                id,
                str(about["url"]),
                str(about["host"]),
                int(about["port"]),
                ProcessIdentity.from_dict(about["process"]),
                str(about["version"]),
                tuple(str(word) for word in about["command"]),
                str(about["folder"]),
                float(about["began"]),
                bool(about["service"]),
                {str(name): str(state) for name, state in rows.items() if state in RANKS},
                str(about.get("app_url", "")),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def rank(self, server: str) -> int:
        """Smaller is better; the last rank does not know the server."""
        return RANKS.get(self.servers.get(server, ""), len(RANKS))


def _port_of(url: str, default: int) -> int:
    try:
        return urlsplit(url).port or default
    except ValueError:
        return default


def folder(home: Path) -> Path:
    return home / FOLDER


def path_of(home: Path, id: str) -> Path:
    return folder(home) / f"{id}.json"


def stamps(home: Path) -> tuple[tuple[str, int, int], ...]:
    """Changes whenever a record is written, added or removed."""
    return tuple((path.name, found.st_mtime_ns, found.st_ino) for path, found in _files(home))


def read(home: Path) -> list[RelayRecord]:
    """The relays that may be running, the one started last first. Removes the records of processes that are gone."""
    found = []
    for path, status in _files(home):
        try:
            record = RelayRecord.parse(path.stem, private_files.read(path))
        except (private_files.StateError, OSError, ValueError):
            continue
        is_running = record.process.is_running if record is not None else False
        is_old = time.time() - status.st_mtime > UNKNOWN_LIFE_S
        # defence: records of relays that were killed
        if is_running is False or (is_running is None and is_old):
            with contextlib.suppress(OSError):
                path.unlink()
        elif record is not None:
            found.append(record)
    return sorted(found, key=lambda record: record.began, reverse=True)


def best(records: Iterable[RelayRecord], server: str | None) -> list[RelayRecord]:
    """The relays that have the server, by the best rank that one of them has. All of them if none knows it."""
    records = list(records)
    if server is None or not records:
        return records
    rank = min(record.rank(server) for record in records)
    found = [record for record in records if record.rank(server) == rank]
    # A name that no relay has or declares is not worth a question: each of them gives the same answer.
    return found[:1] if rank >= RANKS[KNOWN] else found


def remove_others_at(home: Path, url: str, id: str) -> None:
    """A relay that has bound an address is the only one there: other records of the address are left over."""
    for record in read(home):
        if record.url == url and record.id != id:
            path_of(home, record.id).unlink(missing_ok=True)


def remove_of(home: Path, process: ProcessIdentity) -> None:
    """The records of a process that ends."""
    for record in read(home):
        if record.process == process:
            path_of(home, record.id).unlink(missing_ok=True)


def _files(home: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The records in the order of their names, at most the `MAX_RECORDS` that were written last."""
    found = []
    try:
        with os.scandir(folder(home)) as entries:
            for entry in entries:
                if entry.name.endswith(".json") and not entry.name.startswith("."):
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_size <= MAX_BYTES:
                            found.append((Path(entry.path), status))
    except OSError:
        return
    found.sort(key=lambda one: one[1].st_mtime_ns, reverse=True)
    yield from sorted(found[:MAX_RECORDS], key=lambda one: one[0].name)
