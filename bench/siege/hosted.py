"""Attacks on a relay that accepts tokens of an authorization server: forged ones, whose keys do not exist."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import monotonic
from typing import Any

from bench.siege.target import SMALL_WINDOW, Target, crowd


class Authority:
    """An authorization server without keys. Counts the requests."""

    def __init__(self) -> None:
        self.asked = 0
        authority = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                authority.asked += 1
                body = json.dumps(authority.answer(self.path)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def answer(self, path: str) -> dict[str, Any]:
        if path == "/keys":
            return {"keys": []}
        return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}

    @contextlib.contextmanager
    def running(self) -> Iterator[tuple[str, ...]]:
        """Returns the flags of a relay that uses it."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield ("--port", str(port), "--public-url", f"http://127.0.0.1:{port}", "--oauth-issuer", self.url)
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def _segment(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


async def unknown_keys(target: Target, until: float) -> None:
    """Tokens with new key names all the time, and headers that are made to break a parser."""
    number = 0
    deep = base64.urlsafe_b64encode(b'{"a":' * 2000).decode().rstrip("=")
    while monotonic() < until:
        number += 1
        heads = [_segment({"alg": "RS256", "kid": f"k{number}-{each}"}) for each in range(40)] + [deep]
        claims = _segment({"iss": "x", "sub": "x", "aud": "x", "exp": 9_999_999_999})
        tokens = [f"{head}.{claims}.AAAA" for head in heads]
        many = b"".join(target.head("/bench", "GET", Authorization=f"Bearer {token}") + b"\r\n" for token in tokens)
        async with crowd(target, 10, many, window=SMALL_WINDOW):
            with contextlib.suppress(Exception):
                async with target.browser("bench", tokens[0]):
                    pass
