"""Messages between nodes as bytes: a line of JSON that says what it is, and a text that nobody here looks into. Pure.

A bus limits how large one message may be. Larger ones are cut into slices, and put together again by `Assembly`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import orjson

# Of a message's size limit, for the header of a slice.
HEADER_ROOM: Final = 4096
# One sender's messages that are not whole yet, together.
MAX_UNFINISHED: Final = 64 * 1024 * 1024
MAX_PARTS: Final = 4096
MAX_MESSAGES: Final = 1024  # of one node, that are not whole


class BadEnvelope(ValueError):
    """It is not of this form."""


def pack(header: dict[str, Any], payload: str | bytes | None = None) -> bytes:
    """`payload`: a text, or the same in UTF-8."""
    head = orjson.dumps(header)
    if payload is None:
        return head
    return b"".join((head, b"\n", payload.encode() if isinstance(payload, str) else payload))


def unpack(data: bytes) -> tuple[dict[str, Any], str | None]:
    """Raises BadEnvelope."""
    header, payload = split(data)
    try:
        return header, None if payload is None else str(payload, "utf-8")
    except ValueError:
        raise BadEnvelope("not a text") from None


def split(data: bytes) -> tuple[dict[str, Any], memoryview | None]:
    """The same, and the payload as it came: to decode a long one takes tens of milliseconds. Raises BadEnvelope."""
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
    """A number of another node's message; None for anything else."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def slices(data: bytes, most: int, node: str, number: int) -> list[bytes]:
    """The message itself, or parts of at most `most` bytes. `node` and `number` tell this message from all others."""
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
    """Parts of one bus, put together. They come in order, or not at all: a gap ends the message."""

    def __init__(self) -> None:
        self._unfinished: dict[str, dict[int, _Unfinished]] = {}

    def add(self, data: bytes) -> bytes | None:
        """The whole message, when this was its last part; a message that is no part is whole. Raises BadEnvelope."""
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
            raise BadEnvelope("a part that does not say of what")
        if not 0 <= index < count <= MAX_PARTS:
            raise BadEnvelope("a part of nothing")
        mine = self._unfinished.setdefault(node, {})
        if index == 0:
            mine[number] = _Unfinished(count)
        whole = mine.get(number)
        if whole is None or len(whole.parts) != index or whole.count != count:
            mine.pop(number, None)
            raise BadEnvelope("a part whose neighbours are missing")
        whole.parts.append(slice)
        whole.size += len(slice)
        if index == count - 1:
            del mine[number]
            return b"".join(whole.parts)
        # defence: bounds: messages on the bus that are not whole
        if len(mine) > MAX_MESSAGES or sum(one.size for one in mine.values()) > MAX_UNFINISHED:
            mine.clear()
            raise BadEnvelope("too much that is not whole")
        return None

    def discard(self, node: str) -> None:
        """It is gone: what it had begun to say will not be finished."""
        self._unfinished.pop(node, None)
