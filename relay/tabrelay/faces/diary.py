"""What changes during a handshake session and must outlive the relay: its log level, its subscriptions, the tab it has
pinned, when it was last used, and whether it has ended. One small file, `sessions.json`; what never changes is in the
session's id itself.

Ids are kept as digests only: the file opens nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

log = logging.getLogger(__name__)

MAX_PAGES: Final = 10_000


@dataclass(frozen=True, slots=True)
class Page:
    """What the diary says of one session."""

    last_used: float
    level: str | None = None
    subscriptions: tuple[str, ...] = ()
    is_ended: bool = False
    tab: str | None = None


class Diary:
    """Bounded: past MAX_PAGES the ones that were not used for longest go."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._pages: dict[str, Page] = {}
        if path is not None and path.exists():
            try:
                self._pages = {key: _page(value) for key, value in orjson.loads(path.read_bytes()).items()}
            except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
                # Sessions go on without it: they lose a log level, not a handshake.
                log.warning("Could not read %s (%s): starting without it.", path, error)

    def __len__(self) -> int:
        return len(self._pages)

    def find(self, id: str) -> Page | None:
        return self._pages.get(_digest(id))

    def write(self, id: str, page: Page, *, now: bool = False) -> None:
        """Remember. `now`: it must not be forgotten, whatever happens next."""
        key = _digest(id)
        self._pages.pop(key, None)
        self._pages[key] = page
        if len(self._pages) > MAX_PAGES:
            del self._pages[min(self._pages, key=lambda key: self._pages[key].last_used)]
        if now:
            self.flush()

    def end(self, id: str, at: float) -> None:
        """The client ended the session: it stays dead over restarts."""
        self.write(id, replace(self.find(id) or Page(at), last_used=at, is_ended=True), now=True)

    def forget(self, older_than: float) -> None:
        self._pages = {key: page for key, page in self._pages.items() if page.last_used >= older_than}

    def flush(self) -> None:
        if self._path is None:
            return
        body = orjson.dumps({key: _row(page) for key, page in self._pages.items()})
        scratch = self._path.with_suffix(".tmp")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(body)
            scratch.replace(self._path)
        except OSError as error:
            log.warning("Could not write %s (%s): ended sessions may come back after a restart.", self._path, error)


def _row(page: Page) -> dict[str, Any]:
    row: dict[str, Any] = {"last_used": round(page.last_used)}
    if page.is_ended:
        row["ended"] = True
    if page.level is not None:
        row["level"] = page.level
    if page.subscriptions:
        row["subscriptions"] = page.subscriptions
    if page.tab is not None:
        row["tab"] = page.tab
    return row


def _page(row: Any) -> Page:
    level, tab = row.get("level"), row.get("tab")
    return Page(
        float(row["last_used"]),
        level if isinstance(level, str) else None,
        tuple(uri for uri in row.get("subscriptions", ()) if isinstance(uri, str)),
        row.get("ended") is True,
        tab if isinstance(tab, str) else None,
    )


def _digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
