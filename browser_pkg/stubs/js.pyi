"""The global scope of JavaScript, as Pyodide shows it: the names that tabserver touches."""

from collections.abc import Awaitable
from typing import Any

class _Console:
    def debug(self, *values: object) -> None: ...
    def error(self, *values: object) -> None: ...
    def info(self, *values: object) -> None: ...
    def log(self, *values: object) -> None: ...
    def warn(self, *values: object) -> None: ...

class _Location:
    origin: str

class _Performance:
    timeOrigin: float
    def now(self) -> float: ...

class _Date:
    def now(self) -> float: ...
    def parse(self, text: str) -> float: ...

class _Json:
    def parse(self, text: str) -> Any: ...
    def stringify(self, value: Any) -> str: ...

class _Object:
    def fromEntries(self, entries: Any) -> Any: ...

class _Promise:
    def withResolvers(self) -> Any: ...

class _Error:
    def new(self, message: str) -> Any: ...

class _AbortController:
    signal: Any
    def abort(self, reason: object = ...) -> None: ...

class _AbortControllerFactory:
    def new(self) -> _AbortController: ...

class _AbortSignal:
    def timeout(self, delay_ms: float) -> Any: ...

class _BroadcastChannel:
    def postMessage(self, message: Any) -> None: ...
    def addEventListener(self, kind: str, listener: Any) -> None: ...
    def close(self) -> None: ...

class _BroadcastChannelFactory:
    def new(self, name: str) -> _BroadcastChannel: ...

console: _Console
performance: _Performance
location: _Location
Date: _Date
JSON: _Json
Object: _Object
Promise: _Promise
Error: _Error
AbortController: _AbortControllerFactory
AbortSignal: _AbortSignal
BroadcastChannel: _BroadcastChannelFactory

def fetch(
    resource: str,
    *,
    cache: str = ...,
    headers: Any = ...,
    method: str = ...,
    body: str = ...,
    signal: Any = ...,
) -> Awaitable[Any]: ...
def setTimeout(function: Any, delay_ms: float) -> int: ...
def clearTimeout(timer: int) -> None: ...
