"""The border between Python and JavaScript: the part of Pyodide's interface that tabserver uses."""

from collections.abc import Callable, Iterable
from typing import Any, Final

class JsProxy:
    """Any JavaScript object; what it can do is known at run time only."""

    def to_py(self, *, depth: int = ...) -> Any: ...
    def __getattr__(self, name: str) -> Any: ...

class JsDoubleProxy(JsProxy):
    """A Python object as JavaScript holds it: `destroy` when JavaScript lets go."""

    def destroy(self) -> None: ...
    def unwrap(self) -> Any: ...

class JsException(JsProxy, Exception):
    name: str
    message: str
    stack: str

class JsNull:
    """JavaScript's null. Falsy, and not None."""

    def __bool__(self) -> bool: ...

jsnull: Final[JsNull]

def create_proxy(value: Any, /, *, capture_this: bool = ..., roundtrip: bool = ...) -> JsDoubleProxy: ...
def create_once_callable(value: Callable[..., Any], /) -> JsDoubleProxy: ...
def to_js(
    value: Any,
    /,
    *,
    depth: int = ...,
    create_pyproxies: bool = ...,
    dict_converter: Callable[[Iterable[Any]], Any] | None = ...,
) -> Any: ...
