"""The headers of a message, by its era. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tabrelay.bridge.messages import BridgeMessage
from tabrelay.bridge.session import SessionSnapshot
from tabrelay.bridge.tool_headers import ToolHeaders
from tabrelay.http.param_headers import encode

SESSION: Final = "mcp-session-id"
VERSION: Final = "mcp-protocol-version"
LAST_EVENT: Final = "last-event-id"

_BODY: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
# The parameter that names what a request is about.
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}


def for_post(
    given: Mapping[str, str], message: BridgeMessage, ticket: SessionSnapshot, params: ToolHeaders
) -> dict[str, str]:
    """`given`: the user's own, which never stand in the way of those that the protocol needs."""
    headers = {**given, **_BODY}
    if message.is_modern:
        return headers | _envelope(message, params)
    if message.method == "initialize":
        # The version is what this request is about, and the session what comes of it.
        headers.pop(VERSION, None)
        return headers
    return headers | _place(ticket)


def for_stream(given: Mapping[str, str], ticket: SessionSnapshot, last_id: str | None = None) -> dict[str, str]:
    headers = {**given, "accept": "text/event-stream", "cache-control": "no-store", **_place(ticket)}
    if last_id is not None:
        headers[LAST_EVENT] = last_id
    return headers


def for_end(given: Mapping[str, str], ticket: SessionSnapshot) -> dict[str, str]:
    return {**given, **_place(ticket)}


def _place(ticket: SessionSnapshot) -> dict[str, str]:
    found = {SESSION: ticket.id, VERSION: ticket.version}
    return {name: value for name, value in found.items() if value is not None}


def _envelope(message: BridgeMessage, params: ToolHeaders) -> dict[str, str]:
    assert message.version is not None
    headers = {VERSION: encode(message.version), "mcp-method": encode(message.method or "")}
    name = message.params.get(_NAMES.get(message.method or "", ""))
    if isinstance(name, str):
        headers["mcp-name"] = encode(name)
    if message.method == "tools/call":
        headers |= params.headers(message)
    return headers
