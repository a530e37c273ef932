"""The tests of the browser package pass, unchanged, inside Pyodide."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "build" / "assets" / "pyodide"
FOLDERS = ["tests/wire", "tests/schema"]


def find_node() -> str:
    """Set-up installs a Node beside the Python when the machine has none."""
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    assert node, "no Node.js here; `make test` brings one"
    return node


@pytest.fixture(scope="module")
def counted() -> dict[str, Any]:
    """One boot for all folders: most of a run's time goes to compiling pytest and hypothesis there."""
    assert RUNTIME.is_dir(), "the runtime assets are missing; `make test` prepares them"
    script = Path(__file__).parent / "support" / "pyodide.mjs"
    command = [find_node(), str(script), str(RUNTIME), str(ROOT), sysconfig.get_path("purelib"), *FOLDERS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=1800)
    counts: dict[str, Any] = json.loads(run.stdout.splitlines()[-1]) if run.returncode in (0, 1) else {}
    return {**counts, "said": run.stdout + run.stderr}


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_lives_in_the_browser_passes_its_tests_there(
    folder: str, counted: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert counted.get("platform") == "emscripten", counted["said"]
    counts = counted[folder]
    with capsys.disabled():
        print(f"\ninside Pyodide: {folder}: {counts}")
    assert counts.get("passed", 0) > 0, counted["said"]
    assert counts.get("failed", 0) == 0, counted["said"]
