"""HTTP/1.1 request framing: where a request's header and body begin and end, by one strict grammar (RFC 9112). Pure.

The grammar accepts a subset of what common parsers accept, and frames that subset as they do. Everything that two
parsers could frame differently is refused: bare CR or LF, folded lines, blanks around a field name, a Content-Length
that is repeated, signed or combined with Transfer-Encoding, transfer codings other than `chunked`. Trailer fields are
validated, bounded and discarded: they never become header fields, and framing fields among them are refused. Does
not interpret requests.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Final

Field = tuple[bytes, bytes]

END: Final = b"\r\n\r\n"
MOST_FIELDS: Final = 256  # fields of one header
METHODS: Final = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"DELETE", b"OPTIONS", b"PATCH", b"TRACE"})

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_TEXT: Final = rb"[\t -~\x80-\xff]"
# RFC 9112, 3.2: a target has no fragment, so there is no "#" in it.
_TARGET: Final = rb"[!\x22$-~]"
_REQUEST_LINE: Final = re.compile(rb"([A-Z]{1,16}) (" + _TARGET + rb"++) HTTP/([0-9])\.([0-9])\r\n")
# The beginning of a request line that is not complete.
_REQUEST_LINE_START: Final = re.compile(rb"[A-Z]{1,16}(?: (?:" + _TARGET + rb"++(?: [HTP/0-9.]{0,8}\r?)?)?)?")
_START_LOOKED_AT: Final = 512
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"++):(" + _TEXT + rb"*+)\r\n")
_FIELDS: Final = re.compile(rb"(?:" + _TOKEN + rb"++:" + _TEXT + rb"*+\r\n)*+")
_BARE: Final = re.compile(rb"(?<!\r)\n|\r[^\n]|\x00")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_ABSOLUTE: Final = re.compile(rb"https?://([^/?#]++)/", re.IGNORECASE)
# RFC 9112, 7.1: a chunk's size line; behind another chunk it follows the line break that ends that chunk.
_SIZE: Final = rb"([0-9A-Fa-f]{1,8})(?:;[\t -~]*+)?\r\n"
_FIRST_CHUNK: Final = re.compile(_SIZE)
_NEXT_CHUNK: Final = re.compile(rb"\r\n" + _SIZE)
_CHUNK_START: Final = re.compile(rb"(?:\r(?:\n(?:[0-9A-Fa-f]{1,8}(?:;[\t -~]*+)?\r?)?)?)?")
_MOST_SIZE_LINE: Final = 256
# RFC 9110, 6.5.1: a trailer section must not have these. A parser that merges trailers into the header reads them.
_FRAMING_FIELDS: Final = frozenset({b"content-length", b"transfer-encoding"})


class FramingError(Exception):
    """The rest of the connection can't be framed. `status`: of the last response before it is closed."""

    def __init__(self, status: HTTPStatus = HTTPStatus.BAD_REQUEST) -> None:
        super().__init__(status.phrase)
        self.status = status


class RequestHead:
    """A request line and its header fields.

    `wants_websocket`, RFC 9110, 7.8: a server may ignore an upgrade to any other protocol, and this one does.
    """

    __slots__ = (
        *("body_length", "expects_continue", "fields", "has_body", "is_chunked", "keeps_alive", "method", "target"),
        *("version", "wants_websocket"),
    )

    def __init__(self, method: bytes, target: bytes, version: str, fields: list[Field]) -> None:
        self.method = method
        self.target = target
        self.fields = fields
        self.version = version
        connection = _tokens(fields, b"connection")
        self.keeps_alive = version == "1.1" and b"close" not in connection
        self.body_length, self.is_chunked = _framing(fields, version)
        self.has_body = self.is_chunked or self.body_length > 0
        self.wants_websocket = b"upgrade" in connection and _tokens(fields, b"upgrade") == [b"websocket"]
        self.expects_continue = any(name == b"expect" and value.lower() == b"100-continue" for name, value in fields)

    def check_host(self) -> None:
        """RFC 9112, 3.2.2: an absolute target overrides Host. So both must be equal."""
        if self.target[:1] == b"/":
            return
        found = _ABSOLUTE.match(self.target)
        if found is None:
            raise FramingError
        if [value.lower() for name, value in self.fields if name == b"host"] != [found[1].lower()]:
            raise FramingError(HTTPStatus.MISDIRECTED_REQUEST)


def _tokens(fields: list[Field], wanted: bytes) -> list[bytes]:
    return [token.strip(b" \t") for name, value in fields if name == wanted for token in value.lower().split(b",")]


def _framing(fields: list[Field], version: str) -> tuple[int, bool]:
    """RFC 9112, 6.3, without its ambiguities: the length of the body, and whether it is chunked."""
    lengths = [value for name, value in fields if name == b"content-length"]
    codings = [value.lower() for name, value in fields if name == b"transfer-encoding"]
    if codings:
        # defence: two lengths of one body
        if lengths or codings != [b"chunked"] or version != "1.1":
            raise FramingError
        return 0, True
    if not lengths:
        return 0, False
    # defence: a length that is repeated
    if len(lengths) != 1 or not _LENGTH.fullmatch(lengths[0]):
        raise FramingError
    return int(lengths[0]), False


def parse_head(data: bytes) -> RequestHead:
    """`data`: up to the empty line, which is included."""
    line = _REQUEST_LINE.match(data)
    if line is None:
        raise FramingError
    method, target, major, minor = line.groups()
    if major != b"1" or minor not in (b"0", b"1"):
        raise FramingError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
    start, end = line.end(), len(data) - 2
    if _FIELDS.fullmatch(data, start, end) is None:
        raise FramingError
    fields = [(name.lower(), value.strip(b" \t")) for name, value in _FIELD.findall(data, start, end)]
    if len(fields) > MOST_FIELDS:
        raise FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    if method == b"CONNECT":
        raise FramingError
    if method not in METHODS:
        raise FramingError(HTTPStatus.NOT_IMPLEMENTED)
    head = RequestHead(method, target, f"1.{minor.decode()}", fields)
    head.check_host()
    return head


class HeadReader:
    """Collects the bytes of one header that comes in several pieces."""

    __slots__ = ("_most", "data")

    def __init__(self, most: int) -> None:
        self._most = most
        self.data = bytearray()  # the part that has arrived

    def feed(self, data: bytes) -> tuple[RequestHead, bytes] | None:
        """The head and what follows it, once it is complete. Raises as soon as it is known to be wrong."""
        if self.data:
            seen = len(self.data)
            self.data += data
            end = self.data.find(END, max(0, seen - 3))
            data = bytes(self.data) if end >= 0 else data
        else:
            seen = 0
            end = data.find(END, 0, self._most + len(END))
        size = end + len(END)
        if end >= 0:
            self.data.clear()
            # defence: the header's size
            if size > self._most:
                raise FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
            return parse_head(data[:size]), data[size:]
        if not seen:
            self.data += data
        self._check(seen)
        return None

    def _check(self, seen: int) -> None:
        data = self.data
        line = data.find(b"\r\n", 0, _START_LOOKED_AT)
        if line >= 0 and seen <= line + 1:
            is_good = _REQUEST_LINE.match(data) is not None
        else:
            is_good = line >= 0 or seen > _START_LOOKED_AT or _is_start(data[:_START_LOOKED_AT])
        if not is_good:
            raise FramingError
        # Before the search: one read may have 256 KiB, in which it takes 3 ms.
        # defence: a header that is too long is not searched
        # defence: a header that never ends
        if len(data) > self._most:
            raise FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        if _BARE.search(data, max(0, seen - 1)) is not None:
            raise FramingError


def _is_start(data: bytearray) -> bool:
    return _REQUEST_LINE_START.fullmatch(data) is not None


class SizedBody:
    """A body whose length is known."""

    __slots__ = ("_left",)

    def __init__(self, length: int) -> None:
        self._left = length

    @property
    def is_complete(self) -> bool:
        return self._left == 0

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """The part of `data` that belongs to the body, and the rest."""
        if len(data) <= self._left:
            self._left -= len(data)
            return data, b""
        left, self._left = self._left, 0
        return data[:left], data[left:]


class ChunkedBody:
    """A chunked body. Its overhead (size lines, extensions, line breaks, trailer fields) may be `most` bytes longer
    than its content: this bounds the trailer section and the number of tiny chunks."""

    __slots__ = ("_content", "_is_trailer", "_left", "_most", "_overhead", "_pattern", "_rest", "is_complete")

    def __init__(self, most: int) -> None:
        self._most = most
        self._content = 0
        self._overhead = 0
        self._left = 0  # bytes to come of the chunk that is being read
        self._pattern = _FIRST_CHUNK
        self._rest = b""  # a line that is not complete
        self._is_trailer = False
        self.is_complete = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Content of the body in `data`, and what follows the body."""
        data = self._rest + data if self._rest else data
        self._rest = b""
        pieces: list[bytes] = []
        at = 0
        while at < len(data) and not self._is_trailer:
            if self._left:
                piece = data[at : at + self._left]
                pieces.append(piece)
                at += len(piece)
                self._left -= len(piece)
                self._content += len(piece)
                continue
            found = self._pattern.match(data, at)
            if found is None:
                self._keep(data[at:])
                return b"".join(pieces), b""
            self._count(found.end() - at)
            at = found.end()
            self._left = int(found[1], 16)
            self._is_trailer = self._left == 0
            self._pattern = _NEXT_CHUNK
        if self._is_trailer:
            at = self._read_trailer(data, at)
        return b"".join(pieces), data[at:]

    def _keep(self, line: bytes) -> None:
        start = line if self._pattern is _NEXT_CHUNK else b"\r\n" + line
        if len(line) > _MOST_SIZE_LINE or _CHUNK_START.fullmatch(start) is None:
            raise FramingError
        self._rest = line

    def _read_trailer(self, data: bytes, at: int) -> int:
        while (end := data.find(b"\r\n", at)) >= 0:
            if end == at:
                self.is_complete = True
                return at + 2
            field = _FIELD.fullmatch(data, at, end + 2)
            # defence: framing fields in a trailer
            if field is None or field[1].lower() in _FRAMING_FIELDS:
                raise FramingError
            self._count(end + 2 - at)
            at = end + 2
        # defence: a trailer line without an end
        if self._overhead + len(data) - at > self._most + self._content:
            raise FramingError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        self._rest = data[at:]
        return len(data)

    def _count(self, size: int) -> None:
        self._overhead += size
        # defence: trailers and tiny chunks
        if self._overhead > self._most + self._content:
            is_trailer = self._is_trailer
            raise FramingError(
                HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE if is_trailer else HTTPStatus.REQUEST_ENTITY_TOO_LARGE
            )
