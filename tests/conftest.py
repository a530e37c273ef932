"""For the whole suite."""

import os
import signal
import sys

# Tests start many processes, each of which would compile everything it imports. Some environments ask for that.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and programs that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.canary", "tests.order", "tests.support.relay_pair"]
