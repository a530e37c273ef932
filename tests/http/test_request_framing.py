"""Request framing: which requests are refused; accepted ones are framed as h11 frames them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

import h11
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabrelay.http.request_framing import MOST_FIELDS, ChunkedBody, FramingError, HeadReader, RequestHead, SizedBody

MOST = 2000


@dataclass(frozen=True, slots=True)
class Framed:
    method: bytes
    target: bytes
    fields: tuple[tuple[bytes, bytes], ...]
    body: bytes


def lowered(fields: Iterable[tuple[bytes, bytes]]) -> tuple[tuple[bytes, bytes], ...]:
    """Value of Transfer-Encoding as h11 returns it."""
    return tuple((name, value.lower()) for name, value in fields)


def framed(data: bytes, size: int = 0) -> tuple[list[Framed], HTTPStatus | None]:
    """All requests in `data`, fed in pieces of `size` bytes, and how the rest was refused."""
    pieces = [data[at : at + size] for at in range(0, len(data), size)] if size else [data]
    found: list[Framed] = []
    reader = HeadReader(MOST)
    head: RequestHead | None = None
    body: SizedBody | ChunkedBody | None = None
    content = b""
    try:
        for piece in pieces:
            rest = piece
            while rest:
                if head is None:
                    got = reader.feed(rest)
                    if got is None:
                        break
                    head, rest = got
                    content = b""
                    body = ChunkedBody(MOST) if head.is_chunked else SizedBody(head.body_length)
                assert body is not None
                more, rest = body.feed(rest)
                content += more
                if body.is_complete:
                    found.append(Framed(head.method, head.target, lowered(head.fields), content))
                    if not head.keeps_alive:
                        return found, None
                    head = None
    except FramingError as error:
        return found, error.status
    return found, None


def framed_by_h11(data: bytes, count: int) -> list[Framed]:
    """The first requests in `data`."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=1_000_000)
    connection.receive_data(data)
    found: list[Framed] = []
    while len(found) < count:
        request = connection.next_event()
        assert isinstance(request, h11.Request), request
        body = b""
        while not isinstance(event := connection.next_event(), h11.EndOfMessage):
            assert isinstance(event, h11.Data), event
            body += event.data
        found.append(Framed(request.method, request.target, lowered(request.headers), body))
        if len(found) < count:
            connection.send(h11.Response(status_code=204, headers=[]))
            connection.send(h11.EndOfMessage())
            connection.start_next_cycle()
    return found


HOST = b"Host: a\r\n"
GET = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n"


def post(fields: bytes, body: bytes, version: bytes = b"1.1") -> bytes:
    return b"POST /x HTTP/" + version + b"\r\n" + HOST + fields + b"\r\n" + body


CHUNKED = b"Transfer-Encoding: chunked\r\n"
REFUSED = {
    "both lengths": post(b"Content-Length: 0\r\n" + CHUNKED, b"0\r\n\r\n"),
    "two equal lengths": post(b"Content-Length: 1\r\nContent-Length: 1\r\n", b"x"),
    "a list of lengths": post(b"Content-Length: 1, 1\r\n", b"x"),
    "a signed length": post(b"Content-Length: +1\r\n", b"x"),
    "a length with an underscore": post(b"Content-Length: 1_0\r\n", b"x" * 10),
    "a length in hexadecimal": post(b"Content-Length: 0x1\r\n", b"x"),
    "a length in other digits": post("Content-Length: ١\r\n".encode(), b"x"),
    "an empty length": post(b"Content-Length:\r\n", b"x"),
    "a length of many digits": post(b"Content-Length: " + b"0" * 30 + b"1\r\n", b"x"),
    "another coding": post(b"Transfer-Encoding: gzip, chunked\r\n", b"0\r\n\r\n"),
    "chunked twice": post(CHUNKED + CHUNKED, b"0\r\n\r\n"),
    "a quoted coding": post(b'Transfer-Encoding: "chunked"\r\n', b"0\r\n\r\n"),
    "a coding with a vertical tab": post(b"Transfer-Encoding: \x0bchunked\r\n", b"0\r\n\r\n"),
    "chunked in HTTP/1.0": post(CHUNKED, b"0\r\n\r\n", b"1.0"),
    "a blank before the colon": post(b"Content-Length : 1\r\n", b"x"),
    "a folded line": post(b"X: a\r\n b\r\n", b""),
    "a field without a colon": post(b"X\r\n", b""),
    "a field without a name": post(b": x\r\n", b""),
    "a blank before the name": b"GET / HTTP/1.1\r\n Host: a\r\n\r\n",
    "a name that is not ASCII": post("Ä: 1\r\n".encode(), b""),
    "a null byte": post(b"X: a\x00b\r\n", b""),
    "a bare CR in a value": post(b"X: a\rContent-Length: 5\r\n", b""),
    "a bare LF": b"GET / HTTP/1.1\nHost: a\n\n",
    "a bare LF among line breaks": post(b"X: a\nContent-Length: 5\r\n", b""),
    "an empty line first": b"\r\n" + GET,
    "two blanks in the request line": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n",
    "a tab in the request line": b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n",
    "a blank in the target": b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n",
    "a target that is not ASCII": "GET /ä HTTP/1.1\r\n".encode() + HOST + b"\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\n" + HOST + b"\r\n",
    "HTTP/1.10": b"GET / HTTP/1.10\r\n" + HOST + b"\r\n",
    "http in lower case": b"GET / http/1.1\r\n" + HOST + b"\r\n",
    "a method in lower case": b"get / HTTP/1.1\r\n" + HOST + b"\r\n",
    "an unknown method": b"BREW / HTTP/1.1\r\n" + HOST + b"\r\n",
    "CONNECT": b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "too many fields": post(b"X: y\r\n" * MOST_FIELDS, b""),
    "a signed chunk size": post(CHUNKED, b"+1\r\nx\r\n0\r\n\r\n"),
    "a chunk size in hexadecimal": post(CHUNKED, b"0x1\r\nx\r\n0\r\n\r\n"),
    "a chunk size with a blank": post(CHUNKED, b"1 \r\nx\r\n0\r\n\r\n"),
    "a blank before a chunk size": post(CHUNKED, b" 1\r\nx\r\n0\r\n\r\n"),
    "a huge chunk size": post(CHUNKED, b"10000000000000001\r\nx\r\n0\r\n\r\n"),
    "an empty chunk size": post(CHUNKED, b"\r\nx\r\n0\r\n\r\n"),
    "a bare LF behind a chunk size": post(CHUNKED, b"1\nx\r\n0\r\n\r\n"),
    "a bare LF in an extension": post(CHUNKED, b"1;\nx\r\n0\r\n\r\n"),
    "a chunk that is too long": post(CHUNKED, b"1\r\nxy\r\n0\r\n\r\n"),
    "a chunk without its end": post(CHUNKED, b"1\r\nx0\r\n\r\n"),
    "a folded trailer": post(CHUNKED, b"0\r\nX: a\r\n b\r\n\r\n"),
    "a trailer with a bare LF": post(CHUNKED, b"0\r\nX: a\nb\r\n\r\n"),
    "a Content-Length in a trailer": post(CHUNKED, b"0\r\nContent-Length: 4\r\n\r\n"),
    "a Transfer-Encoding in a trailer": post(CHUNKED, b"0\r\nX: a\r\nTRANSFER-ENCODING: chunked\r\n\r\n"),
    "a trailer that is no field": post(CHUNKED, b"0\r\nGET / HTTP/1.1\r\n\r\n"),
}


@pytest.mark.requirement("bad-input")
@pytest.mark.parametrize("size", [0, 1, 7])
@pytest.mark.parametrize("name", REFUSED)
def test_what_parsers_could_frame_differently_is_refused_however_it_is_cut(name: str, size: int) -> None:
    found, status = framed(GET + REFUSED[name] + GET, size)
    assert len(found) == 1
    assert status is not None


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"GET /" + b"x" * MOST + b" HTTP/1.1\r\n\r\n", 431),
        (b"GET /" + b"x" * MOST, 431),
        (post(b"X: " + b"y" * MOST + b"\r\n", b""), 431),
        (post(CHUNKED, b"0\r\n" + b"X: y\r\n" * MOST), 431),
        (post(CHUNKED, b"0\r\nX: " + b"y" * (MOST + 1)), 431),
        (post(CHUNKED, b"1\r\nx\r\n" * MOST), 413),
        (post(CHUNKED, (b"1;" + b"e" * 200 + b"\r\nx\r\n") * 100), 413),
        (b"PUT / HTTP/3.0\r\n\r\n", 505),
        (b"BREW / HTTP/1.1\r\n\r\n", 501),
    ],
)
@pytest.mark.parametrize("size", [0, 1, 100])
def test_what_is_too_large_or_unknown_is_refused_with_its_own_status(data: bytes, status: int, size: int) -> None:
    assert framed(data, size) == ([], status)


def test_a_header_that_is_too_long_is_refused_before_it_is_searched() -> None:
    """One read may bring 256 KiB. Searching all of it would take some milliseconds for each connection."""
    with pytest.raises(FramingError) as refused:
        HeadReader(MOST).feed(b"GET / HTTP/1.1\r\nX: " + b"y" * MOST + b"\n\n")
    assert refused.value.status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE


def test_a_long_body_in_chunks_of_a_few_bytes_is_accepted() -> None:
    [request] = framed(post(CHUNKED, b"8\r\n12345678\r\n" * MOST + b"0\r\n\r\n"))[0]
    assert request.body == b"12345678" * MOST


def test_trailers_are_no_header_fields() -> None:
    [request] = framed(post(CHUNKED, b"1;a=b\r\nx\r\n0\r\nAuthorization: Bearer x\r\nHost: b\r\n\r\n"))[0]
    assert request.fields == ((b"host", b"a"), (b"transfer-encoding", b"chunked"))
    assert request.body == b"x"


def test_an_upgrade_to_another_protocol_does_not_change_where_a_request_ends() -> None:
    wish = b"Connection: Upgrade\r\nUpgrade: h2c\r\n"
    data = post(wish + b"Content-Length: 3\r\n", b"abc") * 600 + GET
    found, status = framed(data)
    assert status is None and [each.body for each in found] == [b"abc"] * 600 + [b""]


def test_only_one_value_of_upgrade_requests_a_websocket() -> None:
    def wants(fields: bytes) -> bool:
        found = HeadReader(MOST).feed(b"GET / HTTP/1.1\r\n" + fields + b"\r\n")
        assert found is not None
        return found[0].wants_websocket

    assert wants(b"Connection: keep-alive, Upgrade\r\nUpgrade: WebSocket\r\n")
    assert wants(b"Connection: keep-alive\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n")
    assert not wants(b"Upgrade: websocket\r\n")
    assert not wants(b"Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n")
    assert not wants(b"Connection: Upgrade\r\nUpgrade: websocket\r\nUpgrade: h2c\r\n")


LINES = [
    *(
        b"Content-Length: 3",
        b"content-length:3 ",
        b"Content-Length: 03",
        b"Content-Length: 3, 3",
        b"Content-Length: -3",
    ),
    *(b"Transfer-Encoding: chunked", b"Transfer-Encoding: Chunked", b"Transfer-Encoding: identity", b"TE: trailers"),
    b"Content-Length: -3",
    *(b"Connection: close", b"Connection: keep-alive", b"Connection: Upgrade, HTTP2-Settings", b"Upgrade: h2c"),
    *(
        b"Expect: 100-continue",
        b"Trailer: X",
        b"X: y",
        b"X:",
        b"X: \xff",
        b" x",
        b"X : y",
        b"X\x0b: 1",
        b"X: \x7f",
        b"",
    ),
]
BODIES = [
    *(b"", b"abc", b"\r\n", b"\n", b"0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\n", b"3;x=1\r\nabc\r\n0\r\nX: y\r\n\r\n"),
    *(b"3 \r\nabc\r\n0\r\n\r\n", b"00003\r\nabc\r\n000\r\n\r\n", b"3\r\nabc\r\n", b"3\nabc\n0\n\n"),
    b"a\r\n0123456789\r\n0\r\n\r\n",
]
STARTS = [
    *(b"GET / HTTP/1.1", b"POST /x HTTP/1.1", b"POST http://a/x HTTP/1.1", b"POST /x HTTP/1.0", b"OPTIONS * HTTP/1.1"),
    *(b"POST /x HTTP/1.1 ", b"GET /", b"HEAD / HTTP/1.1", b"POST  / HTTP/1.1", b"DELETE / HTTP/1.1"),
]
CHANGES = [b"", b"\r", b"\n", b"\r\n", b" ", b"\x00", b":", b"0"]


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """Consecutive requests that are almost right, with some bytes changed."""
    data = b""
    for _ in range(draw(st.integers(1, 4))):
        lines = [draw(st.sampled_from(STARTS)), b"Host: a", *draw(st.lists(st.sampled_from(LINES), max_size=3))]
        data += b"\r\n".join([*lines, b"", b""]) + draw(st.sampled_from(BODIES))
    for _ in range(draw(st.integers(0, 2))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.sampled_from(CHANGES)) + data[at + draw(st.integers(0, 2)) :]
    return data


@pytest.mark.requirement("bad-input")
@settings(max_examples=3000, deadline=None)
@given(streams(), st.integers(0, 9))
def test_whatever_is_accepted_is_framed_as_by_h11_and_however_it_is_cut(data: bytes, size: int) -> None:
    whole, status = framed(data)
    assert framed(data, size)[0] == whole
    assert (framed(data, size)[1] is None) == (status is None)
    # The gate decides how many Host fields there may be.
    named = [sum(name == b"host" for name, _ in each.fields) == 1 for each in whole]
    count = named.index(False) if False in named else len(named)
    assert framed_by_h11(data, count) == whole[:count]
