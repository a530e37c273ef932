"""The wheel contains all that is needed: it installs from the wheelhouse and serves the demo without network and
Node."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.demo import TOOLS
from tests.support.recorder import Wiretap

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
MAX_WHEEL_BYTES = 40_000_000


def run(*command: str | Path, **env: str) -> str:
    """Run a program to its end; on failure show its output."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, env=env or None, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def cut_off() -> list[str]:
    """The command prefix that removes the network; empty where this system has no way to do it."""
    unshare = shutil.which("unshare")
    for flags in (["--net"], ["--user", "--map-root-user", "--net"]):
        if unshare and subprocess.run([unshare, *flags, "true"], capture_output=True).returncode == 0:
            return [unshare, *flags]
    return []


def bare_environment(home: Path) -> dict[str, str]:
    """No settings of pip, no proxy, and no Node on PATH."""
    nowhere = "http://127.0.0.1:9"
    kept = ("LANG", "PLAYWRIGHT_BROWSERS_PATH", "TABRELAY_CHROMIUM")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "HOME": str(home),
        "PATH": os.defpath,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "HTTP_PROXY": nowhere,
        "HTTPS_PROXY": nowhere,
        "NO_PROXY": "127.0.0.1,localhost",
    }


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The wheel of the present tree; `make build` has made it unless something changed since."""
    run(sys.executable, ROOT / ".ci" / "setup.py", "build", **os.environ)
    (found,) = DIST.glob("tabrelay-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `tabrelay` command of a fresh environment, installed without a network."""
    home = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "venv", home / "venv")
    python = home / "venv" / "bin" / "python"
    flags = ["--quiet", "--no-index", "--find-links", str(DIST)]
    run(*cut_off(), python, "-m", "pip", "install", *flags, "tabrelay", **bare_environment(home))
    return python.with_name("tabrelay")


def test_the_wheel_carries_everything_and_stays_small(wheel: Path) -> None:
    assert wheel.stat().st_size <= MAX_WHEEL_BYTES
    names = set(zipfile.ZipFile(wheel).namelist())
    assert names >= {
        "tabrelay/cli/main.py",
        "tabrelay/assets/page/index.html",
        "tabrelay/payloads/confusables.txt",
        "tabserver/wire/link.py",
        "tabserver/js/worker.js",
        "tabserver/js/client.js",
        "tabserver/js/client/connection.js",
        "tabserver/js/worker/boot.js",
        "tabrelay/_assets/demo/index.html",
        "tabrelay/_assets/demo/examples/data/data.py",
        "tabrelay/_assets/pyodide/pyodide.asm.wasm",
        "tabrelay/_assets/pyodide/pyodide.asm.wasm.zst",
        "tabrelay/_assets/pyodide/python_stdlib.zip",
        "tabrelay/_assets/pyodide/python_stdlib_source.zip",
        "tabrelay/_assets/snapshot/snapshot.bin",
        "tabrelay/_assets/snapshot/snapshot.bin.zst",
        "tabrelay/_assets/snapshot/snapshot.json",
        "tabrelay/_assets/pyscript/core.js",
        "tabrelay/_assets/micropython/micropython.wasm",
        "tabrelay/_assets/editor/editor.js",
        "tabrelay/_assets/editor/editor.js.zst",
        "tabrelay/_assets/demo/playground/frame/frame.html",
        "tabrelay/_assets/demo/playground/programs/typed.py",
        "tabrelay/_assets/docs/index.html",
        "tabrelay/_assets/docs/search.json.gz",
        "tabserver/micropython/tabserver.py",
    }
    assert not [name for name in names if "__pycache__" in name or name.endswith((".map", ".pyc"))]


def test_the_wheel_carries_the_licences_of_what_it_carries(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    names = [name for name in archive.namelist() if "LICENSE" in name or "licenses/" in name]
    texts = {name: archive.read(name).decode() for name in names}
    for sentence in ("Mozilla Public License Version 2.0", "Apache License", "PYTHON SOFTWARE FOUNDATION LICENSE"):
        assert any(sentence in text for text in texts.values()), sentence
    assert "tabrelay/_assets/pyodide/LICENSE" in texts
    assert "tabrelay/_assets/pyscript/LICENSE" in texts
    assert "tabrelay/_assets/micropython/LICENSE" in texts
    assert "tabrelay/_assets/editor/licenses/@codemirror__view.txt" in texts
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in texts)


def test_the_installed_command_prints_its_version(installed: Path, wheel: Path) -> None:
    assert run(installed, "--version").strip() == f"tabrelay {wheel.name.split('-')[1]}"


def test_the_demo_runs_with_network_and_node_cut_off(installed: Path, tmp_path: Path) -> None:
    assert shutil.which("node", path=str(installed.parent)) is None
    prefix = cut_off()
    script = ROOT / "tests" / "support" / "offline_demo.py"
    tap = Wiretap()
    flags = ["--home", str(tmp_path), "--tap", json.dumps(tap.env), *(["--namespace"] if prefix else [])]
    flags += ["--expect", *list(TOOLS)]
    # -P: the script's folder stays off its path, because a file there may share its name with a standard module.
    saw = json.loads(run(*prefix, sys.executable, "-P", script, installed, *flags, **bare_environment(tmp_path)))
    if prefix:
        assert saw["interfaces"] == ["lo"]
    assert saw["health"]["status"] == "ok"
    assert saw["wasm"] == ["0061736d", "application/wasm"]
    assert saw["library"] == "PK"
    assert saw["tools"] == list(TOOLS)
    assert saw["booted_from"] == "snapshot"
    tap.read()
    assert tap.checked["relay"] > 0
    tap.finish()
