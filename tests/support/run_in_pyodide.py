"""pytest inside Pyodide over some folders, started by pyodide.mjs; prints one JSON line of counts at the end.

Not a test, and no module imports it. The last expression is the exit code, which the script returns to Node.
"""

import json
import os
import sys
from collections import Counter

sys.dont_write_bytecode = True  # both folders are the host's
sys.path[:0] = ["/repo", "/repo/browser_pkg"]
sys.path.append("/packages")
os.chdir("/repo")
# Plug-ins of the host's environment may be compiled for it; these tests need none.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"

import pytest  # noqa: E402 - the path to them is made above
from hypothesis import HealthCheck, settings  # noqa: E402

# Pyodide is ten times slower than the host: fewer examples, no deadline for each, and nothing is written to the tree.
settings.register_profile(
    "pyodide",
    max_examples=20,
    stateful_step_count=30,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("pyodide")

TESTS = os.environ["TESTS"].split()
counts: dict[str, Counter[str]] = {folder: Counter() for folder in TESTS}


class Counting:
    """Counts outcomes, including failing set-ups."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            [folder] = [each for each in TESTS if report.nodeid.startswith(f"{each}/")]
            counts[folder][report.outcome] += 1


# The project's settings and its conftest files name plug-ins that are missing here, so this run ignores them.
code = pytest.main(
    [
        "-q",
        "--import-mode=importlib",
        "--rootdir=/repo",
        "--noconftest",
        f"-c{os.devnull}",
        "-pno:cacheprovider",
        *TESTS,
    ],
    plugins=[Counting()],
)
print(json.dumps({"python": sys.version.split()[0], "platform": sys.platform, **counts}))
int(code)
