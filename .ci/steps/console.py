"""Saying what happens, and running programs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from steps.tree import ROOT


class SetupError(Exception):
    """Set-up cannot go on; the text tells the developer what to do."""


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


def side_by_side(*steps: Callable[[], None]) -> None:
    """Steps that do not need each other: one computes while another waits for the network. On a terminal one after the
    other, so that their bars can be read."""
    if sys.stdout.isatty():
        for step in steps:
            step()
        return
    failures: list[Exception] = []

    def take(step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=take, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
