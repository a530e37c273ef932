"""Browsers, nats-server and shells, installed from the system's packages where they are missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import threading

from steps.console import SetupError, run, say
from steps.node import search_path
from steps.tree import BIN, ROOT


def find_browser(name: str = "chromium") -> str:
    """The browser that the tests will use; playwright.config.py has the search order."""
    answer = subprocess.run([BIN / "python", ROOT / "playwright.config.py", name], capture_output=True, text=True)
    if answer.returncode:
        raise SetupError(answer.stderr.strip())
    return answer.stdout.strip()


def starts(browser: str) -> bool:
    return bool(browser) and subprocess.run([browser, "--version"], capture_output=True).returncode == 0


def as_root() -> list[str] | None:
    """The prefix that makes a command run as root without a question, or None."""
    if os.geteuid() == 0:
        return []
    sudo = shutil.which("sudo")
    if sudo and subprocess.run([sudo, "-n", "true"], capture_output=True).returncode == 0:
        return [sudo, "-n"]
    return None


# One at a time; available packages are listed only once.
_apt = threading.Lock()
_is_apt_fresh = threading.Event()


def apt(*packages: str) -> None:
    root = as_root()
    if not shutil.which("apt-get") or root is None:
        raise SetupError(f"no {' and no '.join(packages)} here, and no apt-get that this user may run: install them")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    with _apt:
        if not _is_apt_fresh.is_set():
            with contextlib.suppress(SetupError):  # an old list may be sufficient
                run(*root, "apt-get", "update", "-qq", env=quiet)
            _is_apt_fresh.set()
        run(*root, "apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages, env=quiet)


def browser() -> None:
    if find_browser():
        return
    say("== installing Chromium for the browser tests (Playwright's own)")
    playwright = [str(BIN / "python"), "-m", "playwright"]
    with contextlib.suppress(SetupError):
        run(*playwright, "install", "chromium", env={"PLAYWRIGHT_DOWNLOAD_CONNECTION_TIMEOUT": "10000"})
        if not starts(find_browser()) and (root := as_root()) is not None:
            run(*root, *playwright, "install-deps", "chromium")
        if starts(find_browser()):
            return
    say("== that did not work; installing Chromium from the system's packages")
    with contextlib.suppress(SetupError):
        apt("chromium")
    if not starts(find_browser()):
        raise SetupError("no browser for the tests: put Chromium or Chrome on PATH, or set TABRELAY_CHROMIUM to one")


OTHERS = {"firefox": ["firefox-esr"], "webkit": ["webkit2gtk-driver", "xvfb", "xauth", "dbus"]}


def other_browsers() -> None:
    """Firefox and WebKitGTK from the system's packages, as users install them."""
    missing = [name for name in OTHERS if not find_browser(name)]
    if not missing:
        return
    say(f"== installing {' and '.join(missing)} for the browser tests from the system's packages")
    apt(*(package for name in missing for package in OTHERS[name]))


def bus() -> None:
    """NATS for the tests of several relays: the configured one, or the one on the PATH, or the system's package."""
    named = os.environ.get("TABRELAY_NATS_SERVER")
    places = os.pathsep.join([search_path(), "/usr/sbin", "/usr/local/sbin"])
    if named or shutil.which("nats-server", path=places):
        return
    say("== installing nats-server for the tests from the system's packages")
    with contextlib.suppress(SetupError):
        apt("nats-server")
    if not shutil.which("nats-server", path=places):
        raise SetupError("no NATS for the tests: put nats-server on PATH, or set TABRELAY_NATS_SERVER to one")


def shells() -> None:
    """zsh and fish for the tests of shell completion, which are skipped without them."""
    missing = [shell for shell in ("zsh", "fish") if not shutil.which(shell)]
    if not missing:
        return
    say(f"== installing {' and '.join(missing)} for the tests from the system's packages")
    try:
        apt(*missing)
    except SetupError as error:
        say(f"   without {' and '.join(missing)}: {error}")
