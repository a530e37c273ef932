"""The real relay on a real port, inside the test's event loop, with its own state directory."""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import httpx2

from tabrelay import __version__
from tabrelay.admission.policy import Policy
from tabrelay.admission.tokens import Tokens
from tabrelay.assets.files import Assets
from tabrelay.bus.bus import Bus
from tabrelay.config.settings import Settings
from tabrelay.config.specs import Spec
from tabrelay.http import loopback
from tabrelay.routing.drain import Drain
from tabrelay.server.app import create_app
from tabrelay.server.runner import bind, listener_copies
from tabrelay.server.uvicorn_adapter.configuration import configure
from tabrelay.server.uvicorn_adapter.relay_server import RelayServer
from tabrelay.system.process_identity import ProcessIdentity
from tabrelay.system.relay_records import RelayRecord
from tests import canary
from tests.support.recorder import Recorder
from tests.support.shared_files import shared_assets
from tests.support.waiting import BOUND_S, until

MODERN = "2026-07-28"
ACCEPT = "application/json, text/event-stream"


class RunningRelay:
    """Start it with `async with`. Settings are the product's, except those that a test gives.

    Every message of the relay and of the browsers behind it is checked against the official models.
    """

    recorder: Recorder

    def __init__(
        self,
        home: Path,
        *,
        port: int = 0,
        specs: Sequence[Spec] = (),
        assets: Assets | None = None,
        sign_in: Any = None,
        bus: Bus | None = None,
        is_registered: bool = False,
        app_url: str = "",
        **settings: Any,
    ) -> None:
        self._sign_in = sign_in
        self._bus = bus
        self._is_registered = is_registered
        self._app_url = app_url
        self._specs = specs
        self._assets = assets
        self._socket = bind("127.0.0.1", port)
        self._reserved = loopback.reserve(self._socket)
        self.port: int = self._socket.getsockname()[1]
        self.settings = Settings(home=home, port=self.port, **settings)
        self.tokens = Tokens(home, shares_proofs=bus is not None)  # as `tabrelay serve` does with a bus
        self.token = self.tokens.master()
        self.url = f"http://127.0.0.1:{self.port}"
        self._server: RelayServer | None = None
        self._task: asyncio.Task[None] | None = None
        self.http = httpx2.AsyncClient(
            base_url=self.url,
            trust_env=False,
            timeout=BOUND_S,
            headers={"Authorization": f"Bearer {self.token}", "Accept": ACCEPT},
        )

    async def __aenter__(self) -> RunningRelay:
        self.drain = Drain.for_settings(self.settings)
        assets = self._assets or shared_assets()
        app: Any = create_app(
            self.settings,
            specs=self._specs,
            tokens=self.tokens,
            assets=assets,
            policy=self._policy(),
            drain=self.drain,
            sign_in=self._sign_in,
            backplane=self._bus,  # style: ok, a public name
            record=record_of(self.settings, app_url=self._app_url) if self._is_registered else None,
            app_url=self._app_url,
        )
        self.app = app
        self.recorder = Recorder(app)
        ready = asyncio.Event()
        config = configure(self.recorder, self.settings)
        self._server = RelayServer(config, ready.set)
        self._task = asyncio.create_task(self._server._serve(listener_copies(self._socket)))
        async with asyncio.timeout(BOUND_S):
            await ready.wait()
        return self

    def _policy(self) -> Policy:
        """The policy that `tabrelay serve` makes."""
        given = self.settings
        held = loopback.held_names(self._socket, given.host, is_taken=self._reserved.is_taken)
        return Policy.for_address(
            given.host, given.port, given.allow_hosts, given.allow_origins, given.public_url, held
        )

    async def __aexit__(self, *exc: object) -> None:
        await self.http.aclose()
        await self.stop()
        if exc[0] is None:
            self.recorder.finish()

    async def stop(self) -> None:
        """Stop as a signal does, and free the port."""
        assert self._server is not None and self._task is not None
        self._server.should_exit = True
        await self._task
        self._socket.close()
        self._reserved.close()
        canary.saw_files(self.settings.home)

    # -- MCP requests made by hand -------------------------------------------------------------------------------------

    def modern(self, method: str, params: dict[str, Any] | None = None, *, id: int | str = 1) -> dict[str, Any]:
        return modern(method, params, id=id)

    async def call(
        self, server: str, tool: str, arguments: dict[str, Any] | None = None, **more: Any
    ) -> httpx2.Response:
        """Call a tool as a modern client does."""
        params = {"name": tool, "arguments": arguments or {}, **more}
        return await self.http.post(f"/{server}", **self.modern("tools/call", params))

    async def has_read(self, server: str, is_so: Callable[[dict[str, Any]], bool] = lambda row: True) -> dict[str, Any]:
        """Wait until the relay has read what the present browser offers, and `is_so` is true; returns the server's
        status."""
        found: dict[str, Any] = {}

        async def is_read() -> bool:
            nonlocal found
            servers = (await self.http.get("/-/status")).json()["servers"]
            [found] = [row for row in servers if row["name"] == server]
            return found["title"] is not None and not found["stale"] and is_so(found)

        await until(is_read)
        return found

    async def knows(self, nodes: int) -> None:
        """Wait until this relay knows this many nodes on its bus, itself included."""

        async def is_known() -> bool:
            return len((await self.http.get("/-/status")).json()["nodes"]) == nodes

        await until(is_known)

    async def has_found(self, server: str) -> None:
        """Wait until this relay has read what the browser offers, which may be connected to another relay."""

        async def is_found() -> bool:
            return (await self.http.post(f"/{server}", **modern("server/discover"))).is_success

        await until(is_found)
        await self.has_read(server)

    async def initialize(
        self, server: str, version: str = "2025-11-25", headers: dict[str, str] | None = None
    ) -> tuple[httpx2.Response, dict[str, str]]:
        """Open a legacy session; returns the response and the headers for later requests."""
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        body = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}
        response = await self.http.post(f"/{server}", json=body, headers=headers)
        session = response.headers.get("mcp-session-id", "")
        return response, {"Mcp-Session-Id": session, "MCP-Protocol-Version": version}


def record_of(settings: Settings, process: ProcessIdentity | None = None, **more: Any) -> RelayRecord:
    """The state record that a relay writes. `process`: by default this one."""
    known: dict[str, Any] = {
        "id": secrets.token_hex(8),
        "url": f"http://127.0.0.1:{settings.port}",
        "host": settings.host,
        "port": settings.port,
        "process": process or ProcessIdentity.of(os.getpid()),
        "version": __version__,
        "command": ("serve",),
        "folder": "/",
        "began": time.time(),
    }
    return RelayRecord(**{**known, **more})


def modern(method: str, params: dict[str, Any] | None = None, *, id: int | str = 1) -> dict[str, Any]:
    """A modern request, as keyword arguments of `http.post`."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    }
    params = {**(params or {})}
    params["_meta"] = {**meta, **params.get("_meta", {})}
    headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
    name = params.get("uri") if method == "resources/read" else params.get("name")
    if name is not None:
        headers["Mcp-Name"] = str(name)
    return {"json": {"jsonrpc": "2.0", "id": id, "method": method, "params": params}, "headers": headers}


def events(text: str) -> list[str]:
    """The messages in the text of an event stream. An event without data only carries an id for the client."""
    return [data for line in text.splitlines() if line.startswith("data: ") and (data := line.removeprefix("data: "))]
