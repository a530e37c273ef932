"""Progress of set-up on the terminal, and programs that it runs.

Every program that runs has a line with its title, its seconds and the last line that it printed. On a terminal these
lines are redrawn in place, also of several programs at a time; otherwise each is printed every five seconds. The output
of a program is shown in full only if it fails. This module decides nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from steps.tree import ROOT

BEAT_S: Final = 5.0
DRAW_S: Final = 0.2
KEPT_LINES: Final = 40
LINE_CHARS: Final = 100
WORTH_A_REPORT_S: Final = 5.0
NOISE: Final = re.compile(r"WARNING: Location .* is ignored|^npm (notice|warn)|^\s*$")
NPM_FETCH: Final = re.compile(
    r"npm http (?:fetch \w+ \d+|cache) (?:https?://\S+?/)?((?:@[^/\s]+(?:/|%2f))?[^/@\s]+)\S*.*"
)
SPINNER: Final = "|/-\\"


class SetupError(Exception):
    """Set-up cannot go on; the text tells the developer what to do."""


class _Step:
    """A running program."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.began = time.monotonic()
        self.last = ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began


class _Board:
    """The steps that run now, drawn by one thread; and the duration of each title."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._running: list[_Step] = []
        self._drawn = 0
        self._title = threading.local()
        self.took: dict[str, float] = {}
        self.is_terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
        self.began = time.monotonic()

    def say(self, text: str) -> None:
        """A `text` that begins with == is the title of this thread's next program."""
        if text.startswith("== "):
            self._title.text = text[3:]
        with self._lock:
            self._clear()
            print(text, flush=True)
            self._draw()

    @contextlib.contextmanager
    def step(self, title: str) -> Iterator[_Step]:
        step = _Step(title or getattr(self._title, "text", "set-up"))
        with self._lock:
            self._running.append(step)
        done = threading.Event()
        thread = threading.Thread(target=self._beat, args=(step, done), daemon=True)
        thread.start()
        try:
            yield step
        finally:
            done.set()
            thread.join()
            with self._lock:
                self._clear()
                self._running.remove(step)
                self.took[step.title] = self.took.get(step.title, 0.0) + step.seconds
                self._draw()

    def _beat(self, step: _Step, done: threading.Event) -> None:
        while not done.wait(DRAW_S if self.is_terminal else BEAT_S):
            with self._lock:
                if self.is_terminal:
                    self._clear()
                    self._draw()
                else:
                    print(f"   … {self._line(step)}", flush=True)

    def _line(self, step: _Step) -> str:
        return f"{step.title}: {step.seconds:.0f} s" + (f", {step.last}" if step.last else "")

    def _draw(self) -> None:
        if not self.is_terminal:
            return
        width = shutil.get_terminal_size().columns - 4
        for step in self._running:
            spin = SPINNER[int(step.seconds * 4) % len(SPINNER)]
            print(f" {spin} {self._line(step)[:width]}")
        self._drawn = len(self._running)
        sys.stdout.flush()

    def _clear(self) -> None:
        if self.is_terminal and self._drawn:
            print(f"\x1b[{self._drawn}A\x1b[0J", end="")
            self._drawn = 0

    def report(self) -> None:
        """Durations, of the long ones."""
        whole = time.monotonic() - self.began
        if whole < WORTH_A_REPORT_S or not self.took:
            return
        slow = sorted(self.took.items(), key=lambda one: -one[1])
        saved = sum(self.took.values()) - whole
        self.say(f"== set-up took {whole:.0f} s" + (f"; side by side saved {saved:.0f} s" if saved >= 1 else ""))
        for title, seconds in slow:
            if seconds >= 1:
                self.say(f"   {seconds:4.0f} s  {title}")


_board: Final = _Board()
say: Final = _board.say
report: Final = _board.report


def run(
    *command: str | Path, env: dict[str, str] | None = None, timeout_s: float | None = None, title: str = ""
) -> None:
    """Run a program to its end. Its output becomes its progress. `title`: by default that of the last `say`."""
    words = [str(part) for part in command]
    kept: deque[str] = deque(maxlen=KEPT_LINES)
    process = subprocess.Popen(
        words,
        cwd=ROOT,
        env={**os.environ, "PIP_PROGRESS_BAR": "off", "PYTHONUNBUFFERED": "1", **(env or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        text=True,
        errors="replace",
    )
    timer = threading.Timer(timeout_s, process.kill) if timeout_s is not None else None
    if timer is not None:
        timer.start()
    assert process.stdout is not None
    try:
        with _board.step(title) as step:
            for line in process.stdout:
                kept.append(line.rstrip())
                if not NOISE.search(line):
                    step.last = shown(line)
            code = process.wait()
    except BaseException:
        process.kill()
        process.wait()
        raise
    finally:
        if timer is not None:
            timer.cancel()
    if code:
        say("\n".join(f"   {line}" for line in kept))
        raise SetupError(f"`{' '.join(words)}` failed with code {code}")


def shown(line: str) -> str:
    """A line of output as progress: short, without escape sequences and addresses."""
    line = NPM_FETCH.sub(r"fetched \1", line.strip())
    line = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)
    return re.sub(r"https?://\S+/", "", line)[:LINE_CHARS]


def side_by_side(*steps: Callable[[], None]) -> None:
    """Independent steps: one computes while another waits for the network."""
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
