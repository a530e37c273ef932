"""Text from outside, made safe to repeat in a message: printable ASCII, bounded."""

from __future__ import annotations


def printable(value: str, most: int = 100) -> str:
    """Text of a stranger, made safe to repeat in a message: printable ASCII, bounded."""
    return "".join(c if " " <= c <= "~" and c not in '"\\<>' else "?" for c in value[:most])
