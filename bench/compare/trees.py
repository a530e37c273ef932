"""Source trees to compare: the present one, and worktrees of git revisions under build/compare.

A worktree uses `.venv` and `node_modules` of the present tree, and has its own runtime assets and memory snapshot. Its
packages are found through PYTHONPATH. Nothing is installed: a revision that needs other versions of libraries can't be
measured.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from bench.stage import ROOT

ASSETS = ("pyodide", "pyscript", "micropython", ".stamp")
PACKAGES = ("relay", "browser_pkg")


@dataclass(frozen=True, slots=True)
class Tree:
    name: str
    path: Path

    @property
    def env(self) -> dict[str, str]:
        """Environment in which Python imports the product from this tree."""
        return {"PYTHONPATH": os.pathsep.join(str(self.path / name) for name in PACKAGES)}


def present() -> Tree:
    return _prepared(Tree("present tree", ROOT))


def revision(name: str) -> Tree:
    """The tree of a git revision; it is made if it does not exist."""
    commit = _git("rev-parse", "--verify", f"{name}^{{commit}}")
    path = ROOT / "build" / "compare" / commit[:12]
    if not path.exists():
        _git("worktree", "prune")
        _git("worktree", "add", "--detach", str(path), commit)
    for shared in (".venv", "node_modules"):
        if not (path / shared).exists():
            (path / shared).symlink_to(ROOT / shared)
    made = path / "build" / "assets"
    if not made.exists():
        # Valid files are reused, and the rest is made again: the same versions of Pyodide are the same files.
        made.mkdir(parents=True)
        for each in ASSETS:
            source = ROOT / "build" / "assets" / each
            (shutil.copytree if source.is_dir() else shutil.copy2)(source, made / each)
    return _prepared(Tree(f"{name} ({commit[:7]})" if name != commit[:7] else name, path))


def _prepared(tree: Tree) -> Tree:
    env = {**os.environ, **tree.env}
    steps = "import sys; sys.path.insert(0, '.ci'); from steps.assets import runtime_assets; runtime_assets()"
    for command in ([sys.executable, "-c", steps], [sys.executable, ".ci/setup.py", "snapshot"]):
        subprocess.run(command, cwd=tree.path, env=env, check=True, stdout=sys.stderr)
    found = subprocess.run(
        [sys.executable, "-c", "import tabrelay, tabserver; print(tabrelay.__file__, tabserver.__file__)"],
        env=env,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.split()
    assert all(file.startswith(f"{tree.path}/") for file in found), found
    return tree


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return ended.stdout.strip()
