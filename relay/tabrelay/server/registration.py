"""Registration of a running relay: its record in the state directory, with the names of its servers.

Other commands and the bridge find the relay of a server by these records, without a request. A thread writes the file
when a name or its peer changes (`state_file`). The record is removed when the relay stops; one that a killed relay left
is removed by its readers (`system.relay_records`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tabrelay.system import relay_records
from tabrelay.system.relay_records import ABOUT, RelayRecord
from tabrelay.system.state_file import StateFile


class Registration:
    """The record of one relay."""

    def __init__(self, home: Path, record: RelayRecord, servers: Callable[[], dict[str, str]]) -> None:
        """`servers`: the names of this moment, and what the relay has of each."""
        self._home = home
        self._record = record
        self._servers = servers
        self._path = relay_records.path_of(home, record.id)
        self._file: StateFile[Any] = StateFile(
            self._path, self, loss="commands do not find this relay", most_bytes=relay_records.MAX_BYTES
        )
        self._is_on = False

    def start(self) -> None:
        self._is_on = True
        relay_records.remove_others_at(self._home, self._record.url, self._record.id)
        self._file.flush()

    def names_changed(self) -> None:
        if self._is_on:
            self._file.save_soon()

    def stop(self) -> None:
        if self._is_on:
            self._is_on = False
            self._file.flush()  # a thread that still writes would write the record anew
            self._path.unlink(missing_ok=True)

    # -- rows of the file ---------------------------------------------------------------------------------------------

    def rows(self) -> dict[str, Any]:
        return {ABOUT: self._record.about(), **self._servers()}

    def encode(self, row: Any) -> Any:
        return row

    def decode(self, key: str, value: Any) -> Any | None:
        return None  # no other process writes this file

    def accepts(self, key: str, ours: Any | None, theirs: Any) -> bool:
        return False

    def merge(self, theirs: Mapping[str, Any]) -> None:
        """There are none."""
