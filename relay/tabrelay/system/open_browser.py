"""Opening the relay's page in the user's browser, without showing the pairing code to other users of the computer.

Command lines are visible to all processes, so the browser gets the URL of a file that only this user can read; the file
redirects to the page. Does not wait for the browser and raises nothing if it does not start: the address is printed
as well.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import webbrowser
from collections.abc import Callable, Mapping
from pathlib import Path


def has_display(env: Mapping[str, str] | None = None, platform: str = sys.platform) -> bool:
    """Does this session have a screen? Over SSH, a browser would open on the remote computer, unseen."""
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
        """``keep_s``: life of the code in the address; the file is removed after it."""
        self.close()
        handle = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(redirect_page(url))
        # In a thread: some launchers return only when the browser exits.
        self._starting = threading.Thread(target=self._start, daemon=True)
        self._starting.start()
        self._timer = threading.Timer(keep_s, self.close)
        self._timer.daemon = True
        self._timer.start()

    def wait(self, timeout_s: float) -> None:
        """Wait until the launcher has returned, at most this long."""
        if self._starting is not None:
            self._starting.join(timeout_s)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(OSError):
            self._file.unlink()

    def _start(self) -> None:
        # A browser that can't be started must not stop the relay.
        with contextlib.suppress(webbrowser.Error, OSError):
            # defence: the pairing code on a command line
            self._open_url(self._file.as_uri())


def redirect_page(url: str) -> str:
    import html  # its table of entities is large, and most relays open no browser

    address = html.escape(url, quote=True)
    return (
        '<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>Tabrelay</title>\n'
        f'<meta http-equiv="refresh" content="0; url={address}">\n'
        f'<p><a href="{address}">Open the Tabrelay page</a></p>\n'
    )
