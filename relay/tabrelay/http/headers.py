"""Header block of HTTP requests: lookup by name, with detection of repeated fields.

Values are decoded once. One instance serves all requests of a connection that have an equal header block, and keeps
what depends on that block alone (`admission`, `verified`). Does not interpret any header except Accept, which it joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RequestHeaders:
    """Names are in lower case, as in ASGI. Blanks around values are removed: httptools keeps trailing ones.

    `admission`: of the last request with this header block, by the gate. `verified`: what a face has checked in such a
    request, if it was valid.
    """

    __slots__ = ("_accept", "_first", "_read", "_repeated", "admission", "verified")

    is_shared = True  # may other requests have this instance too?

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self.admission: Any = None
        self.verified: Any = None
        self._accept: str | None = None
        self._first = dict(pairs)
        self._read: dict[bytes, str | None] = {}  # decoded: one instance may serve many equal requests
        # Hardly any request repeats a header.
        self._repeated: dict[bytes, list[bytes]] = {}
        if len(self._first) != len(pairs):
            found: dict[bytes, list[bytes]] = {}
            for name, value in pairs:
                found.setdefault(name, []).append(value)
            self._first = {name: values[0] for name, values in found.items()}
            self._repeated = {name: values for name, values in found.items() if len(values) > 1}

    def __contains__(self, name: bytes) -> bool:
        return name in self._first

    def header(self, name: bytes) -> str | None:
        """The first value of a header."""
        try:
            return self._read[name]
        except KeyError:
            value = self._first.get(name)
            text = self._read[name] = None if value is None else value.decode("latin-1").strip(" \t")
            return text

    def headers(self, name: bytes) -> list[str]:
        """All values of a header."""
        if name in self._repeated:
            return [value.decode("latin-1").strip(" \t") for value in self._repeated[name]]
        value = self._first.get(name)
        return [] if value is None else [value.decode("latin-1").strip(" \t")]

    @property
    def has_repeated(self) -> bool:
        return bool(self._repeated)

    def is_repeated(self, name: bytes) -> bool:
        return name in self._repeated

    @property
    def accept(self) -> str:
        """RFC 9110 §5.3: several fields of a list header form one list."""
        if self._accept is None:
            self._accept = ",".join(self.headers(b"accept"))
        return self._accept
