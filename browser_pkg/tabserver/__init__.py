"""Tabserver: the browser half of Tabrelay. A page or worker declares tools here, and MCP clients call them.

    from tabserver import Context, tool

The names below are looked up when they are first used. So importing `tabserver.wire`, which the relay does too, loads
nothing else of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .schema import SchemaError
    from .tools import Context, Toolbox, default_toolbox, tool

__all__ = ["Context", "SchemaError", "Toolbox", "default_toolbox", "tool"]

_HOMES = {
    "Context": ".tools",
    "SchemaError": ".schema",
    "Toolbox": ".tools",
    "default_toolbox": ".tools",
    "tool": ".tools",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
