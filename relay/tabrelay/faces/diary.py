"""What changes during a handshake session and must outlive the relay: its log level, its subscriptions, the tab it has
pinned, when it was last used, and whether it has ended. One small file, `sessions.json`; what never changes is in the
session's id itself.

Ids are kept as digests only: the file opens nothing.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import orjson

from tabrelay.vault import NO_LINK

log = logging.getLogger(__name__)

MAX_PAGES: Final = 10_000
# Characters of subscriptions on all pages: past it, those of the pages that were written longest ago are forgotten.
MAX_TEXT: Final = 16 * 1024 * 1024


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
        self.pages: dict[str, Page] = {}  # by the digest of an id; for others to see whether there are any
        self._text = 0
        # Hears what must not be forgotten: the key of a page, and what it says.
        self.on_write: Callable[[str, dict[str, Any]], None] = lambda key, row: None
        if path is not None and path.exists():
            try:
                self.pages = {key: _page(value) for key, value in orjson.loads(path.read_bytes()).items()}
            except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
                # Sessions go on without it: they lose a log level, not a handshake.
                log.warning("Could not read %s (%s): starting without it.", path, error)
            self._text = sum(map(_weight, self.pages.values()))

    def __len__(self) -> int:
        return len(self.pages)

    def find(self, id: str) -> Page | None:
        return self.pages.get(digest(id))

    def write(self, id: str, page: Page, *, now: bool = False) -> None:
        """Remember. `now`: it must not be forgotten, whatever happens next."""
        key = digest(id)
        self._keep(key, page)
        if now:
            self.flush()
            self.on_write(key, _row(page))

    def learn(self, key: str, row: Any) -> Page | None:
        """Another relay wrote this page; gives it back if it makes sense. What comes late, after the bus was away, does
        not undo an end."""
        try:
            page = _page(row)
        except (TypeError, AttributeError, KeyError, ValueError):
            return None
        known = self.pages.get(key)
        if known is not None and known.is_ended:
            return None
        self._keep(key, page)
        return page

    def _keep(self, key: str, page: Page) -> None:
        self._drop(key)
        self.pages[key] = page
        self._text += _weight(page)
        if len(self.pages) > MAX_PAGES:
            self._drop(min(self.pages, key=lambda key: self.pages[key].last_used))
        if self._text > MAX_TEXT:
            self._shorten()

    def _drop(self, key: str) -> None:
        page = self.pages.pop(key, None)
        self._text -= 0 if page is None else _weight(page)

    def _shorten(self) -> None:
        for key, page in list(self.pages.items()):
            if self._text <= MAX_TEXT // 2:  # not one page for each that is written from now on
                break
            self._text -= _weight(page)
            self.pages[key] = replace(page, subscriptions=())

    def end(self, id: str, at: float) -> None:
        """The client ended the session: it stays dead over restarts."""
        self.write(id, replace(self.find(id) or Page(at), last_used=at, is_ended=True), now=True)

    def forget(self, older_than: float) -> None:
        self.pages = {key: page for key, page in self.pages.items() if page.last_used >= older_than}
        self._text = sum(map(_weight, self.pages.values()))

    def flush(self) -> None:
        if self._path is None:
            return
        body = orjson.dumps({key: _row(page) for key, page in self.pages.items()})
        scratch = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | NO_LINK, 0o600), "wb") as file:
                file.write(body)
            scratch.replace(self._path)
        except OSError as error:
            log.warning("Could not write %s (%s): ended sessions may come back after a restart.", self._path, error)


def _weight(page: Page) -> int:
    return sum(map(len, page.subscriptions))


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


def digest(id: str) -> str:
    return hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()[:32]
