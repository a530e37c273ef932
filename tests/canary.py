"""Canary for secrets: after every test, searches everything that was written for tokens.

A pytest plugin. It registers each token and pairing code made in this process or by a relay in another (which `hook`
has write them down), and each token of the tests' authorization servers. After each test it searches what was written
meanwhile, in clear and in the form that WebSockets carry: the relay's loggers at TRACE (through the product's own
formatter), captured output, stderr of relays, the command lines of all processes while one ran, and every file in their
state directories except those that hold a secret by design. Each process of a test run has its own canary, so any
number of processes works.
"""

from __future__ import annotations

import base64
import logging
import os
import re
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.capture import CaptureFixture

from tabrelay.admission import pairing_codes
from tabrelay.observe.log_setup import TRACE, JsonFormatter
from tabrelay.system import private_files

# The outputs that show a token on purpose, and the tests of each.
SHOWN: Final = {
    "`--json`": ("test_a_script_gets_its_line",),
    "the client command on a terminal": ("test_a_terminal_gets_commands_to_copy",),
    "`tabrelay token`, which is there to print one": (
        "test_token_prints_the_token",
        "test_a_named_token_is_printed_once",
        "test_a_token_for_figures",
        "test_the_default_token_is_replaced",
        "test_the_state_directory_may_come",
    ),
    "`tabrelay pair`, which is there to print a code": ("test_pair_finds_the_running_relay_by_itself",),
}
# Only the relay's loggers: clients of tests have loggers too, which log what they send.
LOGGERS: Final = ("tabrelay", "tabserver", "uvicorn", "fastapi", "starlette", "asyncio")
# Files that hold a secret by design; no other user can read them.
SECRET_FILES: Final = frozenset({"token", "session.key"})
# Files of upstreams with a sign-in: one for each.
SIGNED_IN: Final = re.compile(r"[0-9a-f]{32}\.json")
_RUNS: Final = re.compile(r"[A-Za-z0-9_-]{12,}")
_SHAPED: Final = re.compile(r"tr_[A-Za-z0-9_-]{43}")

# File in which relays in other processes record the secrets that they made.
OTHER_PROCESSES: Final = "TABRELAY_TEST_SECRETS"

_forms: set[str] = set()
_read_upto = 0
_written: list[tuple[str, str]] = []


def register(token: str) -> None:
    """Register a secret that must not be written from now on."""
    encoded = base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")
    # Of a signed token, the signature is the secret.
    _forms.update((token, encoded, token.encode().hex(), token.rpartition(".")[2]))


def _made_by_others() -> None:
    global _read_upto
    with suppress(KeyError, OSError), open(os.environ[OTHER_PROCESSES], encoding="utf-8") as file:
        file.seek(_read_upto)
        for secret in file.read().split():
            register(secret)
        _read_upto = file.tell()


def saw(where: str, text: str) -> None:
    """Search a text that was written."""
    if text:
        _written.append((where, text))


def saw_files(home: Path) -> None:
    """Search the files that a relay left in its state directory."""
    for path in sorted(home.rglob("*")) if home.is_dir() else ():
        if path.name in SECRET_FILES or (path.parent.name == "oauth" and SIGNED_IN.fullmatch(path.name)):
            continue
        with suppress(OSError):  # it may be deleted by now, or not a file
            saw(path.name, path.read_text(encoding="utf-8", errors="replace"))


def saw_processes() -> None:
    """Search command lines, which every user of the computer can read."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            saw("a command line", path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))


def leaks() -> list[str]:
    """Places where tokens were found since the last call; the tokens themselves are not repeated."""
    _made_by_others()
    found = []
    for where, text in _written:
        runs = [*_RUNS.findall(text), *_SHAPED.findall(text)]
        if any(run in _forms for run in runs):
            found.append(where)
    _written.clear()
    return found


class _Listener(logging.Handler):
    """What the product would log at any level."""

    def __init__(self) -> None:
        super().__init__(TRACE)
        self.setFormatter(JsonFormatter())

    def emit(self, record: logging.LogRecord) -> None:
        try:
            saw(f"log of {record.name}", self.format(record))
        except Exception:
            saw("a record that can't be formatted", str(record.args))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    made = private_files.new_secret

    def new_secret() -> str:
        token = made()
        register(token)
        return token

    private_files.new_secret = new_secret
    mint = pairing_codes.PairingCodes.mint

    def minted(self: Any, *args: Any) -> str:
        code = mint(self, *args)
        register(code)
        return code

    pairing_codes.PairingCodes.mint = minted  # type: ignore[assignment]
    handle, os.environ[OTHER_PROCESSES] = tempfile.mkstemp(prefix="tabrelay-secrets-")
    os.close(handle)
    read = CaptureFixture.readouterr

    def readouterr(self: Any) -> Any:
        said = read(self)
        for name, text in (("stdout", said.out), ("stderr", said.err)):
            saw(f"captured {name}", text if isinstance(text, str) else text.decode(errors="replace"))
        return said

    CaptureFixture.readouterr = readouterr  # type: ignore[method-assign]


def pytest_unconfigure(config: pytest.Config) -> None:
    Path(os.environ.pop(OTHER_PROCESSES)).unlink(missing_ok=True)


@pytest.fixture(autouse=True)
def _loud() -> Iterator[None]:
    """The relay's loggers at TRACE, without other handlers. A handler that a command of the test installed writes to
    the stream of that test, which is closed afterwards."""
    listener = _Listener()
    root = logging.getLogger()
    before, level_before = root.handlers[:], root.level
    levels = {}
    for name in LOGGERS:
        logger = logging.getLogger(name)
        levels[name] = logger.level
        logger.setLevel(TRACE)
        logger.addHandler(listener)
    yield
    for name, level in levels.items():
        logging.getLogger(name).removeHandler(listener)
        logging.getLogger(name).setLevel(level)
    for handler in [handler for handler in root.handlers if type(handler) is logging.StreamHandler]:
        if handler not in before:
            root.removeHandler(handler)
            root.setLevel(level_before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, Any]:
    report = yield
    for title, text in report.sections:
        if "log" not in title:  # pytest's own handler writes what the product's would not
            saw(title, text)
    if call.when == "teardown" or report.failed:
        found = leaks()
        is_shown = any(item.name.startswith(prefix) for prefixes in SHOWN.values() for prefix in prefixes)
        if found and report.passed and not is_shown:
            report.outcome = "failed"
            report.longrepr = f"{item.nodeid}: a token was written: {', '.join(sorted(set(found)))}"
    return report
