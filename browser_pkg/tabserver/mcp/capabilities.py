"""Capabilities that the server declares, for clients of each protocol version.

The same for all clients at all times: a session asks once, and a tab that opens later may offer any of it.
"""

from __future__ import annotations

from typing import Any, Final

from ..wire.eras import TASKS, TASKS_SINCE
from ..wire.extensions import EXTENSIONS

_SHARED: Final[dict[str, Any]] = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
    "extensions": EXTENSIONS,
}
MODERN_CAPABILITIES: Final = _SHARED | {"extensions": {TASKS: {}} | EXTENSIONS}
_WITH_TASKS: Final = _SHARED | {"tasks": {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}}


def legacy_capabilities(version: str) -> dict[str, Any]:
    return _WITH_TASKS if version >= TASKS_SINCE else _SHARED
