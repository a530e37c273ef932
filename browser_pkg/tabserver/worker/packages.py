"""Packages for worker Python: found in the relay's index, downloaded with progress, and installed with what they need.

A package is installed once per worker, before the code that imports it runs. Pages get each download and
each package that is not available, with the command that adds it. Hashes are compared before anything is unpacked.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from .module_files import RESERVED

MOST_PACKAGES: Final = 512

Tell = Callable[[dict[str, Any]], None]


class PackageInstaller(Protocol):
    """Downloads from the relay and installs into this Python: see `browser.package_installer`."""

    async def index(self) -> list[dict[str, Any]]:
        """The rows of the relay's index. Raises OSError."""

    async def install(self, row: dict[str, Any], progress: Callable[[int, int], None]) -> None:
        """Download, check and unpack one wheel. Raises OSError."""

    def is_installed(self, name: str) -> bool:
        """Can this top-level name be imported now?"""

    def in_distribution(self, name: str) -> tuple[str, bool] | None:
        """The package of Pyodide's distribution with this import name, and whether it is compiled."""


class Packages:
    """The packages of one worker."""

    def __init__(self, installer: PackageInstaller, tell: Tell) -> None:
        self._installer, self._tell = installer, tell
        self._rows: dict[str, dict[str, Any]] | None = None
        self._installed: set[str] = set()
        self._problem = ""
        self._lock = asyncio.Lock()

    async def refresh(self) -> None:
        """Ask the relay again which packages it has."""
        try:
            rows = (await self._installer.index())[:MOST_PACKAGES]
            self._rows, self._problem = {str(row["name"]): row for row in rows}, ""
        except (OSError, KeyError, TypeError) as error:
            self._problem = f"The relay's packages could not be asked for: {error}."

    async def has(self, name: str) -> bool:
        """Does the relay have a package with this top-level import name?"""
        return await self._named(name) is not None

    async def load(self, names: Iterable[str]) -> None:
        """Install the packages with these top-level import names, as far as the relay has them."""
        wanted = [name for name in names if name not in RESERVED and not self._installer.is_installed(name)]
        if wanted and not all([await self._named(name) for name in wanted]):
            await self.refresh()  # one may have been added since
        for name in wanted:
            if (row := await self._named(name)) is not None:
                await self._install(row)

    async def require(self, names: Iterable[str]) -> None:
        """Install packages by their own names, or by import names. Pages get what is not available."""
        wanted = [str(name) for name in names][:MOST_PACKAGES]
        if wanted and not all(_canonical(name) in self._installed for name in wanted):
            await self.refresh()
        for name in wanted:
            row = (self._rows or {}).get(_canonical(name)) or await self._named(name)
            if row is not None:
                try:
                    await self._install(row)
                except OSError as error:
                    self._tell(_failed(name, str(error)))
            elif not self._installer.is_installed(name):
                self._tell(_failed(name, f"{name} can't be imported. {self.advice(name)}"))

    def advice_after(self, error: ModuleNotFoundError) -> str:
        """What the user can do about an import that failed during a call. Packages are loaded before code runs."""
        name = (error.name or "").partition(".")[0]
        if not name or self._installer.is_installed(name):  # a part of the package is missing, not the package
            return ""
        row = next((row for row in (self._rows or {}).values() if name in row.get("imports", ())), None)
        if row is None:
            return self.advice(name, "Add it to the relay, and reload the page")
        wanted = f'connect({{ packages: ["{row["name"]}"] }})'
        return f"The relay has {row['name']}. Load it before the call, and reload the page: {wanted}"

    def advice(self, name: str, step: str = "Add it to the relay") -> str:
        """`step`: what the command that follows does, in words."""
        if self._problem:
            return self._problem
        found = self._installer.in_distribution(name)
        if found is not None and found[1]:
            package = found[0]
            return f"{package} is compiled. {step}: tabrelay packages add {package} --pyodide FOLDER_OR_URL"
        if found is None and name in sys.stdlib_module_names:
            return f"{name} is a part of Python that browsers do not have. Import it where it exists only."
        package = found[0] if found is not None else name
        beside = (
            "" if found is not None else f"There is no file {name}.py beside it, and the relay has no such package. "
        )
        return f"{beside}{step}: tabrelay packages add {package}"

    async def _named(self, name: str) -> dict[str, Any] | None:
        if name in RESERVED:
            return None
        if self._rows is None and not self._problem:
            await self.refresh()
        return next((row for row in (self._rows or {}).values() if name in row.get("imports", ())), None)

    async def _install(self, row: dict[str, Any]) -> None:
        """Install a package after those that it depends on."""
        async with self._lock:
            for each in self._with_dependencies(row):
                name = str(each["name"])
                about = {"t": "package", "name": name, "version": str(each["version"])}
                self._tell({**about, "stage": "download", "loaded": 0, "total": each["size"]})

                def progress(loaded: int, total: int, about: dict[str, Any] = about) -> None:
                    self._tell({**about, "stage": "download", "loaded": loaded, "total": total})

                await self._installer.install(each, progress)
                self._installed.add(name)
                self._tell({**about, "stage": "ready"})

    def _with_dependencies(self, row: dict[str, Any]) -> list[dict[str, Any]]:
        """Those that are not installed yet, in the order in which they must be."""
        found: dict[str, dict[str, Any]] = {}

        def visit(each: dict[str, Any]) -> None:
            name = str(each["name"])
            if name in self._installed or name in seen:
                return
            seen.add(name)
            for other in each.get("depends", ()):
                if (needed := (self._rows or {}).get(str(other))) is not None:
                    visit(needed)
            found[name] = each

        seen: set[str] = set()
        visit(row)
        return list(found.values())


def _failed(name: str, message: str) -> dict[str, Any]:
    return {"t": "package", "name": name, "stage": "failed", "message": message}


def _canonical(name: str) -> str:
    return "-".join(part for part in name.replace("_", "-").replace(".", "-").lower().split("-") if part)
