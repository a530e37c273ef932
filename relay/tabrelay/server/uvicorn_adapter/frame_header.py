"""Header of a WebSocket frame: where the payload begins and ends (RFC 6455, 5.2). Pure."""

from __future__ import annotations

from typing import Final

MASKED: Final = 0x80
TWO_BYTES, EIGHT_BYTES = 126, 127


def frame_bounds(data: bytes, at: int) -> tuple[int, int]:
    """Start and end of the payload of the frame at `at`, behind its mask; 0, 0 if the header is not complete."""
    left = len(data) - at
    if left < 2:
        return 0, 0
    size, start = data[at + 1], at + 2
    if size >= MASKED:
        size -= MASKED
        start += 4
    if size == TWO_BYTES:
        start += 2
        size = data[at + 2] << 8 | data[at + 3] if left >= 4 else 0
    elif size == EIGHT_BYTES:
        start += 8
        size = int.from_bytes(data[at + 2 : at + 10], "big")
    return (start, start + size) if start - at <= left else (0, 0)
