"""Sources of Python packages for workers: pure-Python wheels by pip, and compiled ones of a Pyodide distribution.

pip resolves dependencies for Pyodide's Python and checks the hashes of its index; a distribution has hashes in its
`pyodide-lock.json`. A wheel with another hash, a compiled wheel of any other source and a file name with a path are
refused. Everything is downloaded into a folder of the caller.
"""

from __future__ import annotations

import http.client
import json
import shutil
import subprocess
import sys
import urllib.request
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib import import_module
from pathlib import Path
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

from tabrelay.assets.package_index import (
    MAX_WHEEL,
    Package,
    PackageError,
    canonical,
    check_file_name,
    hash_of,
    import_names,
)
from tabrelay.http.addresses import is_loopback

LOCK: Final = "pyodide-lock.json"
_TIMEOUT_S: Final = 60.0
_PIP_TIMEOUT_S: Final = 900.0
_MAX_LOCK: Final = 16 * 1024 * 1024
# Environment markers (PEP 508) are evaluated by pip for the Python that runs it; dependencies are for Pyodide's.
_RUN_PIP: Final = """
import json, sys
environment = json.loads(sys.argv.pop(1))
try:
    from pip._vendor.packaging import markers
    markers.default_environment = lambda: dict(environment)
except ImportError:
    pass
from pip._internal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PythonTarget:
    """The Python that packages are for: `3.14.2`, ABI `2026_0`."""

    python: str
    abi: str

    @classmethod
    def of(cls, lock: Any) -> PythonTarget:
        return cls(str(lock["info"]["python"]), str(lock["info"]["abi_version"]))

    @property
    def minor(self) -> str:
        return ".".join(self.python.split(".")[:2])

    def markers(self) -> dict[str, str]:
        return {
            "implementation_name": "cpython",
            "implementation_version": self.python,
            "os_name": "posix",
            "platform_machine": "wasm32",
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Emscripten",
            "platform_version": "",
            "python_full_version": self.python,
            "python_version": self.minor,
            "sys_platform": "emscripten",
        }


class Distribution:
    """A Pyodide distribution: a folder or an https address with `pyodide-lock.json` and wheels."""

    def __init__(self, place: str, target: PythonTarget) -> None:
        self.place = place
        is_url = "://" in place
        if is_url:
            _check_address(place)
        self._base = (place if place.endswith("/") else f"{place}/") if is_url else ""
        self._folder = None if is_url else Path(place).expanduser()
        try:
            lock = json.loads(self._read(LOCK, _MAX_LOCK))
            found = PythonTarget.of(lock)
            self._packages: dict[str, Any] = {canonical(name): row for name, row in lock["packages"].items()}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PackageError(f"{place} is no Pyodide distribution: its {LOCK} can't be read ({error}).") from None
        if (found.minor, found.abi) != (target.minor, target.abi):
            raise PackageError(
                f"{place} is for Python {found.minor} and ABI {found.abi}; "
                f"this relay has Python {target.minor} and ABI {target.abi}. Use the distribution of its version."
            )

    def __contains__(self, name: str) -> bool:
        return canonical(name) in self._packages

    def closure(self, names: Iterable[str]) -> list[str]:
        """These packages and all that they depend on."""
        found: dict[str, None] = {}
        ahead = [canonical(name) for name in names]
        while ahead:
            name = ahead.pop()
            if name in found:
                continue
            if name not in self._packages:
                raise PackageError(f"{self.place} has no package {name}, which another one needs.")
            found[name] = None
            ahead += [canonical(each) for each in self._packages[name].get("depends", ())]
        return list(found)

    def fetch(self, name: str, target: Path) -> Package:
        """Put a wheel into a folder, and check its hash."""
        row = self._packages[canonical(name)]
        file, wanted = check_file_name(str(row["file_name"])), str(row["sha256"])
        path = target / file
        try:
            if self._folder is not None:
                source = self._folder / file
                if source.stat().st_size > MAX_WHEEL:
                    raise PackageError(f"{file} is larger than {MAX_WHEEL // 2**20} MiB.")
                shutil.copyfile(source, path)
            else:
                path.write_bytes(self._read(file, MAX_WHEEL))
        except OSError as error:
            raise PackageError(f"{file} can't be read from {self.place} ({error}).") from None
        # defence: a wheel that differs from the one in the lock file
        if hash_of(path) != wanted:
            raise PackageError(f"{file} of {self.place} is damaged, or not the one of its {LOCK}: its hash differs.")
        depends = tuple(canonical(each) for each in row.get("depends", ()))
        imports = tuple(str(each) for each in row.get("imports", ())) or import_names(path)
        return Package(
            canonical(name), str(row["version"]), file, wanted, path.stat().st_size, imports, depends, self.place
        )

    def _read(self, name: str, most: int) -> bytes:
        if self._folder is not None:
            return (self._folder / name).read_bytes()
        try:
            opener = urllib.request.build_opener(CheckedRedirects)
            with opener.open(urljoin(self._base, name), timeout=_TIMEOUT_S) as answer:
                body: bytes = answer.read(most + 1)
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(repr(error)) from None
        if len(body) > most:
            raise OSError(f"more than {most // 2**20} MiB")
        return body


class CheckedRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request: Any, answer: Any, code: int, reason: str, headers: Any, url: str) -> Any:
        # defence: a redirect to an address that is not encrypted
        _check_address(url)
        return super().redirect_request(request, answer, code, reason, headers, url)


def _check_address(url: str) -> None:
    try:
        parts = urlsplit(url)
        is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    except ValueError:
        is_safe = False
    if not is_safe:
        raise PackageError(f"{url}: a distribution has an https:// address, or is a folder.")


def download_pure(
    requirements: Sequence[str], folder: Path, target: PythonTarget, also: Sequence[Path], say: Say
) -> None:
    """Let pip download pure-Python wheels, with their dependencies, into a folder. `also`: folders with more wheels."""
    flags = ["--only-binary=:all:", "--python-version", target.minor, "--implementation", "py", "--abi", "none"]
    flags += ["--platform", "any", "--disable-pip-version-check", "--no-input", "--quiet", "--dest", str(folder)]
    for place in also:
        flags += ["--find-links", str(place)]
    command = [sys.executable, "-c", _RUN_PIP, json.dumps(target.markers()), "download", *flags, "--", *requirements]
    say(f"pip download {' '.join(requirements)}")
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=_PIP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise PackageError(f"pip did not end within {_PIP_TIMEOUT_S:g} s.") from None
    if "No module named 'pip'" in ended.stderr:
        raise PackageError(f"pip is missing. Install it: {sys.executable} -m ensurepip")
    if ended.returncode:
        raise PackageError(_why(ended.stderr))


def _why(stderr: str) -> str:
    errors = [line.removeprefix("ERROR: ") for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return "\n".join(errors or stderr.strip().splitlines()[-3:]) or "pip failed."


def describe_pure(wheel: Path, target: PythonTarget, source: str) -> Package:
    """What a wheel says of itself."""
    file = check_file_name(wheel.name)
    # defence: compiled wheels of other sources than a distribution
    if not file.endswith("-none-any.whl"):
        raise PackageError(f"{file} is compiled. Compiled packages come from a Pyodide distribution: --pyodide.")
    if wheel.stat().st_size > MAX_WHEEL:
        raise PackageError(f"{file} is larger than {MAX_WHEEL // 2**20} MiB.")
    try:
        with zipfile.ZipFile(wheel) as archive:
            [path] = [
                name for name in archive.namelist() if name.count("/") == 1 and name.endswith(".dist-info/METADATA")
            ]
            about = HeaderParser().parsestr(archive.read(path).decode("utf-8", "replace"))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise PackageError(f"{file} is not a wheel ({error}).") from None
    depends = sorted({name for text in about.get_all("Requires-Dist", []) if (name := needed(text, target))})
    name, version = canonical(str(about["Name"])), str(about["Version"])
    return Package(
        name, version, file, hash_of(wheel), wheel.stat().st_size, import_names(wheel), tuple(depends), source
    )


def needed(requirement: str, target: PythonTarget) -> str | None:
    """The name in a requirement, if it is for this Python and for no extra."""
    # pip has this library inside; `pip download` has just run.
    requirements: Any = import_module("pip._vendor.packaging.requirements")
    try:
        parsed = requirements.Requirement(requirement)
    except requirements.InvalidRequirement:
        return None
    if parsed.marker is not None and not parsed.marker.evaluate({**target.markers(), "extra": ""}):
        return None
    return canonical(parsed.name)
