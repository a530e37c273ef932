"""Opens the page in the user's browser without showing the pairing code to other users of the computer.

A command line is visible to every process, so the browser is given the address of a file that only this user can read,
and the file sends it on. It does not wait for the browser and never fails loudly: the address is printed as well.
"""

from __future__ import annotations

import contextlib
import html
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path


def has_display(env: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Is there a screen that this user sits at? A remote shell's browser would open where nobody looks."""
    env = os.environ if env is None else env
    if env.get("SSH_CONNECTION"):
        return False
    if platform in ("darwin", "win32"):
        return True
    return bool(env.get("DISPLAY") or env.get("WAYLAND_DISPLAY") or env.get("WSL_DISTRO_NAME"))


class PageOpener:
    """Writes the redirect file, starts the browser, and removes the file again."""

    def __init__(self, home: Path, open_url: Callable[[str], object] = webbrowser.open) -> None:
        self._file = home / "open.html"
        self._open_url = open_url
        self._starting: threading.Thread | None = None
        self._timer: threading.Timer | None = None

    def open(self, url: str, keep_s: float) -> None:
        """``keep_s``: when the code in the address is dead anyway, and the file goes."""
        self.close()
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(redirect_page(url))
        # In a thread, since some browsers' launchers only return when the browser does.
        self._starting = threading.Thread(target=self._start, daemon=True)
        self._starting.start()
        self._timer = threading.Timer(keep_s, self.close)
        self._timer.daemon = True
        self._timer.start()

    def wait(self, timeout_s: float) -> None:
        """Until the browser was asked, or so long."""
        if self._starting is not None:
            self._starting.join(timeout_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _start(self) -> None:
        # A browser that can't be started must not take the relay down.
        with contextlib.suppress(webbrowser.Error, OSError):
            # defence: the pairing code on a command line
            self._open_url(self._file.as_uri())


def redirect_page(url: str) -> str:
    address = html.escape(url, quote=True)
    return (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Tabrelay</title>\n'
        f'<meta http-equiv="refresh" content="0; url={address}">\n'
        f'<p><a href="{address}">Open the Tabrelay page</a></p>\n'
    )
