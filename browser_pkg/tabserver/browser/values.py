"""Values of JavaScript in Python: conversions, proxies, promises and abort signals.

A proxy is destroyed in a later turn of the event loop, never while JavaScript is calling it. Conversions go through
JSON, so a value arrives as plain data without proxies inside.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import js
from pyodide.ffi import JsException, create_proxy, to_js


def to_javascript(value: Any) -> Any:
    """JSON-like data as a JavaScript value."""
    return js.JSON.parse(json.dumps(value))


def to_python(value: Any) -> Any:
    """A JavaScript value as plain Python data, in which null is None."""
    return json.loads(js.JSON.stringify(value))


def log_error(text: str) -> None:
    """Write a line to the console of this page or worker."""
    js.console.error(text)


def as_object(members: Mapping[str, Any]) -> Any:
    """A JavaScript object whose members are not converted."""
    return js.Object.fromEntries(to_js(list(members.items())))


def persistent_proxy(function: Callable[..., Any]) -> Any:
    """A function that JavaScript may keep and call for as long as the page lives."""
    return create_proxy(function)


def release(*functions: Any) -> None:
    """Release functions of `persistent_proxy` that JavaScript no longer keeps."""
    release_proxies(list(functions))


def release_proxies(proxies: list[Any]) -> None:
    """Empty the list and destroy its proxies, but not while one of them is being called."""
    gone, proxies[:] = proxies[:], []
    asyncio.get_running_loop().call_soon(lambda: [proxy.destroy() for proxy in gone])


class Aborter:
    """An AbortController."""

    def __init__(self) -> None:
        self._controller = js.AbortController.new()
        self.reason: str | None = None

    def abort(self, reason: str) -> None:
        if self.reason is None:
            self.reason = reason
            # The awaited promise is rejected with this value, and Pyodide never resumes a task that awaits a promise
            # rejected with a string.
            # defence: dials that are given up
            self._controller.abort(js.Error.new(reason))

    @property
    def aborted(self) -> bool:
        return bool(self._controller.signal.aborted)

    @property
    def signal(self) -> Any:
        return self._controller.signal


def when_aborted(signal: Any, callback: Callable[[], None]) -> Callable[[], None]:
    """Call `callback` when a signal is aborted; returns the function that ends the watch."""
    proxy = create_proxy(lambda _event: callback())
    signal.addEventListener("abort", proxy)

    def stop() -> None:
        signal.removeEventListener("abort", proxy)
        release_proxies([proxy])

    return stop


class Rejected(Exception):
    """A JavaScript promise was rejected."""

    def __init__(self, name: str, message: str, code: Any, data: Any) -> None:
        super().__init__(message)
        self.name, self.message, self.code, self.data = name, message, code, data


async def result_of(promise: Any) -> Any:
    """The value of a promise as plain Python data; raises Rejected."""
    try:
        return to_python(await promise)
    except JsException as error:
        data = getattr(error, "data", None)
        more = getattr(error, "code", None), None if data is None else to_python(data)
        raise Rejected(error.name, error.message, *more) from None


class Promised:
    """A JavaScript promise that Python resolves or rejects."""

    def __init__(self) -> None:
        self._resolvers = js.Promise.withResolvers()
        self.is_settled = False

    @property
    def promise(self) -> Any:
        return self._resolvers.promise

    def resolve(self, value: Any) -> None:
        """`value`: a JavaScript value, as `to_javascript` returns it."""
        self.is_settled = True
        self._resolvers.resolve(value)

    def reject(self, name: str, message: str, code: int, data: Any) -> None:
        """Reject with an error that client.js recognises as an error of the protocol."""
        self.is_settled = True
        error = js.Error.new(message)
        error.name, error.code, error.isProtocolError = name, code, True
        if data is not None:
            error.data = to_javascript(data)
        self._resolvers.reject(error)
