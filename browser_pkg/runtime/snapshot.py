"""Makes the memory snapshot that a worker's Python starts from: `build/assets/snapshot`.

Set-up runs it with the project's own Python, `python -m runtime.snapshot NODE`, where NODE is a Node 20. It asks the
relay's `assets` what a snapshot must fit (these Python files on that runtime), so that baker and server can't disagree.
A snapshot that fits already is left alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from runtime.assets import LIBRARY
from tabrelay.assets.files import Assets, read_all

HERE = Path(__file__).resolve().parent
TARGET = HERE.parents[1] / "build" / "assets" / "snapshot"
RECIPE = ("bake.mjs", "memory.py", "snapshot.py", "../tabserver/js/worker/snapshot.js")
TIMEOUT_S = 300


def recipe() -> str:
    return hashlib.sha256(b"\0".join((HERE / name).read_bytes() for name in RECIPE)).hexdigest()


def is_fresh(assets: Assets) -> bool:
    found = assets.snapshot
    return found is not None and found.get("recipe") == recipe()


def bake(assets: Assets, node: str) -> None:
    """Make it anew. The old one stays in place until the new one is whole."""
    draft = TARGET.with_name("snapshot.draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    image = draft / "snapshot.bin"
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "tabserver.zip"
        archive.write_bytes(read_all(assets.tabserver.body))
        command = [node, str(HERE / "bake.mjs"), "memory", str(assets.pyodide), str(archive), str(image)]
        # No zone of the machine that bakes: what a browser does not set itself must at least be neutral.
        subprocess.run(command, check=True, timeout=TIMEOUT_S, env={**os.environ, "TZ": "UTC"})
    sha256 = base64.b64encode(hashlib.sha256(image.read_bytes()).digest()).decode()
    about = {
        "fits": assets.snapshot_fingerprint,
        "integrity": f"sha256-{sha256}",
        "library_bytes": (assets.pyodide / LIBRARY).stat().st_size,
        "recipe": recipe(),
    }
    (draft / "snapshot.json").write_text(json.dumps(about))
    shutil.rmtree(TARGET, ignore_errors=True)
    draft.rename(TARGET)


def main() -> None:
    (node,) = sys.argv[1:]
    if not is_fresh(Assets.find()):
        print("== baking the memory snapshot that workers start from", flush=True)
        bake(Assets.find(), node)
        if not is_fresh(Assets.find()):
            sys.exit("the snapshot does not fit the files that it was made of")


if __name__ == "__main__":
    main()
