"""Several processes rotate one log file: no line is lost, torn or written twice.

The interleavings of single steps are in `test_call_log`. Here real processes compete. `TABRELAY_ROTATION_ROUNDS` sets
the number of rounds; each rotates the file about 50 times.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from tests.support.waiting import BOUND_S

PROCESSES: Final = 4
LINES: Final = 100
MAX_BYTES: Final = 300
KEEP: Final = PROCESSES * LINES  # no file is deleted, so every line must still be there
ATTEMPTS: Final = 10
ROUNDS: Final = int(os.environ.get("TABRELAY_ROTATION_ROUNDS", "3"))

# Both logs are written by PrivateRotatingFile: the relay's log keeps it open, the call log closes it after each batch.
WRITER: Final = """
import logging, sys, time
from pathlib import Path
from tabrelay.observe.log_file import PrivateRotatingFile

path, name, start, lines, size, keep, closes = sys.argv[1:]
file = PrivateRotatingFile(Path(path), int(size), int(keep))
while time.time() < float(start):
    pass
for number in range(int(lines)):
    text = f"{name}-{number} " + "." * (number * 7 % 60)
    file.handle(logging.LogRecord("x", logging.INFO, "", 0, text, (), None))
    if closes == "True":
        file.close()
sys.exit(1 if file.failures else 0)
"""


def write_at_once(path: Path, closes: bool) -> None:
    start = str(time.time() + 0.5)  # on an idle machine, all of them have finished their imports by then
    sizes = [str(LINES), str(MAX_BYTES), str(KEEP), str(closes)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(name), start, *sizes])
        for name in range(PROCESSES)
    ]
    assert [writer.wait(BOUND_S) for writer in writers] == [0] * PROCESSES


@pytest.mark.parametrize("closes", [False, True], ids=["relay log", "call log"])
@pytest.mark.parametrize("round", range(ROUNDS))
def test_processes_that_rotate_one_log_lose_and_tear_no_line(tmp_path: Path, closes: bool, round: int) -> None:
    # Where one process writes all of its lines while another one rotates, the file is rotated less often: try again.
    for attempt in range(ATTEMPTS):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        write_at_once(folder / "relay.log", closes)
        files = sorted(folder.iterdir(), key=lambda file: -int(file.suffix[1:]) if file.suffix[1:].isdigit() else 0)
        found = [line.split()[0] for file in files for line in file.read_text().splitlines()]
        expected = Counter(f"{name}-{number}" for name in range(PROCESSES) for number in range(LINES))
        assert Counter(found) == expected
        for name in range(PROCESSES):  # the oldest file has the oldest lines of each writer
            own = [int(line.split("-")[1]) for line in found if line.startswith(f"{name}-")]
            assert own == sorted(own)
        if len(files) > PROCESSES:  # it was rotated while all of them wrote
            return
    raise AssertionError("the file was hardly rotated")
