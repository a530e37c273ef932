"""MCP protocol versions, the two eras they fall into, and the `_meta` keys of the modern one."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class Era(StrEnum):
    """Modern requests carry their own envelope; legacy ones live in a session opened by `initialize`."""

    MODERN = "modern"
    LEGACY = "legacy"


MODERN_VERSIONS: Final = ("2026-07-28",)
LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
NEWEST_LEGACY: Final = LEGACY_VERSIONS[0]
BATCH_VERSION: Final = "2025-03-26"  # the one that had batches; the next took them out again

META_PREFIX: Final = "io.modelcontextprotocol/"
META_VERSION: Final = META_PREFIX + "protocolVersion"
META_CLIENT: Final = META_PREFIX + "clientInfo"
META_CAPABILITIES: Final = META_PREFIX + "clientCapabilities"
META_LOG_LEVEL: Final = META_PREFIX + "logLevel"
META_SERVER_INFO: Final = META_PREFIX + "serverInfo"
META_SUBSCRIPTION: Final = META_PREFIX + "subscriptionId"


def negotiate(requested: object) -> str:
    """The version that answers a legacy `initialize`: the one asked for if we speak it, else our newest legacy one."""
    return requested if isinstance(requested, str) and requested in LEGACY_VERSIONS else NEWEST_LEGACY
