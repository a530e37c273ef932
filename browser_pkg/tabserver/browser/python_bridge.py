"""Python's view of `js/worker/python_bridge.js`: the ports of pages, and guards for functions that JavaScript calls.

An exception in a listener would vanish in the browser. `guarded` writes it to the worker's console, and the worker
continues. Messages of pages arrive as JSON text. A result that needs no check arrives as the call's id and its text,
usually through the shared buffer. What a message means is decided in `tabs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import js
from pyodide.ffi import create_proxy

from .shared_buffer import SharedBuffer
from .values import release_proxies


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
    def packageIndex(self, relay: str, token: str) -> Any: ...
    def installPackage(self, relay: str, token: str, file: str, sha256: str, report: Any) -> Any: ...
    def inDistribution(self, name: str) -> str: ...
    def keepTask(self, server: str, id: str, expires: int, json: str) -> None: ...
    def dropTask(self, server: str, id: str) -> None: ...
    def readTasks(self, server: str, restore: Any) -> Any: ...


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


class Port:
    """One page's MessagePort. `gone` is called once, when the tab whose lock was given to `watch` has ended."""

    reads_requests = False

    def __init__(self, bridge: PythonBridge, buffer: SharedBuffer, port: Any) -> None:
        self._bridge = bridge
        self._buffer = buffer
        self._port = port
        # Kept, because looking it up costs more than calling it.
        self.post = bridge.poster(port, False)
        self._watched: str | None = None
        self._stop_watch: Callable[[], None] = lambda: None
        self._proxies: list[Any] = []

    def listen(
        self, receive: Callable[[dict[str, Any]], None], receive_result: Callable[[str, str, bool], None]
    ) -> None:
        """`receive_result` gets the call, its result as JSON text, and whether that may be passed on unread."""

        def take(text: str) -> None:
            message = json.loads(text)
            if message["t"] == "result":
                receive_result(str(message["call"]), str(message["json"]), False)
            else:
                receive(message)

        def take_plain(text: str | int) -> None:
            call, _, result = (self._buffer.read(text) if isinstance(text, int) else text).partition("\n")
            receive_result(call, result, True)

        proxies = [create_proxy(guarded(each, "a message from a page failed")) for each in (take, take_plain)]
        self._proxies += proxies
        self._bridge.listen(self._port, *proxies)

    def allow(self, number: int, channel: str, members: str, meta: str, has_rivals: bool) -> None:
        self._bridge.allow(self._port, number, channel, members, meta, has_rivals)

    def use_text(self) -> None:
        """The page reads JSON text, which costs both sides less than an object does."""
        self.post = self._bridge.poster(self._port, True)

    def send(self, message: Mapping[str, Any]) -> None:
        self.post(json.dumps(message))

    def watch(self, lock: str, gone: Callable[[], None]) -> None:
        """Detect the end of the tab: the browser then grants us the lock that the tab held."""
        if lock == self._watched:
            return
        self._stop_watch()
        self._watched = lock

        def ended() -> None:
            self._close()
            gone()

        proxy = create_proxy(guarded(ended, "a tab's end could not be handled"))
        self._proxies.append(proxy)
        self._stop_watch = self._bridge.whenFree(lock, proxy)

    def _close(self) -> None:
        self._port.onmessage = None
        self._port.close()
        release_proxies(self._proxies)
