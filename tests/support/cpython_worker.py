"""The worker's Python without a browser: the real transport, hub and MCP core, over a WebSocket of CPython.

For tests of the messages between a handler and a client. Tests of the product use Chromium.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tabserver.handlers.toolbox import Toolbox, default_toolbox
from tabserver.mcp.server import Server
from tabserver.mcp.tasks import TaskTerms
from tabserver.tabs.hub import Hub
from tabserver.timing import DEFAULTS, Timing
from tests.support.cpython_dialer import RemoteWorker


class CPythonWorker(RemoteWorker):
    """Start it with `async with`; inside, the server is connected. `reports_tabs`: the relay learns of its tabs."""

    def __init__(
        self,
        url: str,
        token: str,
        server: str,
        toolbox: Toolbox = default_toolbox,
        timing: Timing = DEFAULTS,
        *,
        reports_tabs: bool = False,
    ) -> None:
        self.errors: list[Exception] = []
        self.core: Server
        super().__init__(
            url,
            token,
            server,
            timing,
            new_receiver=lambda send: lambda event: self.core.receive(event),
            on_error=self.errors.append,
            on_open=self._opened,
        )
        self._toolbox = toolbox
        self.hub = Hub(
            toolbox,
            now_ms=lambda: self._clock() * 1000,
            defer=defer,
            later=later,
            on_change=lambda lists: self.core.catalogue_changed(lists),
            on_update=lambda uri: self.core.resource_updated(uri),
            on_tabs=lambda: self.core.tabs_changed(),
            on_identity=lambda identity: self.core.use_identity(identity),
        )
        census = self.hub.census if reports_tabs else None
        self.core = Server(server, "1.0", self.hub, self.transport.session.send, census=census)

    def _opened(self) -> None:
        assert self.transport.welcome is not None
        self.core.use_key(self.transport.welcome.key)
        self.core.tasks.terms = TaskTerms.read(self.transport.welcome.tasks)

    async def __aenter__(self) -> CPythonWorker:
        await self.transport.start()
        await self.until("connected")
        return self

    async def __aexit__(self, *exc: object) -> None:
        self.core.stop()
        await self.transport.close()
        # The default toolbox outlives this worker: later declarations must not use its event loop.
        self._toolbox.listen(lambda: None, lambda uri: None)


def defer(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(function)


def later(delay_ms: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_ms / 1000, function)
