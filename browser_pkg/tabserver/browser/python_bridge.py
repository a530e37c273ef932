"""Python's view of `js/worker/python_bridge.js`, and guards for functions that JavaScript calls.

An exception in a listener would vanish in the browser. `guarded` writes it to the worker's console, and the worker
continues. The listeners themselves are in `ports` and `websocket`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import js
from pyodide.ffi import create_proxy

from .shared_buffer import SharedBuffer


class PythonBridge(Protocol):
    """The exports of js/worker/python_bridge.js."""

    def useSharedBuffer(self, memory: Any) -> None: ...
    def listen(self, port: Any, receive: Any, receivePlain: Any) -> None: ...
    def poster(self, port: Any, asText: bool) -> Callable[[str], None]: ...
    def prove(self, relay: str, token: str, signal: Any) -> Any: ...
    def openSocket(
        self, url: str, protocols: Any, signature: str, opened: Any, received: Any, closed: Any, *recorder: Any
    ) -> Any: ...
    def allow(self, port: Any, number: int, channel: str, members: str, meta: str, hasRivals: bool) -> None: ...
    def revoke(self) -> None: ...
    def unrecorded(self) -> str: ...
    def sender(self, socket: Any) -> Callable[[str], int]: ...
    def whenFree(self, name: str, notify: Any) -> Callable[[], None]: ...
    def whenOnline(self, notify: Any) -> None: ...


def report(error: BaseException, while_doing: str) -> None:
    """Write an unexpected exception to the worker's console."""
    import traceback

    js.console.error(f"tabrelay: {while_doing}\n" + "".join(traceback.format_exception(error)))


def guarded(function: Callable[..., None], while_doing: str) -> Callable[..., None]:
    """Wrap a listener so that its exceptions are reported and do not end the worker."""

    def call(*args: Any) -> None:
        try:
            function(*args)
        except Exception as error:
            report(error, while_doing)

    return call


def make_shared_buffer(bridge: PythonBridge) -> SharedBuffer:
    buffer = SharedBuffer()
    bridge.useSharedBuffer(create_proxy(buffer.memory))
    return buffer


def when_online(bridge: PythonBridge, callback: Callable[[], None]) -> None:
    bridge.whenOnline(create_proxy(guarded(callback, "coming online failed")))
