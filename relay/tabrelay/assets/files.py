"""Static assets for browsers: found in the wheel or in the source tree, hashed, compressed, and looked up by path.

Groups under a hashed address (js, tabserver, pyodide, pyscript, micropython, editor, snapshot) never change there and
may be cached without limit. All of them also have stable names; the pages (demo, page) have only those.
``tabserver.zip`` is built from the package that this process imports, so relay and tab have the same `wire`. A memory
snapshot is offered only if it was created from exactly these files. Large files of the runtimes stay on disk. Does not
write responses: `faces/web` does.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tabrelay import __version__
from tabrelay.assets.npm_package import make_package
from tabrelay.assets.stored_file import StoredFile

MIMES = {
    "": "text/plain; charset=utf-8",  # licences
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".py": "text/x-python; charset=utf-8",
    ".svg": "image/svg+xml",
    ".tgz": "application/gzip",
    ".toml": "application/toml",
    ".ts": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
    ".zip": "application/zip",
}
LOADER = "tabrelay.js"
SCRIPT_FOLDERS = ("client", "schema", "webmcp", "worker")  # of the JavaScript modules below `js`
DEFAULT_RELAY = "http://127.0.0.1:4747"  # in the loader of the source tree
COMPRESSIBLE = {".css", ".html", ".js", ".json", ".map", ".md", ".mjs", ".py", ".svg", ".toml", ".ts", ".txt"}
MAX_GZIP_HERE = 2 * 1024 * 1024  # larger files are compressed by the build, or not at all
MAX_IN_MEMORY = 64 * 1024  # bytes; larger files of the runtimes are read from disk for each response

Body = bytes | StoredFile

# No segment of a path can be "..", hidden or empty: a path can't leave its folder.
PATH = re.compile(r"[A-Za-z0-9_@+-][A-Za-z0-9_@+.-]*(/[A-Za-z0-9_@+-][A-Za-z0-9_@+.-]*)*")
_NOT_SERVED = (".zst", ".gz", ".pyc")
# `retry/3/client.js` is `client.js`. Until the page is closed, Firefox does not load a module again that failed once,
# nor modules that import it, so each attempt needs a new path.
_RETRY = re.compile(r"retry/[0-9]{1,9}/(?!demo/|page/|retry/)(?P<path>.+)")
_HASHED = re.compile(r"assets/(?P<group>[a-z]+)-(?P<hash>[0-9a-f]{16})/(?P<path>.+)")


class AssetsMissing(Exception):
    """A required file is missing; the text says how to get it."""


@dataclass(frozen=True, slots=True)
class Asset:
    """One file, ready to send. ``encoded`` has smaller forms of it by content coding. ``etag`` has no quotes: the HTTP
    side adds them and distinguishes the codings."""

    body: Body
    encoded: Mapping[str, Body]
    mime: str
    etag: str
    immutable: bool = False


class Folder:
    """Files below one directory, read on demand. A live folder reads a file again when it has changed on disk. Others
    keep each file as it was first seen: small ones in memory, large ones open."""

    def __init__(self, root: Path, is_live: bool = False) -> None:
        self.root = root
        self._is_live = is_live
        self._cache: dict[str, tuple[tuple[int, int], Asset]] = {}

    def get(self, path: str, immutable: bool = False) -> Asset | None:
        if not PATH.fullmatch(path) or path.endswith(_NOT_SERVED):
            return None
        cached = self._cache.get(path)
        if cached is not None and not self._is_live:
            return cached[1]
        file = self.root / path
        try:
            found = file.stat()
            if not file.is_file() or not file.resolve().is_relative_to(self.root.resolve()):
                return None
            stamp = (found.st_mtime_ns, found.st_size)
            if cached is None or cached[0] != stamp:
                packed = file.with_name(file.name + ".zst")
                zstd_body = self._read(packed) if packed.is_file() else None
                cached = stamp, make_asset(file.name, self._read(file), immutable, zstd_body)
                self._cache[path] = cached
        except OSError:
            return None
        return cached[1]

    def _read(self, file: Path) -> Body:
        is_large = file.stat().st_size > MAX_IN_MEMORY
        return StoredFile(file) if is_large and not self._is_live else file.read_bytes()

    def preload(self) -> Folder:
        """Open all files now, so that the relay serves what was hashed, even if the files change."""
        for name in self._names():
            self.get(name, immutable=True)
        return self

    def _names(self) -> Iterator[str]:
        """All files that can be requested, in a fixed order, for the hash."""
        for file in sorted(self.root.rglob("*")):
            name = file.relative_to(self.root).as_posix()
            if file.is_file() and PATH.fullmatch(name) and not name.endswith(_NOT_SERVED):
                yield name

    @cached_property
    def hash(self) -> str:
        """Of the files as they are served from now on."""
        found = ((name, self.get(name, immutable=True)) for name in self._names())
        return content_hash((name, asset.etag.encode()) for name, asset in found if asset is not None)


class Assets:
    """All groups by name. Directories may be missing until they are needed: ``check`` raises for them."""

    def __init__(
        self,
        *,
        tabserver: Path,
        page: Path,
        demo: Path,
        pyodide: Path,
        pyscript: Path,
        micropython: Path,
        snapshot: Path,
        editor: Path,
        docs: Path,
        fix: str = "",
    ) -> None:
        self._tabserver = tabserver
        self._js = Folder(tabserver / "js", is_live=True)
        self._page = Folder(page, is_live=True)
        self._demo = Folder(demo, is_live=True)
        # Tabserver for MicroPython: one file, with a stable name.
        self._micropython = Folder(tabserver / "micropython", is_live=True)
        made = {"pyodide": pyodide, "pyscript": pyscript, "micropython": micropython, "snapshot": snapshot}
        made["editor"] = editor
        self._runtimes = {name: Folder(folder) for name, folder in made.items()}
        self.docs = docs  # the documentation site, which may be missing
        self._fix = fix

    @classmethod
    def find(cls) -> Assets:
        """The files of the installed package, else of the source tree of this module."""
        spec = importlib.util.find_spec("tabserver")
        if spec is None or not spec.submodule_search_locations:
            raise AssetsMissing("The browser package `tabserver` can't be found. Reinstall tabrelay.")
        tabserver = Path(spec.submodule_search_locations[0])
        package = Path(__file__).resolve().parents[1]
        packed = package / "_assets"
        if packed.is_dir():
            fix = "Reinstall tabrelay: pip install --force-reinstall tabrelay"
            demo, made, docs = packed / "demo", packed, packed / "docs"
        else:
            fix = "In the source tree, `make demo` brings it."
            root = package.parents[1]
            demo, made, docs = root / "web_demo", root / "build" / "assets", root / "build" / "docs"
        return cls(
            tabserver=tabserver,
            page=package / "assets" / "page",
            demo=demo,
            pyodide=made / "pyodide",
            pyscript=made / "pyscript",
            micropython=made / "micropython",
            snapshot=made / "snapshot",
            editor=made / "editor",
            docs=docs,
            fix=fix,
        )

    def check(self) -> None:
        """Raise if a required file is missing: an error at the start is better than a page that does not load."""
        for name, file in (("pyodide", "pyodide.mjs"), ("pyscript", "core.js"), ("micropython", "micropython.mjs")):
            if not (self._runtimes[name].root / file).is_file():
                raise AssetsMissing(f"{name.capitalize()} is missing ({self._runtimes[name].root / file}). {self._fix}")
        if not (self._js.root / "worker.js").is_file():
            raise AssetsMissing(f"The browser package is incomplete ({self._js.root / 'worker.js'}). {self._fix}")

    @cached_property
    def build(self) -> str:
        """Identifies the code that runs in the browser: a worker of another build is notified."""
        return hashlib.sha256(f"{self._js_frozen.hash} {self.tabserver.etag}".encode()).hexdigest()[:16]

    def manifest(self) -> dict[str, Any]:
        self.check()
        prefix = "/-/assets"
        manifest = {
            "version": __version__,
            "build": self.build,
            "tabserver": f"{prefix}/tabserver-{self.tabserver.etag}/tabserver.zip",
            "pyodide": f"{prefix}/pyodide-{self._runtimes['pyodide'].hash}/",
            "pyscript": f"{prefix}/pyscript-{self._runtimes['pyscript'].hash}/",
            "micropython": f"{prefix}/micropython-{self._runtimes['micropython'].hash}/",
            "js": f"{prefix}/js-{self._js_frozen.hash}/",
        }
        if self.snapshot is None:
            return manifest
        url = f"{prefix}/snapshot-{self._runtimes['snapshot'].hash}/snapshot.bin"
        about = {"integrity": self.snapshot["integrity"], "library_bytes": self.snapshot["library_bytes"]}
        return {**manifest, "snapshot": {"url": url, **about}}

    @property
    def pyodide(self) -> Path:
        return self._runtimes["pyodide"].root

    @cached_property
    def snapshot_fingerprint(self) -> str:
        """Identity of the files that a snapshot belongs to: it contains imported modules and offsets into the zip."""
        return hashlib.sha256(f"{self.tabserver.etag} {self._runtimes['pyodide'].hash}".encode()).hexdigest()[:16]

    @cached_property
    def snapshot(self) -> dict[str, Any] | None:
        """Metadata of the snapshot, if there is one for these files. Without one, workers boot from the files."""
        try:
            about = json.loads((self._runtimes["snapshot"].root / "snapshot.json").read_bytes())
        except (OSError, ValueError):
            return None
        fits = isinstance(about, dict) and about.get("fits") == self.snapshot_fingerprint
        is_sound = fits and isinstance(about.get("integrity"), str) and isinstance(about.get("library_bytes"), int)
        return about if is_sound else None

    def index(self) -> Asset | None:
        """The relay's own page."""
        return self._page.get("index.html")

    def lookup(self, path: str) -> Asset | None:
        """The file behind ``/-/<path>``."""
        if retry := _RETRY.fullmatch(path):
            path = retry["path"]
        hashed = _HASHED.fullmatch(path)
        if hashed:
            return self._hashed(hashed["group"], hashed["hash"], hashed["path"])
        first, _, rest = path.partition("/")
        if first == "demo":
            return self._demo.get(rest if rest and not rest.endswith("/") else f"{rest}index.html")
        if first == "page":
            return self._page.get(rest)
        if path == "micropython/tabserver.py":
            return self._micropython.get("tabserver.py")
        if first in self._runtimes:
            # For pages that are written by hand, without a hash.
            found = self._runtimes[first].get(rest)
            return found and replace(found, immutable=False)
        if path == "tabserver.zip":
            return replace(self.tabserver, immutable=False)
        if path == "tabrelay.tgz":
            return self._package
        return self._js.get(path) if not rest or first in SCRIPT_FOLDERS else None

    def loader(self, relay: str) -> Asset | None:
        """The loader script that apps host, for the relay at this address."""
        found = self._js.get(LOADER)
        if found is None:
            return None
        text = read_all(found.body).replace(DEFAULT_RELAY.encode(), relay.encode())
        return make_asset(LOADER, text, immutable=False)

    def _hashed(self, group: str, hash: str, path: str) -> Asset | None:
        if group == "tabserver":
            return self.tabserver if (hash, path) == (self.tabserver.etag, "tabserver.zip") else None
        folder = self._js_frozen if group == "js" else self._runtimes.get(group)
        return folder.get(path, immutable=True) if folder is not None and folder.hash == hash else None

    @cached_property
    def _js_frozen(self) -> Folder:
        # Not the live folder of the stable names, where a developer sees an edit after a reload.
        return Folder(self._js.root).preload()

    @cached_property
    def _package(self) -> Asset:
        body = make_package(self._js.root, __version__, self.build)
        return Asset(body, {}, MIMES[".tgz"], hashlib.sha256(body).hexdigest()[:32])

    @cached_property
    def tabserver(self) -> Asset:
        """The browser package that this process imports, as a zip."""
        files = [
            (f"tabserver/{file.relative_to(self._tabserver).as_posix()}", file.read_bytes())
            # A page of an app gets the script from Python too: see handlers/apps.py.
            for file in (*sorted(self._tabserver.rglob("*.py")), *self._js.root.glob("app_view.js"))
            if file.parent != self._micropython.root
        ]
        return Asset(make_zip(files), {}, MIMES[".zip"], content_hash(iter(files)), immutable=True)


def make_asset(name: str, body: Body, immutable: bool, zstd_body: Body | None = None) -> Asset:
    suffix = Path(name).suffix.lower()
    encoded: dict[str, Body] = {}
    if zstd_body is not None:
        encoded["zstd"] = zstd_body
    elif suffix in COMPRESSIBLE and isinstance(body, bytes) and len(body) <= MAX_GZIP_HERE:
        encoded["gzip"] = gzip.compress(body, 6, mtime=0)
    smaller = {coding: packed for coding, packed in encoded.items() if len(packed) < len(body)}
    digest = hashlib.sha256(body).hexdigest() if isinstance(body, bytes) else body.sha256
    mime = MIMES.get(suffix, "application/octet-stream")
    return Asset(body, smaller, mime, digest[:32], immutable)


def read_all(body: Body) -> bytes:
    """The whole content, in memory."""
    return body if isinstance(body, bytes) else b"".join(body.chunks())


def make_zip(files: list[tuple[str, bytes]]) -> bytes:
    """Deterministic zip: fixed order, date and mode."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in files:
            info = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
            info.external_attr = 0o644 << 16
            info.create_system = 3
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, body)
    return target.getvalue()


def content_hash(files: Iterator[tuple[str, bytes]]) -> str:
    whole = hashlib.sha256()
    for name, body in files:
        whole.update(f"{name}\0{len(body)}\0".encode())
        whole.update(body)
    return whole.hexdigest()[:16]
