"""Settings of the whole suite."""

import gc
import os
import signal
import sys

from hypothesis import HealthCheck, settings

# Tests start many processes, each of which would compile every import. Some environments set this option.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Messages name the program as users start it: by its name, if it is on the PATH.
os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, which programs that tests start and interrupt would inherit.
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "tests.canary",
    "tests.order",
    "tests.processes",
    "tests.support.shared_files",
    "tests.support.relay_pair",
    "tests.support.short_ticks",
]

# On a busy machine, an example and its values may take any time.
settings.register_profile("busy machine", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy machine")

# Each process of the suite imports and collects all tests. None of that becomes garbage, and searching it takes a fifth
# of the time.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()  # exclude it from each full collection, and from tests that count objects
    gc.enable()
