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


def pack(header: dict[str, Any], payload: str | None = None) -> bytes:
    head = orjson.dumps(header)
    return head if payload is None else head + b"\n" + payload.encode()


def unpack(data: bytes) -> tuple[dict[str, Any], str | None]:
    """Raises BadEnvelope."""
    head, found, payload = data.partition(b"\n")
    try:
        header = orjson.loads(head)
        text = payload.decode() if found else None
    except ValueError:
        raise BadEnvelope("neither a header nor a text") from None
    if not isinstance(header, dict) or not isinstance(header.get("op"), str):
        raise BadEnvelope("no operation")
    return header, text


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
        if len(mine) > MAX_MESSAGES or sum(one.size for one in mine.values()) > MAX_UNFINISHED:
            mine.clear()
            raise BadEnvelope("too much that is not whole")
        return None

    def forget(self, node: str) -> None:
        """It is gone: what it had begun to say will not be finished."""
        self._unfinished.pop(node, None)
