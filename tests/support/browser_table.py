"""What works in which browser, as a table in a document. Rows of browsers that did not run stay as they are."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

BEGIN = "<!-- written by `make test-browsers` -->"
END = "<!-- until here -->"
NAMES = {"chromium": "Chromium", "firefox": "Firefox", "webkit": "WebKitGTK"}
PLACES = {"shared": "shared worker", "elected": "elected tab"}

Row = tuple[str, str]


class Verdicts:
    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self._passed: dict[tuple[str, str, str], bool] = {}

    def add(self, browser: str, mode: str, item: pytest.Item, has_passed: bool) -> None:
        """A test names in `shows` the items that it covers. An item passes if all of its tests pass."""
        marker = item.get_closest_marker("shows")
        if marker is not None:
            key = (browser, mode, marker.args[0])
            self._passed[key] = self._passed.get(key, True) and has_passed

    def write(self, path: Path) -> None:
        before, rest = path.read_text().split(BEGIN)
        table, after = rest.split(END)
        path.write_text(f"{before}{BEGIN}\n{self._table(table)}{END}{after}")

    def _table(self, old: str) -> str:
        columns = list(dict.fromkeys(column for _, _, column in self._passed))
        rows = _read(old)
        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        for browser, mode in dict.fromkeys((browser, mode) for browser, mode, _ in self._passed):
            cells = {column: self._cell(browser, mode, column) for column in columns}
            name = f"{NAMES[browser]} {self.versions[browser]}"
            old_row = next((key for key in rows if key[0].startswith(NAMES[browser]) and key[1] == PLACES[mode]), None)
            if old_row:
                del rows[old_row]
            rows[name, PLACES[mode]] = {**cells, "last run": today}
        head = ["browser", "worker", *columns, "last run"]
        lines = [head, ["---"] * len(head)]
        for (browser, place), cells in sorted(rows.items(), key=lambda row: (row[0][0], -len(row[0][1]))):
            lines.append([browser, place, *(cells.get(column, "") for column in head[2:])])
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)

    def _cell(self, browser: str, mode: str, column: str) -> str:
        return {True: "yes", False: "**no**", None: ""}[self._passed.get((browser, mode, column))]


def _read(table: str) -> dict[Row, dict[str, str]]:
    lines = [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.split("\n") if "|" in line]
    if not lines:
        return {}
    head = lines[0]
    return {(line[0], line[1]): dict(zip(head[2:], line[2:], strict=False)) for line in lines[2:]}
