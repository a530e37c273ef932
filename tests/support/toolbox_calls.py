"""Declares a function as a tool, and calls it as a client would, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tabserver.handlers.context import Outcome, Result
from tabserver.handlers.signature import InvalidArguments
from tabserver.handlers.toolbox import Toolbox
from tabserver.handlers.tools import Tool, declare
from tests.support.fake_request import RecordingRequest


def boxed(function: Callable[..., Any]) -> Toolbox:
    box = Toolbox()
    box.add(declare(function, name="t"))
    return box


def schema_of(hint: Any) -> Any:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": hint}
    return declare(f).description["inputSchema"]["properties"]["x"]


def read(hint: Any, value: Any) -> Any:
    def f(x: Any) -> None: ...

    f.__annotations__ = {"x": hint}
    return declare(f).read({"x": value})["x"]


def faults(function: Callable[..., Any] | Tool, **arguments: Any) -> str:
    with pytest.raises(InvalidArguments) as caught:
        (function if isinstance(function, Tool) else declare(function)).read(arguments)
    return str(caught.value)


def call(box: Toolbox, **arguments: Any) -> Result:
    results: list[Outcome] = []
    box.call("t", arguments, RecordingRequest(), results.append)
    (result,) = results
    assert isinstance(result, dict)
    return result
