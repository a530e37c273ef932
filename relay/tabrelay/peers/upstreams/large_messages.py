"""Large messages of upstream connections, parsed and written without the SDK.

The SDK parses a message in one event-loop callback, whatever its size, and takes several times as long as the relay's
own parser. So a message of more than `LARGE` bytes is checked, parsed and encoded here, in several callbacks. The SDK
validates only the message around its contents (`params`, `result`, `data` of an error).

Over HTTP the relay uses the SDK's transports. There, a `LargeMessageStore` keeps the large message while the SDK
carries a small one with a ticket in place of the contents (the claim check pattern). The key of tickets is random, so
that no server can forge one. The module opens no connection.
"""

from __future__ import annotations

import asyncio
import contextvars
import json
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mcp.shared.message import SessionMessage
from mcp_types import (
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)

from tabrelay.http.sse_parser import SseEvent, SseParser
from tabrelay.payloads.json_skeleton import checking_weight
from tabrelay.peers.upstreams.dispatcher import ReadStream, WriteStream
from tabrelay.system.loop_turns import run_in_turns
from tabrelay.system.pipe_lines import too_long
from tabserver.wire import methods
from tabserver.wire.jsonrpc import INTERNAL_ERROR, RequestId, is_request_id

log = logging.getLogger(__name__)

# defence: loop time: large messages of upstream servers are not the SDK's
LARGE: Final = 64 * 1024
"""Bytes of a message that the SDK still parses and encodes itself."""
MAX_NOTICE: Final = 4 * 1024 * 1024
EVENTS_AT_ONCE: Final = 32
DROP_S: Final = 5.0
HEAD: Final = 4096
INVALID_JSON: Final = b"{"  # the SDK answers for it, as for any text that is not JSON
_MEMBERS: Final = ("jsonrpc", "id", "method", "params", "result", "error")
_CONTENTS: Final = ("params", "result")


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of one message of a server: its bytes, and the values in it."""

    size: int
    values: int


class TooManyValues(Exception):
    """A message has more values than the relay parses."""


async def parse(data: bytes, most: int) -> Any:
    """The values of a message; a large one takes several callbacks. Raises TooManyValues, or ValueError if it is not
    JSON.

    A notification or request is encoded and parsed again for a caller of the other era, so it has a smaller limit.
    """
    if len(data) <= LARGE:
        return orjson.loads(data)
    text = data.decode()
    # defence: values of an HTTP server's message
    if await run_in_turns(checking_weight(text, most)):
        raise TooManyValues
    await asyncio.sleep(0)
    value = orjson.loads(text)
    if len(data) > MAX_NOTICE and isinstance(value, dict) and "method" in value:
        raise TooManyValues
    await asyncio.sleep(0)
    return value


def to_message(value: Any) -> JSONRPCMessage:
    """The SDK's message of these values. Its contents are not validated. Raises ValueError."""
    if not isinstance(value, dict):
        raise ValueError("not an object")
    frame, contents, data = _split(value)
    message = jsonrpc_message_adapter.validate_python(frame, by_name=False)
    for name, content in contents.items():
        if hasattr(message, name):
            setattr(message, name, content)
    if data is not None and isinstance(message, JSONRPCError):
        message.error.data = data
    return message


def _split(value: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], Any]:
    """A message without its contents, these contents, and the data of its error."""
    frame: dict[str, Any] = {name: value[name] for name in _MEMBERS if name in value}
    contents = {name: frame[name] for name in _CONTENTS if isinstance(frame.get(name), dict)}
    frame |= {name: {} for name in contents}
    data, error = None, frame.get("error")
    if isinstance(error, dict):
        data = error.get("data")
        frame["error"] = {name: error[name] for name in ("code", "message") if name in error}
    return frame, contents, data


def encode(message: JSONRPCMessage) -> bytes:
    """The message as JSON. orjson refuses integers of more than 64 bits, which the SDK encodes."""
    known = message.model_fields_set
    fields = {name: getattr(message, name) for name in type(message).model_fields if name in known}
    if isinstance(message, JSONRPCError):
        fields["error"] = message.error.model_dump(by_alias=True, exclude_unset=True)
    try:
        return orjson.dumps(fields)
    except orjson.JSONEncodeError:
        return message.model_dump_json(by_alias=True, exclude_unset=True).encode()


class LargeMessageStore:
    """The large messages of one connection for which the SDK carries a ticket now."""

    def __init__(self) -> None:
        self._key = secrets.token_hex(16)
        self._numbers = iter(range(1, 1 << 62))
        self._inbound: dict[str, JSONRPCMessage] = {}
        self._outbound: dict[str, tuple[RequestId | None, bytes]] = {}

    # -- from the server ----------------------------------------------------------------------------------------------

    def replace(self, value: Any) -> tuple[str, bytes]:
        """Store a message; returns its ticket, and a small message in its place. Raises ValueError if the values are
        not a message. Call `drop_soon` when the SDK has passed the small message on, or will not."""
        message = to_message(value)
        ticket = self._ticket()
        small: dict[str, Any] = {"jsonrpc": "2.0"}
        if not isinstance(message, JSONRPCNotification):
            small["id"] = message.id
        if isinstance(message, JSONRPCRequest | JSONRPCNotification):
            small |= {"method": message.method, "params": {self._key: ticket}}
        elif isinstance(message, JSONRPCResponse):
            small["result"] = {self._key: ticket}
        else:
            small["error"] = {"code": message.error.code, "message": "", "data": {self._key: ticket}}
        self._inbound[ticket] = message
        return ticket, orjson.dumps(small)

    def drop_soon(self, ticket: str) -> None:
        """Remove it later: the SDK's stream may have the small message for a few more event-loop iterations."""
        if ticket in self._inbound:
            asyncio.get_running_loop().call_later(DROP_S, self._inbound.pop, ticket, None)

    def restore(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """The message of this one's ticket, or the message itself if it has none."""
        contents = message.error.data if isinstance(message, JSONRPCError) else _contents(message)
        ticket = self._named(contents)
        if ticket is None:
            return message
        found = self._inbound.pop(ticket, None)
        if found is None:
            if not isinstance(message, JSONRPCResponse | JSONRPCError):
                return message
            error = {"code": INTERNAL_ERROR, "message": "The message was lost."}
            return to_message({"jsonrpc": "2.0", "id": message.id, "error": error})
        if isinstance(found, JSONRPCResponse | JSONRPCError) and isinstance(message, JSONRPCResponse | JSONRPCError):
            found.id = message.id  # the SDK knows which request a stream answers
        return found

    # -- to the server ------------------------------------------------------------------------------------------------

    def put(self, message: JSONRPCMessage) -> JSONRPCMessage:
        """The message itself, or, if it is large, a small one in its place."""
        if isinstance(message, JSONRPCNotification) and message.method == methods.CANCELLED:
            self._cancel((message.params or {}).get("requestId"))
        if isinstance(message, JSONRPCError) or not _contents(message):
            return message
        text = encode(message)
        if len(text) <= LARGE:
            return message
        ticket = self._ticket()
        self._outbound[ticket] = (message.id if isinstance(message, JSONRPCRequest) else None, text)
        name = "result" if isinstance(message, JSONRPCResponse) else "params"
        return message.model_copy(update={name: {self._key: ticket}})

    def _cancel(self, id: Any) -> None:
        for ticket in [ticket for ticket, (of, _) in self._outbound.items() if of is not None and of == id]:
            del self._outbound[ticket]

    def claim(self, values: Any) -> tuple[str, bytes | None] | None:
        """The ticket in a message that the SDK sends, and the stored text; None if it has no ticket. The text is None
        if the request was cancelled."""
        contents = values.get("params", values.get("result")) if isinstance(values, dict) else None
        ticket = self._named(contents)
        if ticket is None:
            return None
        _, text = self._outbound.get(ticket, (None, None))
        return ticket, text

    def forget(self, ticket: str) -> None:
        """Remove a message that was sent."""
        self._outbound.pop(ticket, None)

    def _ticket(self) -> str:
        return str(next(self._numbers))

    def _named(self, contents: Any) -> str | None:
        ticket = contents.get(self._key) if isinstance(contents, dict) else None
        return ticket if isinstance(ticket, str) else None


def _contents(message: JSONRPCRequest | JSONRPCNotification | JSONRPCResponse) -> dict[str, Any] | None:
    return message.result if isinstance(message, JSONRPCResponse) else message.params


class RestoringStream:
    """Read stream of the SDK's transport that restores the large messages."""

    def __init__(self, inner: ReadStream, store: LargeMessageStore) -> None:
        self._inner = inner
        self._store = store

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        item = await self._inner.receive()
        if isinstance(item, SessionMessage):
            item.message = self._store.restore(item.message)
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


class StoringStream:
    """Write stream to the SDK's transport that replaces the large messages."""

    def __init__(self, inner: WriteStream, store: LargeMessageStore) -> None:
        self._inner = inner
        self._store = store

    async def send(self, item: SessionMessage, /) -> None:
        item.message = self._store.put(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def small_events(
    chunks: AsyncIterator[bytes], store: LargeMessageStore, limits: MessageLimits, on_heavy: Callable[[bytes], None]
) -> AsyncGenerator[bytes, None]:
    """An event stream for the SDK: few events at a time, and a small message in place of each large one. A message
    beyond the limits is dropped and passed to `on_heavy`; of one that is too long, only its beginning."""
    reader = SseParser(limits.size)
    async for chunk in chunks:
        pieces: list[bytes] = []
        for event in reader.feed(chunk):
            ticket = ""
            if len(event.data) > LARGE and not event.is_too_long:
                ticket = await _replace(event, store, limits.values)
            if event.is_too_long:
                on_heavy(event.data)
                continue
            # defence: upstreams: a notification that the SDK can't parse ends no call
            if event.data and not _is_for_sdk(event.data):
                log.warning("skipped a notification or request that is not a JSON-RPC message")
                event.data = b""  # its other fields are still read
            pieces.append(event.text())
            if ticket or len(pieces) >= EVENTS_AT_ONCE:
                try:
                    yield b"".join(pieces)
                finally:  # the SDK reads on when it has passed on what it got
                    store.drop_soon(ticket)
                pieces.clear()
                await asyncio.sleep(0)
        if pieces:
            yield b"".join(pieces)
        await asyncio.sleep(0)


async def _replace(event: SseEvent, store: LargeMessageStore, most: int) -> str:
    """Store the large message of an event; returns its ticket."""
    ticket = ""
    try:
        ticket, event.data = store.replace(await parse(event.data, most))
    except TooManyValues:
        event.is_too_long = True
    except ValueError:
        found = too_long(event.data)
        is_answer = found.is_answer or b'"method"' not in event.data[:HEAD] + event.data[-HEAD:]
        event.data = INVALID_JSON if is_answer else b""
    return ticket


def _is_for_sdk(data: bytes) -> bool:
    """False for a notification or request that is not valid. For such a one, the SDK would fail the call to which the
    stream belongs, with the text of the message in the error. A response that is not valid should fail its call."""
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError:
        try:
            value = json.loads(data)
        except (ValueError, RecursionError):
            return True
    if not isinstance(value, dict) or "method" not in value:
        return True
    try:
        jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValueError:
        return False
    return "id" not in value or is_request_id(value["id"])
