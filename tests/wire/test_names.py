"""The grammar of server names."""

from __future__ import annotations

import pytest

from tabserver.wire.errors import ServerNameError
from tabserver.wire.names import check_server_name


@pytest.mark.parametrize("name", ["notes", "browser-tools", "a", "A.b_c-9", "x" * 64, "0"])
def test_a_plain_name_is_taken(name: str) -> None:
    assert check_server_name(name) == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "empty"),
        ("-", "relay's own"),
        ("-notes", "relay's own"),
        (".well-known", "belong to the web"),
        ("favicon.ico", "reserved"),
        ("FavIcon.ico", "reserved"),
        ("robots.txt", "reserved"),
        ("sse", "reserved"),
        ("x" * 65, "too long"),
        ("a/b", "not allowed"),
        ("a b", "not allowed"),
        ("größe", "not allowed"),
        ("a\n", "not allowed"),
        ("a\x1b[31m", "not allowed"),
        ("a\u202eb", "not allowed"),
        ("a\u200bb", "not allowed"),
        ("_a", "not allowed"),
    ],
)
def test_another_is_refused_with_the_reason_and_nothing_raw(name: str, says: str) -> None:
    with pytest.raises(ServerNameError) as refused:
        check_server_name(name)
    assert says in str(refused.value)
    assert str(refused.value).isprintable()
