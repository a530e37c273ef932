"""Cache of tool arguments that must be repeated in HTTP headers, by server and tool.

An entry is valid for one catalogue, identified by its number. Bounded by the characters that it holds: past MAX_SIZE
the whole cache is dropped and filled again on demand. The headers are compared in `http.param_headers`.
"""

from __future__ import annotations

from typing import Final

from tabrelay.http.param_headers import ParamHeader, param_headers
from tabrelay.routing.catalogue_store import Catalogue

MAX_SIZE: Final = 1024 * 1024  # characters, and one for each server


class ParamHeaderCache:
    """Filled on demand from catalogues. One per relay."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, dict[str, tuple[ParamHeader, ...]]]] = {}  # with the number of the catalogue
        self._size = 0

    def __len__(self) -> int:
        return len(self._rows)

    def find(self, server: str, catalogue: Catalogue, tool: str) -> tuple[ParamHeader, ...]:
        """The arguments that a tool wants repeated; empty if it is not in the catalogue."""
        known = self._rows.get(server)
        if known is None or known[0] != catalogue.number:
            known = self._read(server, catalogue)
        return known[1].get(tool, ())

    def _read(self, server: str, catalogue: Catalogue) -> tuple[int, dict[str, tuple[ParamHeader, ...]]]:
        found = {str(tool.get("name")): param_headers(tool.get("inputSchema")) for tool in catalogue.tools}
        rows = {name: row for name, row in found.items() if row}
        # Replaced entries stay counted, so the total is never less than what is held.
        self._size += 1 + sum(_size(name, row) for name, row in rows.items())
        # defence: catalogues: the cache of repeated arguments
        if self._size > MAX_SIZE:
            self._rows.clear()
            self._size = 0
        self._rows[server] = catalogue.number, rows
        return self._rows[server]


def _size(name: str, row: tuple[ParamHeader, ...]) -> int:
    return len(name) + sum(len(mirror.header) + sum(map(len, mirror.path)) for mirror in row)
