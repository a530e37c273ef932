"""Set-up of a make target: installs what it needs and what is missing. Standard library only, because it runs before
anything is installed.

The steps are in `steps/`. Each leaves a stamp inside the thing it made, with a hash of the files that the step depends
on, so a second run does nothing and deleting the thing deletes its stamp. Versions are in constraints.txt and
package.json, never here.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

from steps.assets import docs, runtime_assets, snapshot, wheel, wheelhouse
from steps.console import SetupError, report, say, side_by_side
from steps.node import check_javascript, is_node_here, node_packages, node_tools
from steps.others import fast_agent, rival_programs, sdk_examples
from steps.python import fuzzer, make_venv, newest, python_packages
from steps.system import browser, bus, other_browsers, shells
from steps.tree import ROOT

OLDEST = (3, 11)


def runtime() -> None:
    def assets() -> None:
        node_packages(with_dev=False)
        runtime_assets()

    with_node(python_packages, assets)


def with_node(packages: Callable[[], None], modules: Callable[[], None]) -> None:
    """Python packages and the steps that need Node, side by side. Where this machine has no Node it comes by pip, and
    two pip processes must not write into one environment: then Node is first."""
    if not is_node_here():
        make_venv()
        node_tools()
    side_by_side(packages, modules)


def demo() -> None:
    runtime()

    def optional(step: Callable[[], None], without: str) -> Callable[[], None]:
        def take() -> None:
            try:
                step()
            except SetupError as error:
                say(f"   {error}. It works without; {without}.")

        return take

    side_by_side(
        optional(snapshot, "browsers take a few seconds longer to start"),
        optional(docs, "then the relay serves no documentation"),
    )


def check() -> None:
    with_node(lambda: python_packages("dev"), lambda: node_packages(with_dev=True))
    node_tools()  # a new .venv beside an old node_modules would be without one


def build() -> None:
    python_packages()
    node_packages(with_dev=False)

    def own() -> None:
        side_by_side(served, docs)
        wheel()

    def served() -> None:
        runtime_assets()
        snapshot()

    side_by_side(own, wheelhouse)


def test() -> None:
    def rest() -> None:
        check()
        side_by_side(build, system, sdk_examples)

    def system() -> None:
        browser()
        bus()
        shells()

    side_by_side(rest, fast_agent)


def test_newest() -> None:
    python_packages("dev")
    newest()


def quick() -> None:
    check()
    demo()


def check_docs() -> None:
    python_packages()
    docs(is_strict=True)


def browsers() -> None:
    quick()
    browser()
    other_browsers()


def bench() -> None:
    check()
    demo()
    browser()
    bus()


def fuzz() -> None:
    check()
    fuzzer()


def rivals() -> None:
    bench()
    rival_programs()


GOALS = {
    "demo": demo,
    "check": check,
    "tsc": check_javascript,
    "snapshot": snapshot,
    "build": build,
    "docs": check_docs,
    "test": test,
    "quick": quick,
    "test-newest": test_newest,
    "browsers": browsers,
    "bench": bench,
    "rivals": rivals,
    "fuzz": fuzz,
}


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """One set-up at a time in one tree: two makes in two terminals must not install over each other."""
    try:
        import fcntl
    except ImportError:  # not available on this system; then there is no lock
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
        # The check of types installs nothing, and need not wait for a process that does.
        with contextlib.nullcontext() if goal is check_javascript else alone():
            goal()
            report()
    except SetupError as error:
        print(f"set-up failed: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def use_newer_python() -> None:
    """`python3` may be an old version while a newer one is on the PATH."""
    for minor in (14, 13, 12, 11):
        newer = shutil.which(f"python3.{minor}")
        if newer and subprocess.call([newer, "-c", ""]) == 0:
            os.execv(newer, [newer, *sys.argv])
    sys.exit(f"Tabrelay needs Python 3.11 or newer; `python3` is {sys.version.split()[0]}")


if __name__ == "__main__":
    if sys.version_info < OLDEST:
        use_newer_python()
    sys.exit(main())
