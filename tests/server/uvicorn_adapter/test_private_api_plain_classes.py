"""The relay on the libraries' own classes, as with a version whose private API has changed: the limits hold.

The tests of limits run again in a separate process, in which the check of the private API fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[3]
CORE = (
    "tests/behaviour/test_raw_requests.py",
    "tests/behaviour/test_floods.py",
    "tests/behaviour/test_memory_attacks.py",
    "tests/behaviour/test_limits.py",
    "tests/server/uvicorn_adapter/test_http_protocol.py",
    "tests/server/test_accept_limiter.py",
)
# uvicorn keeps up to 64 KiB of a body that the application does not read, until the next request on the connection.
LEFT_OUT = ("tests/behaviour/test_floods.py::test_nothing_is_kept_of_an_unread_body",)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> tuple[Counter[str], Counter[str], str]:
    """One run of all files: how many tests of each passed, how many did not, and pytest's output."""
    report = tmp_path_factory.mktemp("plain") / "report.xml"
    left_out = [f"--deselect={name}" for name in LEFT_OUT]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-p", "tests.support.plain_classes", f"--junitxml={report}", *left_out, *CORE],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert report.is_file(), done.stdout[-20_000:] + done.stderr[-20_000:]
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        has_failed = any(part.tag in ("failure", "error") for part in case)
        (failed if has_failed else passed)[case.get("classname", "").replace(".", "/") + ".py"] += 1
    assert (done.returncode == 0) == (not failed), done.stdout[-20_000:]
    return passed, failed, done.stdout


@pytest.mark.parametrize("file", CORE)
def test_the_limits_hold_on_the_libraries_own_classes(file: str, ended: tuple[Counter[str], Counter[str], str]) -> None:
    passed, failed, printed = ended
    assert failed[file] == 0, printed[-20_000:]
    assert passed[file] > 0
