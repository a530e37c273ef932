"""JSON-RPC message of the bridge: the original bytes with the few fields that the bridge reads.

The bytes are forwarded; the parsed fields are never written back. A message may be a batch. Pure; it validates only
what the bridge depends on, and leaves the rest to the server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import orjson

from tabrelay.payloads import json_spans
from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import LEGACY_VERSIONS, META_VERSION

# Methods that may be sent twice: they only read, or repeat a state. `tools/call` is deliberately not one of them.
REPEATABLE: Final = frozenset(
    {
        methods.INITIALIZE,
        methods.PING,
        methods.SERVER_DISCOVER,
        methods.TOOLS_LIST,
        methods.PROMPTS_LIST,
        methods.PROMPTS_GET,
        methods.RESOURCES_LIST,
        methods.RESOURCES_TEMPLATES_LIST,
        methods.RESOURCES_READ,
        methods.RESOURCES_SUBSCRIBE,
        methods.RESOURCES_UNSUBSCRIBE,
        methods.COMPLETION_COMPLETE,
        methods.LOGGING_SET_LEVEL,
    }
)

Key = tuple[str, Any]


class MessageKind(Enum):
    REQUEST = auto()
    NOTIFICATION = auto()
    RESPONSE = auto()
    BATCH = auto()


class Malformed(Exception):
    """Not a valid message: the code and text of the error response, and the id if it has one."""

    def __init__(self, code: int, text: str, id: Any = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = id


@dataclass(frozen=True, slots=True)
class BridgeMessage:
    """`ids`: of the requests in it, unchanged; each needs one answer."""

    raw: bytes
    kind: MessageKind
    method: str | None
    params: dict[str, Any]
    ids: tuple[Any, ...]
    version: str | None
    """The protocol version in a modern request; None in the handshake era."""

    @property
    def is_modern(self) -> bool:
        return self.version is not None

    @property
    def is_repeatable(self) -> bool:
        """Whether it may be sent again when it is not known whether it arrived."""
        if self.kind is MessageKind.REQUEST:
            return self.method in REPEATABLE
        return self.kind is MessageKind.NOTIFICATION

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key(id) for id in self.ids)


def key(id: Any) -> Key:
    """A key to compare ids by: 1 and True are equal in Python and different in JSON-RPC; 1.0 equals 1, since some
    programs write it so."""
    id = int(id) if isinstance(id, float) and id.is_integer() else id
    # No request has an array or an object as its id: `parse` and `acp.line_reader` refuse it.
    return type(id).__name__, id if not isinstance(id, list | dict) else None


def parse(raw: bytes) -> BridgeMessage:
    """Parses a line of the client. Raises Malformed."""
    try:
        value = load(raw)
    except (ValueError, RecursionError) as error:
        raise Malformed(jsonrpc.PARSE_ERROR, f"This line is not JSON: {error}") from None
    if isinstance(value, list):
        if not value:
            raise Malformed(jsonrpc.INVALID_REQUEST, "An empty array is not a message.")
        parts = [_parse_one(raw, item) for item in value]
        ids = tuple(id for part in parts for id in part.ids)
        return BridgeMessage(raw, MessageKind.BATCH, None, {}, ids, None)
    return _parse_one(raw, value)


def _parse_one(raw: bytes, value: Any) -> BridgeMessage:
    if not isinstance(value, dict):
        raise Malformed(jsonrpc.INVALID_REQUEST, "A message is a JSON object.")
    method = value.get("method")
    if isinstance(method, str):
        params = value.get("params")
        params = params if isinstance(params, dict) else {}
        if "id" in value:
            # defence: the length of an id, in messages of a client to the bridge
            if (flaw := id_flaw(value["id"])) is not None:
                raise Malformed(jsonrpc.INVALID_REQUEST, flaw)
            return BridgeMessage(raw, MessageKind.REQUEST, method, params, (value["id"],), modern_version(params))
        return BridgeMessage(raw, MessageKind.NOTIFICATION, method, params, (), modern_version(params))
    if "id" in value and ("result" in value or "error" in value):
        return BridgeMessage(raw, MessageKind.RESPONSE, None, {}, (), None)
    raise Malformed(jsonrpc.INVALID_REQUEST, "A message has a method, or the result or error of one.", _id(value))


def id_flaw(id: Any) -> str | None:
    """Why an id can't be repeated in responses and tables: it is too long, an array or an object. Other ids that MCP
    forbids, such as a fraction, are refused by the server."""
    return jsonrpc.id_flaw(id) if isinstance(id, str | list | dict) else None


def _id(value: dict[str, Any]) -> Any:
    """The id for the error response: null in place of an id that can't be repeated."""
    id = value.get("id")
    return None if id_flaw(id) is not None else id


def modern_version(params: dict[str, Any]) -> str | None:
    """The protocol version that a modern request names; None in the handshake era."""
    meta = params.get("_meta")
    version = meta.get(META_VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and version not in LEGACY_VERSIONS else None


def make(value: dict[str, Any]) -> BridgeMessage:
    """A message of the bridge itself."""
    return _parse_one(dump(value), value)


def dump(value: Any) -> bytes:
    """One line of JSON. The standard library's writer keeps what orjson can't, such as numbers beyond 64 bits."""
    return json.dumps(value, separators=(",", ":")).encode()


def load(raw: bytes) -> Any:
    """Parses JSON. Raises ValueError, or RecursionError when it is nested too deeply."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # orjson refuses some valid JSON, such as 1e400 or half of a surrogate pair; the receiver decides about that.
        # Decoded here, since json.loads accepts other encodings in bytes, in which no member could be located.
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def on_one_line(raw: bytes) -> bytes:
    """The same JSON without line breaks: they have no meaning outside of strings, and can't occur inside."""
    return raw.strip().replace(b"\r", b" ").replace(b"\n", b" ")


def elements(raw: bytes) -> list[bytes]:
    """The text of each element of an array. Raises ValueError."""
    text = raw.decode()
    return [text[start:end].encode() for start, end in json_spans.elements(text)]


def answered(value: Any) -> Key | None:
    """The key of the request that this message answers, if it is a response."""
    if isinstance(value, dict) and "method" not in value and "id" in value and ("result" in value or "error" in value):
        return key(value["id"])
    return None


def error_reply(id: Any, code: int, text: str, data: Any = None) -> bytes:
    return dump(jsonrpc.error_message(id, code, text, data))
