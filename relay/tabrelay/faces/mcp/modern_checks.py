"""Validation of a modern (2026-07-28) request: headers against body, required `_meta` fields, protocol version.

The checks run in a fixed order and the first failure decides the error: that order is part of the contract. Each check
reads the header block and the body, and raises BadRequest. The table of HTTP statuses for JSON-RPC error codes is here
too. Pure: sends nothing and starts no call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tabrelay import mcp_headers
from tabrelay.calls.calls import Reply
from tabrelay.errors import BadRequest
from tabrelay.http.headers import RequestHeaders
from tabrelay.http.param_headers import decode, mismatch
from tabrelay.routing.entry import ServerEntry
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.frames import Caller

if TYPE_CHECKING:
    from tabrelay.faces.mcp.modern import ModernOwner

NOT_REUSABLE: Final = -1
REMOVED: Final = frozenset(
    {
        methods.INITIALIZE,
        methods.PING,
        methods.LOGGING_SET_LEVEL,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
        methods.TASKS_LIST,
        methods.TASKS_RESULT,
    }
)
STATUS: Final = {
    jsonrpc.METHOD_NOT_FOUND: 404,
    jsonrpc.PARSE_ERROR: 400,
    jsonrpc.INVALID_REQUEST: 400,
    jsonrpc.HEADER_MISMATCH: 400,
    jsonrpc.MISSING_CAPABILITY: 400,
    jsonrpc.UNSUPPORTED_VERSION: 400,
}


@dataclass(frozen=True, slots=True)
class VerifiedEnvelope:
    """The checked envelope of a request. Another tool call with the same header block and an equal envelope needs no
    further check: none could fail, and its caller is the same."""

    name: str | None
    # The members of `_meta` that describe the client.
    meta: dict[str, Any]
    # Number of the catalogue in which the tool has no argument to repeat in a header; NOT_REUSABLE for other requests.
    catalogue: int | None
    caller: Caller
    owner: ModernOwner

    def holds_for(self, message: Any, entry: ServerEntry) -> bool:
        """`entry`: of the server that the request is for."""
        catalogue = entry.catalogue
        if self.catalogue != (None if catalogue is None else catalogue.number) or self.owner.server != entry.name:
            return False
        if type(message) is not dict or message.get("method") != methods.TOOLS_CALL or message.get("jsonrpc") != "2.0":
            return False
        params = message.get("params")
        # defence: a call like the one before it: another tool
        if type(params) is not dict or params.get("name") != self.name:
            return False
        meta, id = params.get("_meta"), message.get("id")
        # defence: the length of an id, with the header of the call before
        if type(id) is not int and (type(id) is not str or len(id) > jsonrpc.MAX_ID):
            return False
        # Nearly all requests have the same members.
        return meta == self.meta or (type(meta) is dict and self._describes_same_client(meta))

    def _describes_same_client(self, meta: dict[str, Any]) -> bool:
        """Is it the same client, with other members beside its description?"""
        return (
            meta.get(eras.META_VERSION) == self.meta.get(eras.META_VERSION)
            # defence: a call like the one before it: another client
            and meta.get(eras.META_CLIENT) == self.meta.get(eras.META_CLIENT)
            and meta.get(eras.META_CAPABILITIES) == self.meta.get(eras.META_CAPABILITIES)
            and ((token := meta.get("progressToken")) is None or jsonrpc.is_request_id(token))
        )


def status_of(reply: Reply) -> int:
    return STATUS.get(reply.error_code, 200) if reply.error_code is not None else 200


def check_notification(request: RequestHeaders) -> None:
    version = request.first.get(mcp_headers.RAW_PROTOCOL_VERSION)
    if version is not None and version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)


def check_request(request: RequestHeaders, message: dict[str, Any]) -> dict[str, Any]:
    """Run all checks in order; the first failure raises. Returns the envelope (`params._meta`). The arguments that a
    tool call repeats in headers are not checked here."""
    for header in (mcp_headers.RAW_PROTOCOL_VERSION, mcp_headers.RAW_METHOD, mcp_headers.RAW_NAME):
        if header in request.repeated:
            raise mismatch(f"The header {header.decode()} was sent more than once.")
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict):
        named = request.first.get(mcp_headers.RAW_PROTOCOL_VERSION)
        strange = (
            "" if named is None or named in eras.MODERN_VERSIONS else f", and {named!r} is not a supported version"
        )
        raise _incomplete(f"params._meta is missing{strange}")
    version = meta.get(eras.META_VERSION)
    if not isinstance(version, str):
        raise _incomplete(f"params._meta has no {eras.META_VERSION}")
    if not isinstance(meta.get(eras.META_CAPABILITIES), dict):
        raise _incomplete(f"params._meta has no {eras.META_CAPABILITIES}")
    _compare(request, mcp_headers.RAW_PROTOCOL_VERSION, version)
    _compare(request, mcp_headers.RAW_METHOD, message["method"])
    assert isinstance(params, dict)
    named_by = mcp_headers.NAMED_BY.get(message["method"])
    if named_by is not None:
        name = params.get(named_by)
        if not isinstance(name, str):
            raise _incomplete(f"params.{named_by} is missing")
        _compare(request, mcp_headers.RAW_NAME, name, encoded=True)
    if version not in eras.MODERN_VERSIONS:
        raise _unsupported(version)
    if message["method"] in REMOVED:
        raise BadRequest(
            f'"{message["method"]}" is not a method of {version}.',
            status=404,
            code=jsonrpc.METHOD_NOT_FOUND,
            reason="method_not_found",
        )
    return meta


def matching_meta(request: RequestHeaders, message: dict[str, Any]) -> dict[str, Any] | None:
    """The envelope of a tool call whose headers equal the values in its body: only the check of repeated arguments
    could still fail. None for all other requests."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    if not isinstance(meta, dict) or message["method"] != methods.TOOLS_CALL or request.repeated:
        return None
    assert isinstance(params, dict)
    version, name = meta.get(eras.META_VERSION), params.get("name")
    is_equal = (
        version in eras.MODERN_VERSIONS
        and request.first.get(mcp_headers.RAW_PROTOCOL_VERSION) == version
        and request.first.get(mcp_headers.RAW_METHOD) == methods.TOOLS_CALL
        and isinstance(name, str)
        and request.first.get(mcp_headers.RAW_NAME) == name
        and name.isascii()
        and name.isprintable()
        and not name.startswith("=?")  # an encoded word, which may decode to another name
        and isinstance(meta.get(eras.META_CAPABILITIES), dict)
    )
    return meta if is_equal else None


def _compare(request: RequestHeaders, header: bytes, expected: str, encoded: bool = False) -> None:
    value = request.first.get(header)
    if value is None:
        raise mismatch(f"The header {header.decode()} is missing.")
    if encoded:
        value = decode(header.decode(), value)
    if value != expected:
        raise mismatch(f"The header {header.decode()} does not match the body.")


def _incomplete(text: str) -> BadRequest:
    return BadRequest(f"The request is incomplete: {text}.", code=jsonrpc.INVALID_PARAMS, reason="invalid_params")


def _unsupported(version: str) -> BadRequest:
    return BadRequest(
        f"Protocol version {version!r} is not supported here.",
        code=jsonrpc.UNSUPPORTED_VERSION,
        reason="unsupported_version",
        extra={"supported": list(eras.MODERN_VERSIONS), "requested": version},
    )
