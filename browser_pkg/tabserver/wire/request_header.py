"""Reader of request headers that does not parse JSON, for nearly all frames that a worker receives.

A request that opens its channel describes its caller at the end of the header. If that text equals the one of the last
request, the caller is the same and is not parsed again. A request of a session ends with its id, because its channel is
already open. The result equals that of `frames.decode`; a header that is written differently is left to that function.
"""

from __future__ import annotations

import re
from typing import Final

from . import frames
from .frames import Caller
from .jsonrpc import RequestId

# As `Link.send` writes them, up to the caller: number, acknowledgement, channel, and an id, which is a number or a
# string without escapes. Bounds as in L16.
_BEGINNING: Final = re.compile(
    r'\{"t":"msg","s":(0|[1-9][0-9]{0,14}),"a":(0|[1-9][0-9]{0,14}),"c":"([ !#-\[\]-~]{0,256})","k":"req",'
    r'"i":(?:(0|[1-9][0-9]{0,14})|"([ !#-\[\]-~]{0,1024})")(?:(,"o":)|\}\Z)'
)
_MEMBERS: Final = frozenset("tsackio")

# Number, acknowledgement, channel, id, and the caller if it opens its channel.
RequestHeader = tuple[int, int, str, RequestId, Caller | None]


class RequestHeaderReader:
    """Caches the last caller."""

    def __init__(self) -> None:
        self._last: tuple[str, Caller | None] = "", None

    def read(self, header: str) -> RequestHeader | None:
        """None: the header is not a usual request. Raises RemoteProtocolError."""
        beginning = _BEGINNING.match(header)
        if beginning is None:
            return None
        seq, ack, channel, number, text, opens = beginning.groups()
        end = header[beginning.end() :]
        known, caller = self._last
        if opens is None:
            caller = None
        elif caller is None or end != known:
            frame = frames.decode(header)
            if frame.keys() != _MEMBERS:
                return None
            caller = Caller.from_dict(frame["o"])
            self._last = end, caller
        return int(seq), int(ack), channel, text if number is None else int(number), caller
