"""What pyodide.mjs runs inside Pyodide: pytest over some folders, with one JSON line of counts at the end.

Not a test and not imported by any. The expression at the end is the exit code, which the script hands to Node.
"""

import json
import os
import sys
from collections import Counter

sys.dont_write_bytecode = True  # both folders are the host's own
sys.path[:0] = ["/repo", "/repo/browser_pkg"]
sys.path.append("/packages")
os.chdir("/repo")
# Plug-ins of the host's environment may be compiled for it; the tests here need none.
os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
os.environ["HYPOTHESIS_NO_PLUGINS"] = "1"

import pytest  # noqa: E402 - the path to them is made above
from hypothesis import settings  # noqa: E402

# Ten times slower than the host: fewer examples, no clock on each, and nothing written into the tree.
settings.register_profile("pyodide", max_examples=20, stateful_step_count=30, deadline=None, database=None)
settings.load_profile("pyodide")

TESTS = os.environ["TESTS"].split()
counts: dict[str, Counter[str]] = {folder: Counter() for folder in TESTS}


class Counting:
    """Counts outcomes, a failing set-up among them."""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            [folder] = [each for each in TESTS if report.nodeid.startswith(f"{each}/")]
            counts[folder][report.outcome] += 1


# The project's own settings and its conftest files name plug-ins that are not here, so this run has none.
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
