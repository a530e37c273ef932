"""Small wheels, and a Pyodide distribution of them."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Sequence
from pathlib import Path

from tabrelay.assets.files import Assets

TAG = "cp314-cp314-pyemscripten_2026_0_wasm32"


def make_wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    tag: str = "py3-none-any",
    needs: Sequence[str] = (),
    text: str = "",
) -> Path:
    """A wheel with one module of its name."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        f"{module}/__init__.py": text or f"WORD = '{name} {version}'\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + "".join(f"Requires-Dist: {need}\n" for need in needs),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, body in files.items():
            archive.writestr(path, body)
    return wheel


def make_distribution(folder: Path, wheels: dict[str, tuple[Path, list[str]]]) -> Path:
    """A lock file for wheels with their dependencies, for the Pyodide of this relay."""
    info = json.loads((Assets.find().pyodide / "pyodide-lock.json").read_bytes())["info"]
    packages = {
        name: {
            "name": name,
            "version": "1.0",
            "file_name": wheel.name,
            "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
            "imports": [name.replace("-", "_")],
            "depends": depends,
        }
        for name, (wheel, depends) in wheels.items()
    }
    (folder / "pyodide-lock.json").write_text(json.dumps({"info": info, "packages": packages}))
    return folder
