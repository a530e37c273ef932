"""MCP protocol versions, the two eras they belong to, and the `_meta` keys of the modern era.

The lists are ordered, newest first. How requests of each era are handled is decided in the relay and in `mcp`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Final


class Era(StrEnum):
    """Modern requests carry their own envelope; legacy requests belong to a session opened by `initialize`."""

    MODERN = "modern"
    LEGACY = "legacy"


MODERN_VERSIONS: Final = ("2026-07-28",)
LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
NEWEST_LEGACY: Final = LEGACY_VERSIONS[0]
_TITLE_SINCE: Final = "2025-06-18"
_ICONS_SINCE: Final = "2025-11-25"
BATCH_VERSION: Final = "2025-03-26"  # the only one with batches: 2025-06-18 removed them

META_PREFIX: Final = "io.modelcontextprotocol/"
META_VERSION: Final = META_PREFIX + "protocolVersion"
META_CLIENT: Final = META_PREFIX + "clientInfo"
META_CAPABILITIES: Final = META_PREFIX + "clientCapabilities"
META_LOG_LEVEL: Final = META_PREFIX + "logLevel"
META_SERVER_INFO: Final = META_PREFIX + "serverInfo"
META_SUBSCRIPTION: Final = META_PREFIX + "subscriptionId"
# Extension of the modern era; the handshake version 2025-11-25 has tasks in its core, in another form.
TASKS: Final = META_PREFIX + "tasks"
TASKS_SINCE: Final = "2025-11-25"
# In messages of a handshake session that belong to a task.
META_RELATED_TASK: Final = META_PREFIX + "related-task"


def negotiate(requested: object) -> str:
    """The version in the response to a legacy `initialize`: the requested one if it is known, else the newest legacy
    one."""
    return requested if isinstance(requested, str) and requested in LEGACY_VERSIONS else NEWEST_LEGACY


def server_info_of(info: dict[str, Any], version: str) -> dict[str, Any]:
    """`serverInfo` with the members that this protocol version has: `title` since 2025-06-18, the others since
    2025-11-25."""
    if version >= _ICONS_SINCE:
        return info
    known = ("name", "version", "title") if version >= _TITLE_SINCE else ("name", "version")
    return {name: info[name] for name in known if name in info}
