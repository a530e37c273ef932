"""HTTP request headers of a message, by its era.

The protocol's headers override the user's. Pure; the token is added in `outbound`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tabrelay import mcp_headers
from tabrelay.bridge.messages import BridgeMessage
from tabrelay.bridge.session import SessionSnapshot
from tabrelay.bridge.tool_headers import ToolHeaders
from tabrelay.http.param_headers import encode
from tabserver.wire import methods

_BODY: Final = {"content-type": "application/json", "accept": "application/json, text/event-stream"}


def for_post(
    given: Mapping[str, str], message: BridgeMessage, snapshot: SessionSnapshot, params: ToolHeaders
) -> dict[str, str]:
    """`given`: the user's headers, which never override those of the protocol."""
    headers = {**given, **_BODY}
    if message.is_modern:
        return headers | _envelope(message, params)
    if message.method == methods.INITIALIZE:
        # This request negotiates the version and opens the session.
        headers.pop(mcp_headers.PROTOCOL_VERSION, None)
        return headers
    return headers | _place(snapshot)


def for_stream(given: Mapping[str, str], snapshot: SessionSnapshot, last_id: str | None = None) -> dict[str, str]:
    headers = {**given, "accept": "text/event-stream", "cache-control": "no-store", **_place(snapshot)}
    if last_id is not None:
        headers[mcp_headers.LAST_EVENT_ID] = last_id
    return headers


def for_end(given: Mapping[str, str], snapshot: SessionSnapshot) -> dict[str, str]:
    return {**given, **_place(snapshot)}


def _place(snapshot: SessionSnapshot) -> dict[str, str]:
    found = {mcp_headers.SESSION_ID: snapshot.id, mcp_headers.PROTOCOL_VERSION: snapshot.version}
    return {name: value for name, value in found.items() if value is not None}


def _envelope(message: BridgeMessage, params: ToolHeaders) -> dict[str, str]:
    assert message.version is not None
    headers = {mcp_headers.PROTOCOL_VERSION: encode(message.version), mcp_headers.METHOD: encode(message.method or "")}
    name = message.params.get(mcp_headers.NAMED_BY.get(message.method or "", ""))
    if isinstance(name, str):
        headers[mcp_headers.NAME] = encode(name)
    if message.method == methods.TOOLS_CALL:
        headers |= params.headers(message)
    return headers
