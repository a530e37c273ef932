"""The headers of one HTTP request: read by name, once. What any of them means is not known here."""

from __future__ import annotations

from collections.abc import Sequence


class RequestHeaders:
    """Names are in lower case, as ASGI has them. Blanks around values go here: httptools leaves trailing ones on."""

    __slots__ = ("_first", "_read", "_repeated")

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self._first = dict(pairs)
        self._read: dict[bytes, str | None] = {}  # values as text: a heading may stand for many requests
        # Nearly no request has a header twice.
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
        """The first of its values."""
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
        """RFC 9110 §5.3: several lines of a list are one list."""
        return ",".join(self.headers(b"accept"))
