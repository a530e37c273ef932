"""Argument completion for prompts and resource templates (`completion/complete`).

A completer is a list of values, filtered by the typed prefix, or a function of the typed text (and, with a second
parameter, of the other arguments). Arguments with a Literal or Enum type need none. Requests are read in `mcp`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from ..rpc import Refusal
from ..schema.shapes import SchemaError
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from .context import Cancel, Done, Outcome
from .execute import run
from .signature import Signature, choices

Completer = Sequence[str] | Callable[..., Any]

# MCP: at most 100 values in one result.
MOST: Final = 100


class Completions:
    """The completers of one prompt or template, by argument."""

    def __init__(self, owner: str, signature: Signature, given: Mapping[str, Completer] | None) -> None:
        self._owner = owner
        self._names = list(signature.properties)
        own = {name: choices(prop.shape) for name, prop in signature.properties.items()}
        self._completers: dict[str, Completer] = {name: known for name, known in own.items() if known}
        for name, completer in (given or {}).items():
            if name not in self._names:
                raise SchemaError(f"{owner}: complete has {name!r}, which is none of its arguments")
            self._completers[name] = completer

    def start(self, name: str, typed: str, others: Mapping[str, str], done: Done) -> Cancel:
        if name not in self._names:
            raise Refusal(INVALID_PARAMS, f'{self._owner} has no argument "{name}"')
        completer = self._completers.get(name, ())
        if not callable(completer):
            return run("completion", lambda: _beginning_with(typed, completer), _shape, _fail, done)
        arguments = (typed, others) if _takes_two(completer) else (typed,)
        return run("completion", lambda: completer(*arguments), _shape, _fail, done)


def _takes_two(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind("", {})
    except TypeError:
        return False
    return True


def _beginning_with(typed: str, values: Iterable[str]) -> list[str]:
    return [value for value in values if value.casefold().startswith(typed.casefold())]


def _shape(value: Any) -> Outcome:
    values = [str(item) for item in value or ()]
    return {"completion": {"values": values[:MOST], "total": len(values), "hasMore": len(values) > MOST}}


def _fail(error: BaseException) -> Outcome:
    return error if isinstance(error, Refusal) else Refusal(INTERNAL_ERROR, f"{type(error).__name__}: {error}")
