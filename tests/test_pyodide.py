"""What lives in the browser runs there: its tests pass, unchanged, inside Pyodide."""

import json
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = ROOT / "build" / "assets" / "pyodide"


def find_node() -> str:
    """Set-up puts a Node beside our Python when the machine has none."""
    node = shutil.which("node", path=str(Path(sys.executable).parent)) or shutil.which("node")
    assert node, "no Node.js here; `make test` brings one"
    return node


@pytest.mark.parametrize("tests", ["tests/wire", "tests/schema"])
def test_what_lives_in_the_browser_passes_its_tests_there(tests: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert RUNTIME.is_dir(), "the runtime assets are missing; `make test` prepares them"
    script = Path(__file__).parent / "support" / "pyodide.mjs"
    command = [find_node(), str(script), str(RUNTIME), str(ROOT), sysconfig.get_path("purelib"), tests]
    run = subprocess.run(command, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stdout + run.stderr
    counts = json.loads(run.stdout.splitlines()[-1])
    with capsys.disabled():
        print(f"\ninside Pyodide: {counts}")
    assert counts["platform"] == "emscripten"
    assert counts.get("passed", 0) > 0, run.stdout
    assert counts.get("failed", 0) == 0, run.stdout
