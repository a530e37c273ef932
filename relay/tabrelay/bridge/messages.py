"""One JSON-RPC message (or an array of them) as it came, with the little that the bridge must know of it. Pure.

The bytes are the message; the fields beside them were read from it and are never written back. Nothing here checks what
the server will check anyway.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import orjson

from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import LEGACY_VERSIONS, META_VERSION

# What a client may send twice without harm: it asks, or says again what it said. Above all not `tools/call`.
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
    """Not a message: the code and text of the error that answers it, and the id if it has one."""

    def __init__(self, code: int, text: str, id: Any = None) -> None:
        super().__init__(text)
        self.code = code
        self.id = id


@dataclass(frozen=True, slots=True)
class BridgeMessage:
    """`ids`: of the requests in it, as they came; each wants one answer."""

    raw: bytes
    kind: MessageKind
    method: str | None
    params: dict[str, Any]
    ids: tuple[Any, ...]
    version: str | None
    """The version that a modern request carries; None in the handshake era."""

    @property
    def is_modern(self) -> bool:
        return self.version is not None

    @property
    def is_repeatable(self) -> bool:
        """May it be sent again when nobody knows whether it arrived?"""
        if self.kind is MessageKind.REQUEST:
            return self.method in REPEATABLE
        return self.kind is MessageKind.NOTIFICATION

    @property
    def keys(self) -> tuple[Key, ...]:
        return tuple(key(id) for id in self.ids)


def key(id: Any) -> Key:
    """An id to compare by: for Python 1 and True are the same, for JSON-RPC they are not. 1.0 is: some write 1 anew."""
    id = int(id) if isinstance(id, float) and id.is_integer() else id
    # No request has an array or an object for its id: `parse` and ACP's pipes refuse it.
    return type(id).__name__, id if not isinstance(id, list | dict) else None


def parse(raw: bytes) -> BridgeMessage:
    """Read what the client wrote. Raises Malformed."""
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
            if (flaw := id_flaw(value["id"])) is not None:
                raise Malformed(jsonrpc.INVALID_REQUEST, flaw)
            return BridgeMessage(raw, MessageKind.REQUEST, method, params, (value["id"],), _version(params))
        return BridgeMessage(raw, MessageKind.NOTIFICATION, method, params, (), _version(params))
    if "id" in value and ("result" in value or "error" in value):
        return BridgeMessage(raw, MessageKind.RESPONSE, None, {}, (), None)
    raise Malformed(jsonrpc.INVALID_REQUEST, "A message has a method, or the result or error of one.", _id(value))


def id_flaw(id: Any) -> str | None:
    """Why an id can't be repeated in answers and tables: it is too long, an array or an object. What else MCP does not
    allow, such as a fraction, is the server's to refuse."""
    return jsonrpc.id_flaw(id) if isinstance(id, str | list | dict) else None


def _id(value: dict[str, Any]) -> Any:
    """What answers it: null in place of an id that can't be repeated."""
    id = value.get("id")
    return None if id_flaw(id) is not None else id


def _version(params: dict[str, Any]) -> str | None:
    meta = params.get("_meta")
    version = meta.get(META_VERSION) if isinstance(meta, dict) else None
    return version if isinstance(version, str) and version not in LEGACY_VERSIONS else None


def make(value: dict[str, Any]) -> BridgeMessage:
    """A message of the bridge's own."""
    return _parse_one(dump(value), value)


def dump(value: Any) -> bytes:
    """One line. The standard library's writer: it keeps what orjson can't, such as numbers beyond 64 bits."""
    return json.dumps(value, separators=(",", ":")).encode()


def load(raw: bytes) -> Any:
    """What somebody wrote. Raises ValueError, or RecursionError when it is too deep."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError:
        # It refuses some that is JSON by the letter: 1e400, half of a surrogate pair. That is not ours to judge.
        # Of bytes it would take other encodings too, in which nobody finds a member again.
        return json.loads(raw.decode("utf-8-sig"), parse_constant=_refuse)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def on_one_line(raw: bytes) -> bytes:
    """The same JSON without line ends: outside of strings they mean nothing, and inside they can't be."""
    return raw.strip().replace(b"\r", b" ").replace(b"\n", b" ")


def elements(raw: bytes) -> Iterator[bytes]:
    """The elements of an array, as they are written in it."""
    text = raw.decode().strip()
    decoder = json.JSONDecoder()
    at = 1
    while True:
        while text[at] in " \t\r\n,":
            at += 1
        if text[at] == "]":
            return
        _, end = decoder.raw_decode(text, at)
        yield text[at:end].encode()
        at = end


def answered(value: Any) -> Key | None:
    """The request that this message answers, if it is an answer."""
    if isinstance(value, dict) and "method" not in value and "id" in value and ("result" in value or "error" in value):
        return key(value["id"])
    return None


def error_reply(id: Any, code: int, text: str, data: Any = None) -> bytes:
    return dump(jsonrpc.error_message(id, code, text, data))


def error_replies(ids: Iterable[Any], code: int, text: str, data: Any = None) -> list[bytes]:
    return [error_reply(id, code, text, data) for id in ids]
