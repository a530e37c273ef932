"""The conformance suite's tools as a child process that supports one era only, over its pipes.

The handlers and the core are those of the page; here they run on CPython, without a relay. One answer is the child's
own: the handshake era has no error for a missing capability, and this server uses the later one. Its argument is the
era.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import tests.conformance.fixtures  # noqa: F401 - declares what there is
from tabserver.handlers.toolbox import default_toolbox
from tabserver.mcp.server import Server
from tabserver.tabs.hub import Hub
from tabserver.wire.eras import META_CAPABILITIES, META_CLIENT, META_VERSION, MODERN_VERSIONS, NEWEST_LEGACY, Era
from tabserver.wire.events import Closed, Opened, Received
from tabserver.wire.frames import Caller, Kind
from tabserver.wire.jsonrpc import METHOD_NOT_FOUND, MISSING_CAPABILITY, error_message
from tests.support.cpython_worker import defer, later

PIPE = "pipe"


class Child:
    """A core and its pipes."""

    def __init__(self, era: Era) -> None:
        loop = asyncio.get_running_loop()
        hub = Hub(
            default_toolbox,
            now_ms=lambda: loop.time() * 1000,
            defer=defer,
            later=later,
            on_change=lambda lists: self._core.catalogue_changed(lists),
            on_update=lambda uri: self._core.resource_updated(uri),
        )
        self._era = era
        self._can_sample = False
        self._core = Server("conformance", "1.0", hub, self._send)
        if era is Era.LEGACY:
            self._core.receive(Opened(PIPE, Caller(Era.LEGACY, NEWEST_LEGACY, "pipe")))

    def _send(self, channel: str, kind: Kind, text: str, id: object = None, related: object = None) -> None:
        write(text)

    def take(self, line: str) -> None:
        message: dict[str, Any] = json.loads(line)
        id: Any = message.get("id")
        method = message.get("method")
        kind = Kind.RES if method is None else Kind.NOTE if id is None else Kind.REQ
        params = message.get("params") or {}
        if self._era is Era.LEGACY:
            if method == "initialize":
                self._can_sample = "sampling" in params["capabilities"]
            if params.get("name") == "test_missing_capability" and not self._can_sample:
                needed: Any = {"requiredCapabilities": {"sampling": {}}}
                write(json.dumps(error_message(id, MISSING_CAPABILITY, "This needs a model.", needed)))
            else:
                self._core.receive(Received(PIPE, kind, id, None, line, None))
            return
        meta = params.get("_meta") or {}
        if kind is Kind.NOTE and method == "notifications/cancelled":
            self._core.receive(Closed(str(message["params"]["requestId"]), "cancelled"))
        elif kind is Kind.REQ and meta.get(META_VERSION) in MODERN_VERSIONS:
            caller = Caller(Era.MODERN, meta[META_VERSION], "pipe", meta.get(META_CLIENT), meta[META_CAPABILITIES])
            self._core.receive(Received(str(id), kind, id, None, line, caller))
        elif kind is Kind.REQ and id is not None:
            write(json.dumps(error_message(id, METHOD_NOT_FOUND, f'"{method}" needs an envelope here.')))


def write(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    child = Child(Era(sys.argv[1]))
    reader = asyncio.StreamReader(limit=16 * 1024 * 1024)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        child.take(line.decode())


if __name__ == "__main__":
    asyncio.run(main())
