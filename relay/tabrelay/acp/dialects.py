"""Dialects of MCP over ACP: the method names and parameters of the four forms that the draft has had.

G1, G2: `_mcp/…`, for servers declared by an `acp:` URL. G3: `mcp/…`, one connection for each client. G4: no
connections, one envelope for each request of MCP 2026-07-28. Each dialect is one value; no other module contains these
names. Which dialect an editor uses is detected in `editor_connection`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.acp import json_edit
from tabrelay.acp.declarations import DeclaredServer

SESSION: Final = "tabrelay/sessionId"
"""The member of `_meta` with the session of a message, for dialects that have no field for it."""

# Error codes of the envelope, as opposed to those of the MCP message inside.
INVALID: Final = -32602
CANCELLED: Final = -32800
LIMIT: Final = -33000
UNAVAILABLE: Final = -33001
FAILED: Final = -33002
MAX_ACTIVE: Final = 64


@dataclass(frozen=True, slots=True)
class Dialect:
    name: str
    connect: str
    request: str
    notification: str
    disconnect: str
    is_disconnect_answered: bool = False
    has_session: bool = False

    def connect_params(self, declared: DeclaredServer, session: str | None) -> str:
        if self.connect.startswith("_"):
            params: dict[str, Any] = {"acp_url": declared.url}
            if self.has_session:
                params["session_id"] = session
        else:
            params = {"serverId": declared.bare}
            if declared.key != "serverId":
                params["acpId"] = declared.bare
        return json.dumps(params | session_meta(session))

    def message_params(self, connection: str, method: str, params: str | None, session: str | None) -> str:
        about = json.dumps({SESSION: session}) if session is not None else None
        parts = {"connectionId": json.dumps(connection), "method": json.dumps(method), "params": params, "_meta": about}
        return json_edit.build(parts)

    def disconnect_params(self, connection: str) -> str:
        return json.dumps({"connection_id" if self.disconnect.startswith("_") else "connectionId": connection})


G1: Final = Dialect("g1", "_mcp/connect", "_mcp/request", "_mcp/notification", "_mcp/disconnect", has_session=True)
G2: Final = Dialect("g2", "_mcp/connect", "_mcp/message", "_mcp/message", "_mcp/disconnect")
G3: Final = Dialect("g3", "mcp/connect", "mcp/message", "mcp/message", "mcp/disconnect", is_disconnect_answered=True)
G4: Final = Dialect("g4", "", "mcp/message", "mcp/message", "")
DIALECTS: Final[Mapping[str, Dialect]] = {one.name: one for one in (G1, G2, G3, G4)}

CONNECTS: Final = frozenset({"_mcp/connect", "mcp/connect"})
MESSAGES: Final = frozenset({"_mcp/request", "_mcp/notification", "_mcp/message", "mcp/message"})
DISCONNECTS: Final = frozenset({"_mcp/disconnect", "mcp/disconnect"})
METHODS: Final = CONNECTS | MESSAGES | DISCONNECTS


def session_meta(session: str | None) -> dict[str, Any]:
    return {} if session is None else {"_meta": {SESSION: session}}


def connection_of(params: Mapping[str, Any]) -> str | None:
    """The connection that a message names, in either spelling."""
    found = params.get("connectionId", params.get("connection_id"))
    return found if isinstance(found, str) else None


def server_of(params: Mapping[str, Any]) -> str | None:
    """The server that a `connect` or an envelope names, with the `acp:` scheme if it was declared by URL."""
    for key in ("serverId", "acpId", "acp_url", "acp_id"):
        if isinstance(params.get(key), str):
            return str(params[key])
    return None
