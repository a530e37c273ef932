"""A web app of another site: a folder on its own port, and so on another origin than the relay."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any


class _Quiet(SimpleHTTPRequestHandler):
    """Serves files without an access log."""

    def __init__(self, *args: Any, headers: Mapping[str, str], redirects: Mapping[str, str], **options: Any) -> None:
        self._more, self._redirects = headers, redirects
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        target = self._redirects.get(self.path.partition("?")[0])
        if target is None:
            return super().do_GET()
        self.send_response(302)
        self.send_header("Location", target)
        return self.end_headers()

    def end_headers(self) -> None:
        for name, value in self._more.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """No access log: tests report what went wrong."""


class Site:
    """Start it with `with`; write files into `folder`, and set `headers` and `redirects`, before or after."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.headers: dict[str, str] = {}
        self.redirects: dict[str, str] = {}  # by path
        handler = partial(_Quiet, directory=str(folder), headers=self.headers, redirects=self.redirects)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.origin = f"http://localhost:{self._server.server_port}"

    def __enter__(self) -> Site:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
