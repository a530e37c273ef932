"""Era negotiation with an upstream: `server/discover` first, then `initialize`.

A server that does not answer `server/discover` as a modern one gets `initialize`. A server that started too slowly to
answer the first request may be modern all the same, and refuse the second: then it gets `server/discover` again. No
I/O: requests go through a `HandshakeChannel`.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Protocol

from mcp.shared.exceptions import MCPError

from tabrelay import __version__, mcp_headers
from tabrelay.config.specs import EraChoice
from tabrelay.payloads.list_checks import read_server_description
from tabrelay.peers.upstreams.faults import ConnectionFault, UpstreamFault
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era

PROBE_S: Final = 5.0

CLIENT: Final = {"name": "tabrelay", "version": __version__}
# All client capabilities, for a session that callers share: the callers are not known yet, and a server requests only
# what its client has declared. For a caller without the capability, the relay answers with an error.
ALL_CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
}


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """Client info and capabilities that are sent to a server of the handshake era."""

    client: dict[str, Any]
    capabilities: dict[str, Any]


class HandshakeChannel(Protocol):
    """The part of a connection that the handshake needs."""

    async def request(
        self, method: str, params: dict[str, Any], *, headers: dict[str, str] | None = None, may_cancel: bool = True
    ) -> dict[str, Any]: ...

    async def notify(self, method: str, params: None = None, headers: dict[str, str] | None = None) -> None: ...


@dataclass(frozen=True, slots=True)
class ServerAbout:
    """A server's answer to the handshake. `result` has the form of its era: of `initialize`, or of
    `server/discover`."""

    era: Era
    version: str
    result: dict[str, Any]


async def negotiate(
    channel: HandshakeChannel, choice: EraChoice, identity: ClientIdentity | None = None, *, probe_s: float = PROBE_S
) -> ServerAbout:
    """Raises ConnectionFault, with a text for users, if there is no common version."""
    identity = identity or ClientIdentity(CLIENT, {})
    if choice == "legacy":
        return await _initialize(channel, identity)
    try:
        found = await _discover(channel, None if choice == "modern" else probe_s)
    except MCPError as error:
        if choice == "modern" or _is_modern_only(error):
            raise _refused(error) from None
        found = None
    if found is not None:
        return found
    if choice == "modern":
        raise ConnectionFault(UpstreamFault("it does not support MCP 2026-07-28, which its configuration requires"))
    try:
        return await _initialize(channel, identity)
    except MCPError as error:
        # It was too slow to answer the first request, and that request has fixed its era.
        again = await _discover(channel, None) if error.code == jsonrpc.UNSUPPORTED_VERSION else None
        if again is None:
            raise _refused(error) from None
        return again


async def _discover(channel: HandshakeChannel, timeout_s: float | None) -> ServerAbout | None:
    """None if the answer is not that of a modern server. Raises the server's error."""
    version = eras.MODERN_VERSIONS[0]
    params = {"_meta": request_meta(version)}
    try:
        async with asyncio.timeout(timeout_s):
            headers = {mcp_headers.PROTOCOL_VERSION: version, mcp_headers.METHOD: methods.SERVER_DISCOVER}
            result = await channel.request(methods.SERVER_DISCOVER, params, headers=headers)
    except TimeoutError:
        return None
    except ConnectionFault as lost:
        # An HTTP error status for an unknown request does not identify the era. A lost connection is a failure.
        if lost.fault.ends_connection or lost.fault.status in (None, 401, 403) or (lost.fault.status or 0) >= 500:
            raise
        return None
    supported = result.get("supportedVersions")
    known = [known for known in eras.MODERN_VERSIONS if isinstance(supported, list) and known in supported]
    return ServerAbout(Era.MODERN, known[0], read_server_description(result)) if known else None


def request_meta(version: str, capabilities: dict[str, Any] | None = None) -> dict[str, Any]:
    """The `_meta` of a modern request that the relay itself makes."""
    return {eras.META_VERSION: version, eras.META_CLIENT: CLIENT, eras.META_CAPABILITIES: capabilities or {}}


def _is_modern_only(error: MCPError) -> bool:
    """Does it refuse our version and name only other modern ones? Then `initialize` would not help."""
    data = error.error.data
    supported = data.get("supported") if isinstance(data, dict) else None
    if error.code != jsonrpc.UNSUPPORTED_VERSION or not isinstance(supported, list):
        return False
    return not any(version in eras.LEGACY_VERSIONS for version in supported)


async def _initialize(channel: HandshakeChannel, identity: ClientIdentity) -> ServerAbout:
    params = {
        "protocolVersion": eras.NEWEST_LEGACY,
        "capabilities": identity.capabilities,
        "clientInfo": identity.client,
    }
    result = await channel.request(methods.INITIALIZE, params, may_cancel=False)
    version = result.get("protocolVersion")
    if version not in eras.LEGACY_VERSIONS:
        raise ConnectionFault(UpstreamFault(f"it uses MCP {str(version)[:40]!r}, which this relay does not support"))
    await channel.notify(methods.INITIALIZED, headers={mcp_headers.PROTOCOL_VERSION: version})
    return ServerAbout(Era.LEGACY, version, read_server_description(result))


def _refused(error: MCPError) -> ConnectionFault:
    return ConnectionFault(UpstreamFault(f"it refused the handshake: MCP error {error.code}: {error.error.message}"))
