"""A `tabrelay` command whose event loop is measured: when it ends, it writes the slowest callbacks to a file.

SIGUSR1 discards the earlier measurements, so that start-up does not count. Run as `python -m
tests.support.measured_command FILE ARGUMENT…`.
"""

from __future__ import annotations

import atexit
import json
import signal
import sys
from pathlib import Path

from tests.support.measured_relay import Callbacks, Slow


def slowest(file: Path) -> Slow:
    """The slowest callbacks of a command that has ended."""
    ms, what = json.loads(file.read_text())[0]
    return Slow(ms, what)


if __name__ == "__main__":
    from tabrelay.cli.main import main

    callbacks = Callbacks()
    callbacks.wrap()
    atexit.register(lambda: Path(sys.argv[1]).write_text(json.dumps(callbacks.take())))
    signal.signal(signal.SIGUSR1, lambda number, frame: callbacks.take())
    sys.exit(main(sys.argv[2:]))
