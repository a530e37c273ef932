"""Files of a developer's app, for `tabrelay dev`: looked up by URL path, and watched for changes.

A path can't leave the folder, also not by a symbolic link, and hidden files are not found. A page gets a script that
loads it again; the app's copy of the loader gets the address that it is served at. Only files that were requested are
watched, so a large folder costs nothing. Does not write responses: `faces/web/app_site` does.
"""

from __future__ import annotations

import hashlib
import html
import re
import time
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from tabrelay.assets.files import LOADER, MIMES
from tabrelay.assets.stored_file import StoredFile

MOST_WATCHED: Final = 2_000  # files; of more, those that were requested last
MAX_IN_MEMORY: Final = 4 * 1024 * 1024  # bytes; larger files are read while they are sent, and get no script
MOST_LISTED: Final = 500  # entries of a folder without an index page
MAX_PATH: Final = 1_024  # characters
_POLL_S: Final = 0.25
_MOST_CHANGES: Final = 256

RELOAD_SCRIPT: Final = b'<script type="module" src="/-/dev_reload.js"></script>'
_HEAD_END: Final = re.compile(rb"</head\s*>", re.IGNORECASE)
_RELAY_LINE: Final = re.compile(rb'^export const RELAY = "[^"]*";', re.MULTILINE)
_MORE_MIMES: Final = {
    ".avif": "image/avif",
    ".csv": "text/csv; charset=utf-8",
    ".gif": "image/gif",
    ".htm": "text/html; charset=utf-8",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".mp3": "audio/mpeg",
    ".mp4": "video/mp4",
    ".pdf": "application/pdf",
    ".webm": "video/webm",
    ".webp": "image/webp",
    ".xml": "application/xml",
}

Stamp = tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class AppFile:
    """A file to send. ``etag`` has no quotes."""

    body: bytes | StoredFile
    mime: str
    etag: str


@dataclass(frozen=True, slots=True)
class Moved:
    """A folder was requested without the slash at its end."""

    location: str


class AppFolder:
    """One folder. `changes` and `find` read the disk: call them in a thread."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._watched: OrderedDict[str, Stamp] = OrderedDict()
        self._changes: list[tuple[int, str]] = []
        self._version = 0
        self._polled_s = 0.0

    # -- files --------------------------------------------------------------------------------------------------------

    def find(self, path: str) -> AppFile | Moved | None:
        """The file at a decoded URL path, the index page of a folder, or a list of its files. Raises OSError for a file
        that can't be read."""
        file = self._locate(path)
        if file is None:
            return None
        if file.is_dir():
            if not path.endswith("/"):
                return Moved(quote(f"{path}/"))
            index = self._locate(f"{path}index.html")
            if index is None or not index.is_file():
                return self._listing(file, path)
            path, file = f"{path}index.html", index
        self._watch(path, file)
        return self._read(file) if file.is_file() else None

    def beside(self, path: str) -> list[str]:
        """The names of what is in the folder of a path, for a message about a file that is not there."""
        folder = self._locate(path.rpartition("/")[0] + "/")
        try:
            names = [] if folder is None else [entry.name for entry in folder.iterdir() if not _is_refused(entry.name)]
        except OSError:
            return []
        return sorted(names)[:MOST_LISTED]

    def _locate(self, path: str) -> Path | None:
        """None for what must not be served; else a path that may not exist."""
        names = path.removeprefix("/").removesuffix("/").split("/") if path.strip("/") else []
        # defence: hidden files and paths that leave the folder
        if not path.startswith("/") or len(path) > MAX_PATH or any(_is_refused(name) for name in names):
            return None
        file = self.root.joinpath(*names)
        try:
            found = file.resolve()
        except (OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
            return None
        # defence: links that leave the folder
        if not found.is_relative_to(self.root) or any(_is_refused(part) for part in found.relative_to(self.root).parts):
            return None
        return None if path.endswith("/") and path != "/" and not found.is_dir() else found

    def _read(self, file: Path) -> AppFile:
        mime = _MORE_MIMES.get(file.suffix.lower()) or MIMES.get(file.suffix.lower(), "application/octet-stream")
        if file.stat().st_size > MAX_IN_MEMORY:
            found = file.stat()
            return AppFile(StoredFile(file), mime, f"{found.st_mtime_ns:x}-{found.st_size:x}")
        body = file.read_bytes()
        if mime.startswith("text/html"):
            body = with_reload_script(body)
        elif file.name == LOADER:
            body = _RELAY_LINE.sub(b"export const RELAY = new URL(import.meta.url).origin;", body, count=1)
        return _in_memory(body, mime)

    def _listing(self, folder: Path, path: str) -> AppFile:
        shown = sorted(
            (f"{entry.name}/" if entry.is_dir() else entry.name)
            for entry in folder.iterdir()
            if not _is_refused(entry.name)
        )
        rows = "".join(f'<li><a href="{quote(name)}">{html.escape(name)}</a></li>' for name in shown[:MOST_LISTED])
        more = f"<p>… and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else ""
        hint = "" if shown else "<p>The folder is empty. <code>tabrelay init</code> writes a page to begin with."
        text = f"<!doctype html><meta charset=utf-8><title>{html.escape(path)}</title><h1>{html.escape(path)}</h1>"
        self._watch(f"{path}index.html", folder / "index.html")
        body = with_reload_script(f"{text}<p>No index.html here.<ul>{rows}</ul>{more}{hint}".encode())
        return _in_memory(body, MIMES[".html"])

    # -- changes ------------------------------------------------------------------------------------------------------

    def _watch(self, path: str, file: Path) -> None:
        self._watched[path] = _stamp(file)
        self._watched.move_to_end(path)
        while len(self._watched) > MOST_WATCHED:
            self._watched.popitem(last=False)

    @property
    def version(self) -> int:
        """Grows with each change."""
        return self._version

    def changes(self, since: int) -> list[str]:
        """The requested paths whose files have changed after this version. Reads the disk four times a second at most,
        however many pages ask."""
        now_s = time.monotonic()
        if now_s - self._polled_s >= _POLL_S:
            self._polled_s = now_s
            for path, before in list(self._watched.items()):
                file = self._locate(path)
                now = None if file is None else _stamp(file)
                if now != before:
                    self._watched[path] = now
                    self._version += 1
                    self._changes = [*self._changes[1 - _MOST_CHANGES :], (self._version, path)]
        return [path for version, path in self._changes if version > since]


def with_reload_script(page: bytes) -> bytes:
    """In the head, where the page's own policy applies to it; a page without one gets it at its end."""
    found = _HEAD_END.search(page)
    place = found.start() if found else len(page)
    return page[:place] + RELOAD_SCRIPT + page[place:]


def server_names(folder: Path) -> Iterator[str]:
    """The names with which a page's scripts connect, as far as they are written in its index page."""
    try:
        text = (folder / "index.html").read_text(encoding="utf-8", errors="replace")[:MAX_IN_MEMORY]
    except OSError:
        return
    yield from re.findall(r"""\b(?:server\s*[:=]|data-server\s*=)\s*["']([\w.-]{1,64})["']""", text)


def _in_memory(body: bytes, mime: str) -> AppFile:
    return AppFile(body, mime, hashlib.sha256(body).hexdigest()[:32])


def _is_refused(name: str) -> bool:
    return not name or name.startswith(".") or any(character in "\\/:\0" or character < " " for character in name)


def _stamp(file: Path) -> Stamp:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
