"""For the whole suite."""

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs so, and programs that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.canary", "tests.order", "tests.support.relay_pair"]
