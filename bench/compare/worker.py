"""The workers of two trees in Pyodide under Node, in two processes that take turns: see bench/worker.mjs."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from bench import stage
from bench.compare.pairs import FAST, REGULAR, Pairs, Sample, take_turns
from bench.compare.trees import Tree
from bench.stage import ROOT, Child

CALLS, RESULT = 128, 200
WARM_UP = 24  # V8 compiles WebAssembly a second time while it runs
REPEATS = 5
FAST_WAYS = {"tool in the tab", "tool in the worker"}
# Paths of the product's bridge between JavaScript and Python, now and earlier.
BRIDGES = ("js/worker/python_bridge.js", "js/shim.js")
# Writes the archive that the relay would serve; its modules have had other names.
ARCHIVE = """
import importlib, sys
for name in ("tabrelay.assets.files", "tabrelay.assets"):
    try:
        assets = importlib.import_module(name).Assets.find()
        break
    except (ImportError, AttributeError):
        continue
open(sys.argv[1], "wb").write(assets.tabserver.body)
print(assets.pyodide)
"""


@contextlib.contextmanager
def worker_of(tree: Tree) -> Iterator[Child]:
    node = shutil.which("node")
    assert node is not None, "there is no node on the PATH"
    package = tree.path / "browser_pkg" / "tabserver"
    bridge = next(package / name for name in BRIDGES if (package / name).is_file())
    with tempfile.TemporaryDirectory(prefix="tabrelay-bench-") as folder:
        archive = Path(folder) / "tabserver.zip"
        command = [sys.executable, "-c", ARCHIVE, str(archive)]
        env = {**os.environ, **tree.env}
        runtime = subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout.strip()
        files = [ROOT / "bench" / "worker.mjs", runtime, archive, bridge]
        here, _ = stage.cores(pin=True)
        child = Child(*map(str, files), str(CALLS), str(RESULT), "serve", on=here, program=(node,))
        try:
            yield child
        finally:
            child.stop()


def run(trees: Sequence[Tree], rounds: int) -> list[Pairs]:
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(worker_of(tree)) for tree in trees]
        pairs = [Pairs(name, FAST if name in FAST_WAYS else REGULAR) for name in children[0].said["ways"]]
        for each in pairs:
            for child in children * WARM_UP:
                child.ask(each.name)
        take_turns(pairs, rounds, lambda which, what: Sample(children[which].ask(what.name)["us"]), REPEATS)
    return pairs
