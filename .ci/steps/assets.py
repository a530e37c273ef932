"""The files that the relay serves, the snapshot that workers start from, and the wheel with both."""

from __future__ import annotations

import importlib.util
import json
import subprocess

from steps.console import run, say, side_by_side
from steps.node import baking_node, node_tools
from steps.python import metadata, pip
from steps.stamps import digest, is_stamped
from steps.tree import BIN, CONSTRAINTS, DIST, ROOT


def runtime_assets() -> None:
    spec = importlib.util.spec_from_file_location("runtime_assets", ROOT / "browser_pkg" / "runtime" / "assets.py")
    assert spec and spec.loader
    assets = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(assets)
    if not assets.is_fresh():
        say("== preparing the runtime assets in build/assets")
        node, _ = node_tools()
        assets.prepare(node, say, run, side_by_side)


def docs(is_strict: bool = False) -> None:
    """The documentation site in build/docs. Strict: a link that leads nowhere is an error."""
    sources = ("docs", ".ci/docs_site", "CONTRIBUTING.md", "CHANGELOG.md", "constraints.txt")
    value = digest(*(ROOT / name for name in sources))
    stamp = ROOT / "build" / "docs" / ".stamp"
    if is_stamped(stamp, value) and not is_strict:
        return
    strict = ["--strict"] if is_strict else []
    run(BIN / "python", ROOT / ".ci" / "docs_site" / "build.py", *strict, title="building the documentation")
    stamp.write_text(value)


def snapshot() -> None:
    """The memory image with which a worker starts in a sixth of the time. It contains tabserver, so a change there
    makes it again."""
    run(BIN / "python", "-m", "runtime.snapshot", baking_node(), title="baking the memory snapshot of the workers")


def wheel() -> None:
    """One wheel that needs no network and no Node."""
    sources = (
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "relay",
        "browser_pkg",
        "web_demo",
        "build/assets",
        "build/docs",
    )
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
