"""Header block of HTTP requests: lookup by name, with detection of repeated fields.

Values are decoded once, so that readers look them up in a dictionary. One instance serves all requests of a connection
that have an equal header block, and keeps what depends on that block alone (`admission`, `verified`). Does not
interpret any header except Accept, which it joins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class RequestHeaders:
    """Names are in lower case, as in ASGI. Blanks around values are removed: httptools keeps trailing ones.

    `first`: the first value of each header; `all`: all of its values; `repeated`: the headers with several. `accept`:
    RFC 9110 §5.3: several fields of a list header form one list. `admission`: of the last request with this header
    block, by the gate. `verified`: what a face has checked in such a request, if it was valid.
    """

    __slots__ = ("accept", "admission", "all", "first", "repeated", "verified")

    is_shared = True  # may other requests have this instance too?

    def __init__(self, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        self.admission: Any = None
        self.verified: Any = None
        self.first = {name: value.decode("latin-1").strip(" \t") for name, value in pairs}
        self.all = {name: [value] for name, value in self.first.items()}
        self.repeated: frozenset[bytes] = frozenset()
        if len(self.first) != len(pairs):  # hardly any request repeats a header
            self.all = {name: [] for name in self.first}
            for name, value in pairs:
                self.all[name].append(value.decode("latin-1").strip(" \t"))
            self.first = {name: values[0] for name, values in self.all.items()}
            self.repeated = frozenset(name for name, values in self.all.items() if len(values) > 1)
        self.accept = ",".join(self.all.get(b"accept", ()))
