"""Splitting the bytes of a pipe into lines."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tabrelay.system.pipe_lines import LineSplitter, LineTooLong


def lines_of(*chunks: bytes, limit: int = 1000) -> list[bytes | LineTooLong]:
    lines = LineSplitter(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)]
    last = lines.close()
    return found if last is None else [*found, last]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
        (b'{"a":1}\r\n{"b":2}\r\n', [b'{"a":1}', b'{"b":2}']),
        (b'\n\n  \n{"a":1}\n\r\n', [b'{"a":1}']),
        (b'{"a":1}', [b'{"a":1}']),
        (b"", []),
    ],
)
def test_lines_end_with_lf_or_crlf_and_blank_ones_do_not_count(data: bytes, expected: list[bytes]) -> None:
    assert lines_of(data) == expected


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"abc", "ä€𝄞".encode(), b"\r\n", b"\n", b" ", b"x" * 40])), st.integers(1, 7))
def test_it_does_not_matter_where_the_chunks_are_cut(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    cut = [data[at : at + size] for at in range(0, len(data), size)]
    assert lines_of(*cut) == lines_of(data)


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b'{"jsonrpc":"2.0","id":7,"method":"x","params":{"a":"%s"}}', b"7"),
        (b'{ "id" : "a\\"b" , "method":"x","params":{"a":"%s"}}', b'"a\\"b"'),
        (b'{"method":"x","params":{"id":1,"a":"%s","id":2},"jsonrpc":"2.0","id":-3}', b"-3"),
        (b'{"method":"x","params":{"a":"%s"},"id":3,"jsonrpc":"2.0"}', b"3"),
        (b'{"method":"x","params":{"id":1,"a":"%s"}}', None),
        (b'{"method":"x","id":9,"params":{"a":"%s"}}', b"9"),
        (b'{"method":"%s","id":9,"params":{"a":"%s"}}', None),
        (b'{"id":null,"method":"x","params":{"a":"%s"}}', None),
        (b'{"id":1.5,"method":"x","params":{"a":"%s"}}', None),
        (b"%s", None),
    ],
)
def test_a_line_that_is_too_long_is_skipped_and_its_id_found_if_that_is_certain(line: bytes, id: bytes | None) -> None:
    long = line.replace(b"%s", b"y" * 20_000)
    cut = [long[at : at + 777] for at in range(0, len(long), 777)]
    assert lines_of(*cut, b"\n", b'{"after":1}\n') == [LineTooLong(len(long), id), b'{"after":1}']


@pytest.mark.parametrize(
    ("line", "is_answer"),
    [
        (b'{"jsonrpc":"2.0","id":7,"result":{"a":"%s"}}', True),
        (b'{"result":{"a":"%s"},"id":7,"jsonrpc":"2.0"}', True),
        (b'{"error":{"message":"%s"},"id":7}', True),
        (b'{"id":7,"result":"%s"}', True),
        (b'{"jsonrpc":"2.0","id":7,"method":"result","params":{"result":"%s"}}', False),
        (b'{"params":{"result":"%s"},"method":"x","id":7}', False),
    ],
)
def test_a_line_that_is_too_long_is_recognised_as_request_or_reply(line: bytes, is_answer: bool) -> None:
    long = line.replace(b"%s", b"y" * 20_000)
    assert lines_of(long + b"\n") == [LineTooLong(len(long), b"7", is_answer)]


def test_a_line_at_the_limit_is_carried() -> None:
    assert lines_of(b"x" * 1000 + b"\n" + b"y" * 1001 + b"\n") == [b"x" * 1000, LineTooLong(1001, None)]
