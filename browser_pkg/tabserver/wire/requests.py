"""Headers of requests that open their channel, read without parsing them: nearly all that a worker gets.

Most are by the caller of the one before, who is described in every header anew: what ends like the last one is by the
same. It must not differ from `frames.decode` in anything but time, and leaves everything else to that.
"""

from __future__ import annotations

import re
from typing import Final

from . import frames
from .frames import Caller
from .jsonrpc import RequestId

# As `Link.send` writes them, up to the caller: number, acknowledgement, channel, and an id, which is a number or a text
# without escapes.
_BEGINNING: Final = re.compile(
    r'\{"t":"msg","s":(0|[1-9][0-9]{0,14}),"a":(0|[1-9][0-9]{0,14}),"c":"([ !#-\[\]-~]*)","k":"req",'
    r'"i":(?:(0|[1-9][0-9]{0,14})|"([ !#-\[\]-~]*)"),"o":'
)
_MEMBERS: Final = frozenset("tsackio")

# Number, acknowledgement, channel, id, caller.
Opening = tuple[int, int, str, RequestId, Caller]


class Requests:
    """Keeps the last caller."""

    def __init__(self) -> None:
        self._last: tuple[str, Caller | None] = "", None

    def read(self, header: str) -> Opening | None:
        """None: it is something else. Raises RemoteProtocolError."""
        beginning = _BEGINNING.match(header)
        if beginning is None:
            return None
        end = header[beginning.end() :]
        known, caller = self._last
        if caller is None or end != known:
            frame = frames.decode(header)
            if frame.keys() != _MEMBERS:
                return None
            caller = Caller.from_dict(frame["o"])
            self._last = end, caller
        seq, ack, channel, number, text = beginning.groups()
        return int(seq), int(ack), channel, text if number is None else int(number), caller
