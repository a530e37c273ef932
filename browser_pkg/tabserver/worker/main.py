"""The shared worker's composition root: ports, hub, MCP core and link, put together once per worker.

`start` is what worker.js calls when Python is up. Everything that needs a browser comes from `browser`; what happens is
decided in the rooms that this file connects.
"""

from __future__ import annotations

import asyncio
import importlib.util
import random
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from ..browser.clock import now_s, steady_clock
from ..browser.ports import Port
from ..browser.python_bridge import PythonBridge, allow, make_shared_buffer, report, when_online
from ..browser.values import Aborter, fetch_text
from ..browser.websocket import Dialer
from ..handlers.toolbox import default_toolbox
from ..mcp.server import Server
from ..tabs.hub import Hub
from ..timing import Timing
from ..transport.dialing import DialError
from ..transport.reconnect import Transport, TransportState
from ..wire.errors import ServerNameError
from ..wire.frames import Greeting
from ..wire.limits import Limits
from ..wire.link import Link
from ..wire.names import check_instance, check_server_name
from .fast_path import WorkerFastPath
from .js_calls import GrantedCalls
from .run_python import offer_run_python
from .snapshot_reset import reset_after_snapshot

# Long enough for a page to offer its tools one after the other, too short for anybody to notice.
COALESCE_S: Final = 0.02
MODULE_TIMEOUT_S: Final = 10.0
MOST_MODULES: Final = 256
_STATE_MESSAGES: Final = {
    "connecting": "Connecting to the relay",
    "stopped": "The connection was closed by a page.",
}


def start(bridge: PythonBridge, relay: str, build: str, version: str) -> Callable[[Any], None]:
    """Bring up the worker; returns what takes over a page's port."""
    reset_after_snapshot()
    return Worker(bridge, relay, build, version).accept


class Worker:
    """All tabs of one server in this browser. The link is made when the first tab says which server that is."""

    def __init__(self, bridge: PythonBridge, relay: str, build: str, version: str) -> None:
        self._bridge, self._shared_buffer = bridge, make_shared_buffer(bridge)
        dialer = partial(Dialer, bridge, self._shared_buffer, relay)
        self._new_service = partial(Service, bridge=bridge, new_dialer=dialer, build=build, version=version)
        self._hub = Hub(default_toolbox, now_ms=steady_clock(), defer=_defer, later=_later)
        self._modules = PageModules()
        self._service: Service | None = None
        self._has_run_python = False
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, js_port: Any) -> None:
        port = Port(self._bridge, self._shared_buffer, js_port)
        port.listen(partial(self._receive, port), partial(self._hub.receive_result, port))

    def _receive(self, port: Port, message: dict[str, Any]) -> None:
        kind, service = message["t"], self._service
        if kind == "attach":
            self._attach(port, message)
        elif kind == "detach":
            self._detach(port, returns=bool(message.get("returns")), is_expected=bool(message.get("expected")))
        elif service is not None and kind == "token":
            service.use_token(message["token"])
        elif service is not None and kind == "retry":
            self._run(service.retry())
        elif service is not None and kind == "stop":
            self._run(service.stop())
        else:
            self._hub.receive(port, message)
            if service is not None and kind == "tab" and message.get("visible"):
                service.retry_if_waiting()

    def _attach(self, port: Port, message: dict[str, Any]) -> None:
        service = self._service
        if message.get("readsText"):
            port.use_text()
        port.reads_requests = message.get("readsRequests") is True
        if service is None:
            # One worker has one timing: that of the first tab.
            timing = Timing.read(message.get("timing") or {})
            self._hub.use_timing(timing)
            try:
                service = self._service = self._new_service(self._hub, message["server"], timing, _instance(message))
            except ServerNameError as error:
                port.send(describe_state(TransportState("stopped", "forbidden", str(error)), message["server"]))
                return
        port.watch(message["lock"], partial(self._detach, port))
        self._hub.attach(port, message["tab"])
        if wanted := message.get("runPython"):
            self._offer_run_python(port, wanted)
        port.send(service.state)
        self._run(self._begin(service, message["modules"], message["token"]))

    def _offer_run_python(self, port: Port, wanted: dict[str, Any]) -> None:
        """One worker has one notebook: as the first page wants it that wants one."""
        if self._has_run_python:
            return
        name = wanted.get("name", "run_python")
        try:
            offer_run_python(name=name, timeout_s=wanted["timeoutMs"] / 1000, max_output=wanted["maxOutput"])
            self._has_run_python = True
        except (TypeError, ValueError) as error:
            port.send({"t": "refused", "kind": "tools", "name": str(name), "message": str(error)})

    async def _begin(self, service: Service, modules: list[str], token: str) -> None:
        # First the tools, then the link: the first caller must not see half of them.
        for url in modules:
            if (problem := await self._modules.load(url)) is not None:
                self._hub.broadcast({"t": "module_failed", "url": url, "message": problem})
        # A page that left in the meantime wants no connection any more.
        if self._hub.tabs:
            await service.start(token)

    def _detach(self, port: Port, *, returns: bool = False, is_expected: bool = False) -> None:
        self._hub.detach(port, returns=returns, is_expected=is_expected)
        if self._service is not None and not self._hub.tabs:
            self._run(self._service.stop_dialing())

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself keeps tasks by weak references only.
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            report(error, "a task of the worker failed")


class Service:
    """One server's MCP core on its link, and what the pages are told about its state."""

    def __init__(
        self,
        hub: Hub,
        server: str,
        timing: Timing,
        instance: str | None,
        *,
        bridge: PythonBridge,
        new_dialer: Callable[[str], Dialer],
        build: str,
        version: str,
    ) -> None:
        """`instance`: what this browser is called, where several offer the server."""
        self._hub = hub
        self._server_name = check_server_name(server)
        self._build = build
        self._dialer = new_dialer(server)
        greeting = Greeting(server=server, inst=uuid.uuid4().hex, build=build, browser=instance)
        link: Link[str] = Link.dialer(greeting, Limits(watchdog_s=timing.watchdog_s))
        self._transport = Transport(
            link,
            self._dialer,
            clock=now_s,
            new_abort=Aborter,
            jitter=random.random,
            timing=timing,
        )
        self._core = core = Server(server, version, self._hub, self._transport.session.send)
        fast_path = WorkerFastPath(core, hub, self._transport.session.send)
        self._transport.session.on_message = fast_path.receive
        self._dialer.recorder = GrantedCalls(hub, fast_path, self._transport.session, partial(allow, bridge), bridge)
        self._transport.on_state = self._state_changed
        self._transport.on_error = _report_bug
        self._hub.on_change = core.catalogue_changed
        self._hub.on_update = core.resource_updated
        self._hub.on_tabs = core.tabs_changed
        core.census = self._hub.census
        self._is_started = False
        # The relay has other code for the browser than this worker is made of.
        self._is_outdated = False
        self.state = describe_state(TransportState("connecting"), server)
        when_online(bridge, self.retry_if_waiting)

    async def start(self, token: str) -> None:
        self.use_token(token)
        if not self._is_started:
            self._is_started = True
            await self._transport.start()

    async def stop_dialing(self) -> None:
        """No tab is left: leave no dial behind. A link that is up stays: most pages that go are only reloading."""
        if self._is_started and self.state["state"] in ("connecting", "waiting") and not self._hub.tabs:
            self._is_started = False
            await self._transport.close()
            if not self._is_started:  # no tab has come while the dial was given up
                self.state = describe_state(TransportState("connecting"), self._server_name)

    async def stop(self) -> None:
        """Stay down, also for tabs that come later, until somebody asks to retry."""
        self._core.stop()
        await self._transport.close()

    async def retry(self) -> None:
        """Somebody asked for it: whatever the reason to wait or to stop was, try now."""
        await self._transport.start()
        self._transport.retry_now()

    def retry_if_waiting(self) -> None:
        """A good moment (the network is back, a tab is looked at): do not wait any longer, but wake no stopped link."""
        if self.state["state"] == "waiting":
            self._transport.retry_now()

    def use_token(self, token: str) -> None:
        if not token or token == self._dialer.token:
            return
        self._dialer.token = token
        if self.state["state"] == "stopped" and self.state["why"] in (
            "unauthorized",
            "forbidden",
            "taken",
            "not_paired",
        ):
            self._transport.retry_now()

    def _state_changed(self, state: TransportState) -> None:
        welcome = self._transport.welcome
        if state.state == "connected" and welcome is not None:
            self._hub.use_static_tools(welcome.static_tools)
            self._hub.use_approval(welcome.approve)
            self._core.use_key(welcome.key)
            self._is_outdated = welcome.build != self._build
        # It works as far as it goes, until a page brings a worker with the relay's own code: then that has the name.
        if self._is_outdated and state.state == "connected":
            state = replace(state, why="version", message="The relay was updated. Reload the page to update it too.")
        elif self._is_outdated and state.why == "replaced":
            text = "The relay was updated, and a page with the new version has taken over. Reload this one."
            state = replace(state, why="version", message=text)
        self.state = describe_state(state, self._server_name)
        self._hub.broadcast(self.state)


def _instance(message: dict[str, Any]) -> str | None:
    given = message.get("instance")
    return check_instance(given) if isinstance(given, str) and given else None


def describe_state(state: TransportState, server: str) -> dict[str, Any]:
    # The one stop without a reason is the one that a page asked for.
    why = "closed" if state.state == "stopped" and state.why is None else state.why
    return {
        "t": "state",
        "state": state.state,
        "why": why,
        "message": state.message or _STATE_MESSAGES.get(state.state),
        "retry_in_ms": state.retry_in_ms,
        "server": server,
        "since_ms": time.time() * 1000,
        "attempts": state.attempts,
    }


class PageModules:
    """Python files that pages brought along: each is fetched and imported once, whoever asks."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tabrelay-"))
        self._loads: dict[str, asyncio.Task[str | None]] = {}

    async def load(self, url: str) -> str | None:
        """Import the file behind a URL; returns what went wrong. A file that failed is tried again when asked for."""
        if url not in self._loads and len(self._loads) >= MOST_MODULES:
            return f"At most {MOST_MODULES} files are loaded into one worker."
        if url not in self._loads:
            self._loads[url] = asyncio.get_running_loop().create_task(self._load(url))
        problem = await self._loads[url]
        if problem is not None:
            self._loads.pop(url, None)
        return problem

    async def _load(self, url: str) -> str | None:
        try:
            source = await fetch_text(url, MODULE_TIMEOUT_S)
            self._import(url, source)
        except (Exception, SystemExit) as error:
            report(error, f"{url} could not be loaded")
            return f"{type(error).__name__}: {error}"
        return None

    def _import(self, url: str, source: str) -> None:
        # The same URL has the same name every time, so that a second try replaces the tools of the first.
        name = "page_" + re.sub(r"\W+", "_", url.partition("://")[2].partition("?")[0].removesuffix(".py"))
        path = self._folder / f"{name}.py"
        path.write_text(source)
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise


def _report_bug(error: Exception) -> None:
    # A dial that failed is part of the state that the pages are told.
    if not isinstance(error, DialError):
        report(error, "the connection to the relay met an error")


def _defer(function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(COALESCE_S, function)


def _later(delay_ms: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_ms / 1000, function)
