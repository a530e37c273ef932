"""Untrusted text made safe for messages and logs: printable ASCII, bounded length.

Not for text that must be preserved: other characters become `?`.
"""

from __future__ import annotations


def printable(value: str, most: int = 100) -> str:
    """At most `most` characters; quotes, backslashes, angle brackets and all that is not ASCII become `?`."""
    return "".join(c if " " <= c <= "~" and c not in '"\\<>' else "?" for c in value[:most])
