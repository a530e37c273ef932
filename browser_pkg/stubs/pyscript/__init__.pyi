"""PyScript's own module, as far as the pages here use it."""

from collections.abc import Callable
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., object])

def when(event: str, target: Any) -> Callable[[_F], _F]: ...

document: Any
window: Any
