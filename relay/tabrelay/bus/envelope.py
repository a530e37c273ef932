"""Envelope of messages between nodes: one line of JSON as header, then an opaque payload.

A bus limits the size of a message. Larger ones are split into slices, which `Assembly` joins, in order or not at all.
Pure. Does not parse the payload.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

# Bytes of the size limit that are reserved for the header of a slice.
HEADER_ROOM: Final = 4096
# Bytes of all incomplete messages of one sender.
MAX_UNFINISHED: Final = 64 * 1024 * 1024
MAX_PARTS: Final = 4096
MAX_MESSAGES: Final = 1024  # incomplete messages of one node


class BadEnvelope(ValueError):
    """A message that has no valid envelope."""


def pack(header: dict[str, Any], payload: str | bytes | None = None) -> bytes:
    """`payload`: text, or bytes in UTF-8."""
    head = orjson.dumps(header)
    if payload is None:
        return head
    return b"".join((head, b"\n", payload.encode() if isinstance(payload, str) else payload))


def unpack(data: bytes) -> tuple[dict[str, Any], str | None]:
    """Header and payload as text. Raises BadEnvelope."""
    header, payload = split(data)
    try:
        return header, None if payload is None else str(payload, "utf-8")
    except ValueError:
        raise BadEnvelope("not UTF-8") from None


def split(data: bytes) -> tuple[dict[str, Any], memoryview | None]:
    """Header and payload as bytes: decoding a long one takes tens of milliseconds. Raises BadEnvelope."""
    end = data.find(b"\n")
    head = data if end < 0 else data[:end]
    try:
        header = orjson.loads(head)
    except ValueError:
        raise BadEnvelope("no header") from None
    if not isinstance(header, dict) or not isinstance(header.get("op"), str):
        raise BadEnvelope("no operation")
    return header, memoryview(data)[end + 1 :] if end >= 0 else None


def number(value: object) -> float | None:
    """A number in another node's message; None for a value of another type."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def slices(data: bytes, most: int, node: str, number: int) -> list[bytes]:
    """The message itself, or parts of at most `most` bytes. `node` and `number` identify the message."""
    if len(data) <= most:
        return [data]
    size = most - HEADER_ROOM
    count = -(-len(data) // size)
    return [
        orjson.dumps({"op": "part", "from": node, "x": number, "q": index, "n": count})
        + b"\n"
        + data[index * size : (index + 1) * size]
        for index in range(count)
    ]


@dataclass(slots=True)
class _Unfinished:
    count: int
    parts: list[bytes] = field(default_factory=list)
    size: int = 0


class Assembly:
    """Joins parts. A message whose parts arrive out of order or with a gap is dropped."""

    def __init__(self) -> None:
        self._unfinished: dict[str, dict[int, _Unfinished]] = {}

    def add(self, data: bytes) -> bytes | None:
        """The message, if it is complete with this part, or if `data` is no part. Raises BadEnvelope."""
        if not data.startswith(b'{"op":"part"'):
            return data
        head, _, slice = data.partition(b"\n")
        try:
            header = orjson.loads(head)
        except ValueError:
            raise BadEnvelope("a part without a header") from None
        node, number, index, count = (header.get(key) for key in ("from", "x", "q", "n"))
        if not (
            isinstance(node, str) and isinstance(number, int) and isinstance(index, int) and isinstance(count, int)
        ):
            raise BadEnvelope("a part without sender or number")
        if not 0 <= index < count <= MAX_PARTS:
            raise BadEnvelope("a part with a wrong index")
        mine = self._unfinished.setdefault(node, {})
        if index == 0:
            mine[number] = _Unfinished(count)
        whole = mine.get(number)
        if whole is None or len(whole.parts) != index or whole.count != count:
            mine.pop(number, None)
            raise BadEnvelope("a part out of order")
        whole.parts.append(slice)
        whole.size += len(slice)
        if index == count - 1:
            del mine[number]
            return b"".join(whole.parts)
        # defence: bounds: messages on the bus that are not whole
        if len(mine) > MAX_MESSAGES or sum(one.size for one in mine.values()) > MAX_UNFINISHED:
            mine.clear()
            raise BadEnvelope("too many incomplete messages")
        return None

    def discard(self, node: str) -> None:
        """A node is gone: drop its incomplete messages."""
        self._unfinished.pop(node, None)
