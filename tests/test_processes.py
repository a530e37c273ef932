"""`make quick` skips exactly the tests that start a process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import canary
from tests.processes import MARKER, _starts
from tests.support import nodejs
from tests.support.demo import Demo
from tests.support.running_relay import RunningRelay

ROOT = Path(__file__).parents[1]
TESTS = f"""
import os
import pytest

def test_quiet(): pass

def test_hidden(): getattr(os, "sys" + "tem")("true")

@pytest.mark.{MARKER}
def test_marked(): getattr(os, "sys" + "tem")("true")

@pytest.mark.{MARKER}
def test_marked_and_not_run_when_quick(): assert "--quick" not in os.environ["FLAGS"]
"""


def _direct() -> None:
    subprocess.run(["true"], check=True)


def _by_another() -> None:
    _direct()


async def _by_a_class() -> None:
    async with Demo(Path()):
        pass


async def _by_a_module() -> None:
    await nodejs.node("x")


def _by_a_table() -> None:
    TABLE["one"]()


def _by_an_inner_function() -> None:
    def inner() -> None:
        _direct()

    inner()


def _by_what_it_closes_over() -> Callable[[], None]:
    start = _direct
    return lambda: start()


async def _in_this_process() -> None:
    canary.saw("x", "y")
    async with RunningRelay(Path()) as relay:
        await _in_this_process()
        assert relay.url


TABLE: dict[str, Callable[[], Any]] = {"one": _direct}


@pytest.mark.parametrize(
    "code",
    [_direct, _by_another, _by_a_class, _by_a_module, _by_a_table, _by_an_inner_function, _by_what_it_closes_over()],
)
def test_code_that_starts_a_process_is_found_however_it_gets_there(code: Callable[[], Any]) -> None:
    assert _starts(code)


def test_a_relay_in_the_tests_own_process_is_quick() -> None:
    assert not _starts(_in_this_process)


@pytest.mark.parametrize(("flags", "passed"), [((), 3), (("--quick",), 1)])
def test_a_test_that_starts_a_process_unexpectedly_fails(tmp_path: Path, flags: tuple[str, ...], passed: int) -> None:
    (tmp_path / "test_sample.py").write_text(TESTS)
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.processes",
        "-p",
        "no:cacheprovider",
        f"--rootdir={tmp_path}",
    ]
    ended = subprocess.run(
        [*command, "-c/dev/null", *flags, str(tmp_path)],
        cwd=ROOT,
        env={"FLAGS": " ".join(flags), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert f"1 failed, {passed} passed" in ended.stdout, ended.stdout
    assert "test_hidden starts a process (os.system" in ended.stdout
