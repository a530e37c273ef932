"""Documentation site on disk: a page or file by its path below ``/-/docs/``, with the compressed copy beside it.

Nothing is kept in memory: each request opens the file again, so an unused site costs nothing and a new build is served
at once. Folders have an index page. Does not write responses: `faces/web/documentation` does. The build is in
`.ci/docs_site`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tabrelay.assets.files import MIMES, PATH, Asset
from tabrelay.assets.stored_file import StoredFile

COMPRESSED: Final = ".gz"


class DocsSite:
    """The site in one folder, which may be missing. `find` and `not_found` read the disk: call them in a thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def find(self, path: str) -> Asset | None:
        """``path``: empty or with a slash at its end for a page, else a file."""
        name = f"{path}index.html" if not path or path.endswith("/") else path
        if not PATH.fullmatch(name) or name.endswith(COMPRESSED):
            return None
        file = self._root / name
        try:
            if not file.is_file() or not file.resolve().is_relative_to(self._root.resolve()):
                return None
            body = StoredFile(file)
            packed = file.with_name(file.name + COMPRESSED)
            encoded = {"gzip": StoredFile(packed)} if packed.is_file() else {}
        except OSError:
            return None
        mime = MIMES.get(file.suffix.lower(), "application/octet-stream")
        return Asset(body, encoded, mime, body.sha256[:32])

    def not_found(self) -> Asset | None:
        """The page for addresses that lead nowhere."""
        return self.find("404.html")
