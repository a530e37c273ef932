"""Composition root of the shared worker: connects the ports of pages to the hub, and the hub to one server's link.

worker.js calls `start` when Python is loaded. One worker serves one server name: that of the first tab. Everything that
needs a browser API comes from `browser`. This module contains no rule about tabs, calls or MCP.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from ..browser.clock import now_s
from ..browser.file_fetcher import FileFetcher
from ..browser.package_installer import RelayPackages
from ..browser.python_bridge import Port, PythonBridge, make_shared_buffer, report
from ..browser.websocket import Dialer
from ..handlers.failures import handler_failures
from ..handlers.toolbox import default_toolbox
from ..timing import Timing
from ..transport.reconnect import TransportState
from ..wire.errors import ServerNameError
from ..wire.names import check_instance
from .module_host import ModuleHost
from .module_runtime import ModuleRuntime
from .output_streams import replace_streams
from .packages import Packages
from .page_console import PageConsole
from .page_modules import PageModules
from .run_python import offer_run_python
from .service import Service, describe_state
from .snapshot_reset import reset_after_snapshot

MODULE_TIMEOUT_S: Final = 10.0


def start(bridge: PythonBridge, relay: str, build: str, version: str) -> Callable[[Any], None]:
    """Start the worker and return the function that accepts a page's port."""
    reset_after_snapshot()
    return Worker(bridge, relay, build, version).accept


class Worker:
    """All tabs of one server in this browser. The link is created when the first tab attaches with a server name."""

    def __init__(self, bridge: PythonBridge, relay: str, build: str, version: str) -> None:
        self._bridge, self._shared_buffer = bridge, make_shared_buffer(bridge)
        dialer = partial(Dialer, bridge, self._shared_buffer, relay)
        self._new_service = partial(Service, bridge=bridge, new_dialer=dialer, build=build, version=version)
        self._token = ""
        installer = RelayPackages(bridge, relay, lambda: self._token)
        self._packages = Packages(installer, self._broadcast)
        modules = PageModules(FileFetcher(MODULE_TIMEOUT_S), ModuleRuntime(default_toolbox), self._packages, report)
        self._modules = ModuleHost(
            modules, broadcast=self._broadcast, is_visible=self._is_visible, now_s=now_s, report=report
        )
        self._console = PageConsole(_later)
        handler_failures.listen(partial(self._console.report, "error"), self._packages.advice_after)
        replace_streams(self._console.printed)
        self._service: Service | None = None
        self._has_run_python = False
        self._tasks: set[asyncio.Task[None]] = set()

    def accept(self, js_port: Any) -> None:
        port = Port(self._bridge, self._shared_buffer, js_port)
        port.listen(partial(self._receive, port), partial(self._receive_result, port))

    def _receive_result(self, port: Port, call: str, json: str, is_plain: bool) -> None:
        if self._service is not None:
            self._service.hub.receive_result(port, call, json, is_plain)

    def _receive(self, port: Port, message: dict[str, Any]) -> None:
        kind, service = message["t"], self._service
        if kind == "attach":
            self._attach(port, message)
        elif service is None:
            return  # no page has attached yet
        elif kind == "detach":
            self._detach(port, returns=bool(message.get("returns")), is_expected=bool(message.get("expected")))
        elif kind == "token":
            self._use_token(service, message["token"])
        elif kind == "retry":
            self._run(service.retry())
        elif kind == "stop":
            self._run(service.stop())
        elif kind == "interrupt":
            service.interrupt()
        else:
            service.hub.receive(port, message)
            if kind == "tab" and message.get("visible"):
                service.retry_if_waiting()
                self._modules.turned_to()

    def _attach(self, port: Port, message: dict[str, Any]) -> None:
        service = self._service
        if message.get("readsText"):
            port.use_text()
        port.reads_requests = message.get("readsRequests") is True
        if service is None:
            # One worker has one timing: that of the first tab.
            timing = Timing.read(message.get("timing") or {})
            try:
                service = self._service = self._new_service(message["server"], timing, _instance(message))
            except ServerNameError as error:
                port.send(describe_state(TransportState("stopped", "forbidden", str(error)), message["server"]))
                return
        has_tabs = bool(service.hub.tabs)
        port.watch(message["lock"], partial(self._detach, port))
        service.hub.attach(port, message["tab"])
        if wanted := message.get("runPython"):
            self._offer_run_python(port, wanted)
        port.send(service.state)
        self._run(self._begin(service, port, message, is_first=not has_tabs))

    def _offer_run_python(self, port: Port, wanted: dict[str, Any]) -> None:
        """One worker offers the tool once, with the options of the first page that asks for it."""
        if self._has_run_python:
            return
        name = wanted.get("name", "run_python")
        try:
            offer_run_python(
                name=name,
                timeout_s=wanted["timeoutMs"] / 1000,
                max_output=wanted["maxOutput"],
                install=self._packages.load,
            )
            self._has_run_python = True
        except (TypeError, ValueError) as error:
            port.send({"t": "refused", "kind": "tools", "name": str(name), "message": str(error)})

    async def _begin(self, service: Service, port: Port, message: dict[str, Any], *, is_first: bool) -> None:
        """`is_first`: no other page is attached."""
        self._use_token(service, message["token"])
        await self._packages.require(message.get("packages") or ())
        # Load the modules before the link opens: the first caller must not see half of the tools.
        self._console.attach(port, message["modules"], port.send)
        await self._modules.attach(port, message["modules"], port.send, is_dev=message.get("dev") is True)
        self._console.check_tools(default_toolbox.tools())
        # A client may ask for a task of an earlier worker as soon as the link is open.
        await service.restore_tasks()
        # Do not connect if the page left in the meantime.
        if service.hub.tabs:
            await service.start(message["token"])
            if is_first:
                service.retry_if_displaced()

    def _use_token(self, service: Service, token: str) -> None:
        self._token = token or self._token
        service.use_token(token)

    def _detach(self, port: Port, *, returns: bool = False, is_expected: bool = False) -> None:
        service = self._service
        self._modules.detach(port)
        self._console.detach(port)
        if service is not None:
            service.hub.detach(port, returns=returns, is_expected=is_expected)
            if not service.hub.tabs:
                self._run(service.stop_dialing())

    def _broadcast(self, message: dict[str, Any]) -> None:
        if message["t"] == "module_loaded":
            self._console.check_tools(default_toolbox.tools())
        if self._service is not None:
            self._service.hub.broadcast(message)

    def _is_visible(self) -> bool:
        return self._service is not None and any(tab.is_visible for tab in self._service.hub.tabs)

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        # The event loop holds tasks by weak references only.
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            report(error, "a task of the worker failed")


def _instance(message: dict[str, Any]) -> str | None:
    given = message.get("instance")
    return check_instance(given) if isinstance(given, str) and given else None


def _later(delay_s: float, function: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_later(delay_s, function)
