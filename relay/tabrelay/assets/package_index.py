"""Python packages that the relay offers to workers: wheels in the state directory, and an index of them.

    packages/index.json             names, versions, files, hashes, import names, dependencies
    packages/NAME-VERSION-….whl

A wheel is served only if the index has it, under an address that contains its hash; a file that differs is not served.
`tabrelay packages` writes, the relay reads. Downloads nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tabrelay.system import private_files

INDEX: Final = "index.json"
MOST_PACKAGES: Final = 512
MAX_WHEEL: Final = 256 * 1024 * 1024  # bytes
# No path, no hidden file: the name of a wheel (PEP 427).
_FILE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+]*(-[A-Za-z0-9_.+!]+){4,5}\.whl")
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class PackageError(Exception):
    """A package or the index can't be used; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Package:
    """One wheel. `imports`: its top-level names. `depends`: names of other packages. `source`: where it came from."""

    name: str
    version: str
    file: str
    sha256: str
    size: int
    imports: tuple[str, ...]
    depends: tuple[str, ...]
    source: str = ""

    @property
    def is_pure(self) -> bool:
        return self.file.endswith("-none-any.whl")


class PackageIndex:
    """The folder of one state directory."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "packages"
        self._cached: tuple[tuple[int, int], dict[str, Package]] | None = None

    def read(self) -> dict[str, Package]:
        """All packages by name; reads the file again when it has changed. Raises PackageError."""
        path = self.folder / INDEX
        try:
            found = path.stat()
        except OSError:
            return {}
        stamp = found.st_mtime_ns, found.st_size
        if self._cached is None or self._cached[0] != stamp:
            try:
                packages = [_package(row) for row in json.loads(private_files.read(path))["packages"]]
            except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
                raise PackageError(
                    f"{path} can't be read ({error}). Remove {self.folder} and add packages again."
                ) from None
            self._cached = stamp, {package.name: package for package in packages[:MOST_PACKAGES]}
        return self._cached[1]

    def find(self, sha256: str, file: str) -> Path | None:
        """The file of a package in the index."""
        # defence: only wheels of the index are served
        if not any((package.sha256, package.file) == (sha256, file) for package in self.read().values()):
            return None
        path = self.folder / file
        return path if path.is_file() and not path.is_symlink() else None

    def add(self, packages: Iterable[Package], wheels: Path) -> None:
        """Copy wheels from a folder, and write the index. Other versions of these packages are removed."""
        new = {package.name: package for package in packages}
        known = self.read()
        if len({**known, **new}) > MOST_PACKAGES:
            raise PackageError(f"The relay keeps at most {MOST_PACKAGES} packages.")
        private_files.ensure_directory(self.folder.parent)
        private_files.ensure_directory(self.folder)
        for package in new.values():
            draft = self.folder / f".{package.file}.{os.getpid()}"
            shutil.copyfile(wheels / package.file, draft)
            os.chmod(draft, 0o600)
            draft.replace(self.folder / package.file)
        self._write({**known, **new})

    def remove(self, names: Iterable[str]) -> list[str]:
        """Remove packages. Returns the names of others that depend on them."""
        gone = set(names)
        left = {name: package for name, package in self.read().items() if name not in gone}
        self._write(left)
        return sorted(name for name, package in left.items() if gone & set(package.depends))

    def _write(self, packages: dict[str, Package]) -> None:
        rows = [asdict(packages[name]) for name in sorted(packages)]
        private_files.write(self.folder / INDEX, json.dumps({"packages": rows}, indent=1) + "\n")
        kept = {package.file for package in packages.values()}
        for path in self.folder.glob("*.whl"):
            if path.name not in kept:
                path.unlink(missing_ok=True)
        self._cached = None


def canonical(name: str) -> str:
    """PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def check_file_name(name: str) -> str:
    """The name of a wheel, without any path."""
    # defence: names of wheels are no paths
    if not _FILE.fullmatch(name) or len(name) > 255:
        raise PackageError(f"{name[:80]!a} is not the name of a wheel.")
    return name


def hash_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def import_names(wheel: Path) -> tuple[str, ...]:
    """The top-level modules and packages of a wheel."""
    names = set()
    with zipfile.ZipFile(wheel) as archive:
        for path in archive.namelist():
            first, _, rest = path.partition("/")
            if rest and not first.endswith((".dist-info", ".data")) and first.isidentifier():
                names.add(first)
            elif not rest and (stem := first.partition(".")[0]).isidentifier() and first.endswith((".py", ".so")):
                names.add(stem)
    return tuple(sorted(names))


def _package(row: Any) -> Package:
    package = Package(
        canonical(str(row["name"])),
        str(row["version"]),
        check_file_name(str(row["file"])),
        str(row["sha256"]),
        int(row["size"]),
        tuple(str(name) for name in row["imports"]),
        tuple(canonical(str(name)) for name in row["depends"]),
        str(row.get("source", "")),
    )
    if not _SHA256.fullmatch(package.sha256):
        raise ValueError(f"the hash of {package.name}")
    return package
