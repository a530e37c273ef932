"""Tabserver, the browser half of Tabrelay: Python API for pages and workers that declare tools, resources and prompts.

    from tabserver import Context, prompt, resource, tool

The names below are imported when they are first used. So importing `tabserver.wire`, which the relay does too, loads
nothing else of this package. Names that are not in `__all__` are internal.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .handlers.apps import app
    from .handlers.content import Audio, Embedded, Image, Link, Message, Text
    from .handlers.context import Context
    from .handlers.hints import Hints
    from .handlers.questions import (
        ClientError,
        Declined,
        Elicit,
        Elicited,
        ElicitUrl,
        InputRequired,
        InvalidAnswer,
        ListRoots,
        MissingCapability,
        Question,
        Root,
        Sample,
        Sampled,
    )
    from .handlers.resources import ResourceNotFound
    from .handlers.server_description import describe_server
    from .handlers.skills import skill
    from .handlers.toolbox import Toolbox, default_toolbox, prompt, resource, resource_updated, tool
    from .handlers.tools import ToolError, ToolResult
    from .rpc import Refusal
    from .schema.bounds import Bounds
    from .schema.shapes import SchemaError
    from .worker.run_python import offer_run_python

_NAMES = {
    ".schema.bounds": ("Bounds",),
    ".handlers.apps": ("app",),
    ".handlers.hints": ("Hints",),
    ".handlers.server_description": ("describe_server",),
    ".handlers.skills": ("skill",),
    ".handlers.content": ("Audio", "Embedded", "Image", "Link", "Message", "Text"),
    ".handlers.context": ("Context",),
    ".rpc": ("Refusal",),
    ".worker.run_python": ("offer_run_python",),
    ".handlers.questions": (
        "ClientError",
        "Declined",
        "Elicit",
        "ElicitUrl",
        "Elicited",
        "InputRequired",
        "InvalidAnswer",
        "ListRoots",
        "MissingCapability",
        "Question",
        "Root",
        "Sample",
        "Sampled",
    ),
    ".handlers.resources": ("ResourceNotFound",),
    ".schema.shapes": ("SchemaError",),
    ".handlers.toolbox": (
        "Toolbox",
        "default_toolbox",
        "prompt",
        "resource",
        "resource_updated",
        "tool",
    ),
    ".handlers.tools": ("ToolError", "ToolResult"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Audio",
    "Bounds",
    "ClientError",
    "Context",
    "Declined",
    "Elicit",
    "ElicitUrl",
    "Elicited",
    "Embedded",
    "Hints",
    "Image",
    "InputRequired",
    "InvalidAnswer",
    "Link",
    "ListRoots",
    "Message",
    "MissingCapability",
    "Question",
    "Refusal",
    "ResourceNotFound",
    "Root",
    "Sample",
    "Sampled",
    "SchemaError",
    "Text",
    "ToolError",
    "ToolResult",
    "Toolbox",
    "app",
    "default_toolbox",
    "describe_server",
    "offer_run_python",
    "prompt",
    "resource",
    "resource_updated",
    "skill",
    "tool",
]


def __getattr__(name: str) -> Any:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(module, __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
