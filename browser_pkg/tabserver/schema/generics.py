"""Resolution of annotations: string annotations become types, and type variables are substituted.

Which types have a JSON form is decided in `types`.
"""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from .shapes import SchemaError


def resolve(owner: Any) -> dict[str, Any]:
    """The annotations of a function or class as types, whether they were written as strings or not."""
    try:
        return typing.get_type_hints(owner, include_extras=True)
    except NameError as error:
        name = getattr(owner, "__qualname__", None) or str(owner)
        raise SchemaError(
            f"{name}: annotation {error.name!r} can't be found; define or import it at the top of the module, "
            "outside `if TYPE_CHECKING`"
        ) from None


def parameters_of(hint: Any) -> dict[Any, Any]:
    """The types of the type variables of a generic class or alias in `hint`, and in its base classes."""
    origin = typing.get_origin(hint) or hint
    parameters: tuple[Any, ...] = getattr(origin, "__parameters__", ()) or getattr(origin, "__type_params__", ())
    given = dict(zip(parameters, typing.get_args(hint), strict=False))
    for base in getattr(origin, "__orig_bases__", ()):
        if typing.get_origin(base) not in (None, typing.Generic, typing.Protocol):
            given = {name: fill(one, given) for name, one in parameters_of(base).items()} | given
    return given


def fill(hint: Any, given: Mapping[Any, Any]) -> Any:
    """A type with its type variables substituted; unknown ones stay."""
    if isinstance(hint, typing.TypeVar):
        return given.get(hint, hint)
    free = () if isinstance(hint, type) else getattr(hint, "__parameters__", ())
    if not given or not free:
        return hint
    return hint[tuple(given.get(parameter, parameter) for parameter in free)]
