"""npm package of the page's client, for apps with a bundler: `npm install http://127.0.0.1:4747/-/tabrelay.tgz`.

Built from the files that the relay serves, so that both have one version. Does not contain the worker, which is loaded
from the relay that the app connects to.
"""

from __future__ import annotations

import gzip
import io
import json
import posixpath
import re
from pathlib import Path

ENTRY = "client.js"
STATUS = "status.js"  # defines an element when it is imported
BUILD = "build.js"
_IMPORT = re.compile(r"""^(?:import|export)\b[^;]*?["'](\.{1,2}/[^"']+\.js)["'];""", re.MULTILINE)


def make_package(folder: Path, version: str, build: str) -> bytes:
    """Deterministic package. `build`: the relay's, so that an outdated copy can detect it."""
    import tarfile  # most relays are never asked for the package

    about = {
        "name": "tabrelay",
        "version": version,
        "description": "Offer a web page's functions to MCP clients.",
        "license": "Apache-2.0",
        "type": "module",
        "sideEffects": [f"./{STATUS}"],
        "main": ENTRY,
        "types": "client.d.ts",
        "exports": {
            ".": {"types": "./client.d.ts", "default": f"./{ENTRY}"},
            "./status": {"types": "./status.d.ts", "default": f"./{STATUS}"},
        },
    }
    names = ["client.d.ts", "status.d.ts", *sorted(closure(folder, ENTRY) | closure(folder, STATUS))]
    files = {"package.json": (json.dumps(about, indent=2) + "\n").encode()}
    files |= {name: (folder / name).read_bytes() for name in names}
    files[BUILD] = files[BUILD].replace(b'BUILD = ""', f'BUILD = "{build}"'.encode())
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, body in files.items():
            info = tarfile.TarInfo(f"package/{name}")
            info.size, info.mode = len(body), 0o644
            archive.addfile(info, io.BytesIO(body))
    return gzip.compress(packed.getvalue(), mtime=0)


def closure(folder: Path, entry: str) -> set[str]:
    """The names of a module and of all modules that it imports, directly or not."""
    found: set[str] = set()
    ahead = {entry}
    while ahead:
        found |= ahead
        ahead = {name for module in ahead for name in _imported(folder, module)} - found
    return found


def _imported(folder: Path, module: str) -> set[str]:
    names = _IMPORT.findall((folder / module).read_text())
    return {posixpath.normpath(posixpath.join(posixpath.dirname(module), name)) for name in names}
