"""Headers of one HTTP request: lookup by name, with detection of repeated fields.

Values are decoded once. Does not interpret any header except Accept, which it joins.
"""

from __future__ import annotations

from collections.abc import Sequence


class RequestHeaders:
    """Names are in lower case, as in ASGI. Blanks around values are removed: httptools keeps trailing ones."""

    __slots__ = ("_first", "_read", "_repeated")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
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
        return ",".join(self.headers(b"accept"))
