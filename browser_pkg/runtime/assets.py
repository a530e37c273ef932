"""Prepares the runtime assets: what a browser needs of Pyodide, PyScript, MicroPython and CodeMirror, ready to serve.

Copies the files needed at run time from `node_modules` to `build/assets/{pyodide,pyscript,micropython}`, compiles
Python's library, bundles the playground's editor (CodeMirror) into one module, puts a `.zst` sibling beside each file
that shrinks, and the licences next to what they cover. It downloads nothing and decides nothing about serving:
`.ci/setup.py` brings the packages, the relay's `assets` module finds the result.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ROOT / "node_modules"
TARGET = ROOT / "build" / "assets"
HERE = Path(__file__).resolve().parent
NOTICES = HERE / "notices"
STAMP = TARGET / ".stamp"

PYODIDE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "pyodide-lock.json")
# Under the name that Pyodide asks for lies the compiled library, so that PyScript pages start faster too. Its own, of
# source files, is what a worker falls back to if it can't start from ours.
LIBRARY = "python_stdlib.zip"
LIBRARY_SOURCE = "python_stdlib_source.zip"
MICROPYTHON_FILES = ("micropython.mjs", "micropython.wasm")
COMPILE_TIMEOUT_S = 600

# PyScript loads its plug-ins with every page, and what a plug-in loads in turn only when it is used. Tool pages use
# neither the editor nor the terminal: the plug-ins stay, so that nothing is missed, and what is behind them stays out.
PYSCRIPT_LEFT_OUT = "codemirror"

# Smaller files have no compressed copy here: the relay keeps them in memory, and compresses texts when it reads them.
SMALLEST_COMPRESSED_BYTES = 64 * 1024

_STATIC = re.compile(r"""\b(?:from|import)\s*["']\./([^"']+\.js)["']""")
_DYNAMIC = re.compile(r"""\bimport\s*\(\s*["']\./([^"']+\.js)["']""")

Say = Callable[[str], None]
Run = Callable[..., None]
SideBySide = Callable[..., None]


def fingerprint() -> str:
    """Changes when the assets would: the pinned versions, the scripts that make them, and the notices."""
    pins = json.loads((ROOT / "package.json").read_text())["dependencies"]
    digest = hashlib.sha256(json.dumps(pins, sort_keys=True).encode())
    recipe = [Path(__file__), *(HERE / name for name in ("bake.mjs", "editor.mjs", "library.py"))]
    for path in [*recipe, *sorted(NOTICES.iterdir())]:
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def is_fresh() -> bool:
    return STAMP.is_file() and STAMP.read_text() == fingerprint()


def prepare(node: str, say: Say = print, run: Run | None = None, side_by_side: SideBySide | None = None) -> None:
    """Make `build/assets` anew. The old one stays in place until the new one is whole. `run` runs a program and shows
    its progress, `side_by_side` calls functions that do not need each other."""
    run = run or _run
    check_versions()
    draft = TARGET.with_name("assets.draft")
    shutil.rmtree(draft, ignore_errors=True)
    _copy_pyodide(draft / "pyodide")
    _copy_pyscript(draft / "pyscript")
    _copy_micropython(draft / "micropython")
    _bundle_editor(draft / "editor", run)
    large = _large(draft)
    library = draft / "pyodide" / LIBRARY

    def compile_library() -> None:
        say("== compiling Python's library")
        run(node, HERE / "bake.mjs", "library", PACKAGES / "pyodide", library, timeout_s=COMPILE_TIMEOUT_S)

    def compress(files: list[Path]) -> None:
        say(f"== compressing {len(files)} large file{'' if len(files) == 1 else 's'}")
        run(node, HERE / "bake.mjs", "compress", PACKAGES / "pyodide", *files, timeout_s=COMPILE_TIMEOUT_S)

    steps = (compile_library, lambda: compress(large))
    if side_by_side is not None:
        side_by_side(*steps)
    else:
        for step in steps:
            step()
    compress([library])
    (draft / STAMP.name).write_text(fingerprint())
    shutil.rmtree(TARGET, ignore_errors=True)
    draft.rename(TARGET)


def check_versions() -> None:
    """Refuse to ship other versions than the pinned ones: a half-done install would go unnoticed otherwise."""
    for name, version in json.loads((ROOT / "package.json").read_text())["dependencies"].items():
        manifest = PACKAGES / name / "package.json"
        found = json.loads(manifest.read_text())["version"] if manifest.is_file() else "nothing"
        if found != version:
            raise RuntimeError(
                f"node_modules has {found} for {name}, package.json wants {version}: remove node_modules"
            )


def _large(folder: Path) -> list[Path]:
    """The files that get a compressed copy, without the library, which is not compiled yet."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return [path for path in files if path.stat().st_size > SMALLEST_COMPRESSED_BYTES and path.name != LIBRARY]


def _run(*command: str | Path, timeout_s: float) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=timeout_s)


def _copy_pyodide(target: Path) -> None:
    target.mkdir(parents=True)
    for name in PYODIDE_FILES:
        shutil.copyfile(PACKAGES / "pyodide" / name, target / name)
    shutil.copyfile(PACKAGES / "pyodide" / LIBRARY, target / LIBRARY_SOURCE)
    # The package itself carries no licence file.
    shutil.copyfile(NOTICES / "MPL-2.0.txt", target / "LICENSE")
    for path in NOTICES.iterdir():
        shutil.copyfile(path, target / path.name)


def _copy_pyscript(target: Path) -> None:
    package = PACKAGES / "@pyscript" / "core"
    target.mkdir(parents=True)
    for name in sorted(reachable(package / "dist", "core.js")):
        shutil.copyfile(package / "dist" / name, target / name)
    shutil.copyfile(package / "dist" / "core.css", target / "core.css")
    shutil.copyfile(package / "LICENSE", target / "LICENSE")
    licenses = target / "licenses"
    licenses.mkdir()
    for name, text in _licenses_of(package):
        shutil.copyfile(text, licenses / f"{name.replace('/', '__')}.txt")


def _copy_micropython(target: Path) -> None:
    target.mkdir(parents=True)
    for name in MICROPYTHON_FILES:
        shutil.copyfile(PACKAGES / "@micropython" / "micropython-webassembly-pyscript" / name, target / name)
    # This package carries no licence file either.
    shutil.copyfile(NOTICES / "MicroPython-MIT.txt", target / "LICENSE")


def _bundle_editor(target: Path, run: Run) -> None:
    """One module of `editor.mjs` and all that it imports, and the licence of each package in it."""
    target.mkdir(parents=True)
    # The program itself: npm installs it for this platform beside the package, and it needs no Node.
    found = sorted((PACKAGES / "@esbuild").glob("*/bin/esbuild"))
    found += sorted((PACKAGES / "@esbuild").glob("*/esbuild.exe"))
    if not found:
        raise RuntimeError("esbuild is not in node_modules; remove node_modules and try again")
    inputs = target.with_name("editor.inputs.json")
    flags = ["--bundle", "--format=esm", "--minify", "--target=es2022", "--legal-comments=none", "--log-level=warning"]
    run(
        found[0],
        HERE / "editor.mjs",
        *flags,
        f"--outfile={target / 'editor.js'}",
        f"--metafile={inputs}",
        timeout_s=COMPILE_TIMEOUT_S,
    )
    licenses = target / "licenses"
    licenses.mkdir()
    for name in sorted(_packages_in(json.loads(inputs.read_text())["inputs"])):
        shutil.copyfile(PACKAGES / name / "LICENSE", licenses / f"{name.replace('/', '__')}.txt")
    inputs.unlink()


def _packages_in(inputs: dict[str, object]) -> set[str]:
    """The npm packages that these files belong to."""
    inside = (path.rpartition("node_modules/")[2] for path in inputs if "node_modules/" in path)
    return {"/".join(path.split("/")[: 2 if path.startswith("@") else 1]) for path in inside}


def reachable(folder: Path, entry: str) -> set[str]:
    """What a page that loads `entry` may ask for, less what was left out. Names carry hashes: follow the imports."""
    core = _closure(folder, {entry})
    lazy = {name for chunk in core for name in _DYNAMIC.findall((folder / chunk).read_text())}
    return core | _closure(folder, {name for name in lazy if not name.startswith(PYSCRIPT_LEFT_OUT)})


def _closure(folder: Path, names: set[str]) -> set[str]:
    """The chunks and all that they import as they load."""
    found: set[str] = set()
    while names:
        found |= names
        names = {name for chunk in names for name in _STATIC.findall((folder / chunk).read_text())} - found
    return found


def _licenses_of(package: Path) -> Iterator[tuple[str, Path]]:
    """The licence file of everything bundled into `package`: its dependencies, and theirs."""
    seen: set[str] = set()
    ahead = [package]
    while ahead:
        folder = ahead.pop()
        for name in json.loads((folder / "package.json").read_text()).get("dependencies", {}):
            if name in seen:
                continue
            seen.add(name)
            nested = folder / "node_modules" / name
            home = nested if nested.is_dir() else PACKAGES / name
            ahead.append(home)
            text = next(iter(sorted(home.glob("LICEN[CS]E*"))), None)
            if text is not None:
                yield name, text
