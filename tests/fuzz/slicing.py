"""An input of the fuzzer as several reads: the cuts are part of the input."""

from __future__ import annotations

from typing import Final

MAX_READS: Final = 8


def sliced(data: bytes) -> list[bytes]:
    """The first byte is the number of cuts, and the following bytes are their places: in 256ths of the rest."""
    if not data:
        return [b""]
    count = data[0] % MAX_READS
    places, rest = data[1 : 1 + count], data[1 + count :]
    cuts = sorted(place * len(rest) // 256 for place in places)
    return [rest[start:end] for start, end in zip([0, *cuts], [*cuts, len(rest)], strict=True)]
