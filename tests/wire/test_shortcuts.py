"""Reader of request headers: it returns what parsing returns, or leaves the header to the parser."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tabserver.wire import frames
from tabserver.wire.eras import Era
from tabserver.wire.errors import RemoteProtocolError
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.jsonrpc import RequestId
from tabserver.wire.link import Link
from tabserver.wire.shortcuts import RequestHeaderReader

ALICE = Caller(Era.MODERN, "2026-07-28", "token:a", {"name": 'A "quoted"}, name'}, {"roots": {}})
BOB = replace(ALICE, principal="token:b")


def header(caller: Caller = ALICE, seq: int = 1, id: RequestId = 7, channel: str = "c1", more: str = "") -> str:
    """As a relay's link writes it."""
    return f'{{"t":"msg","s":{seq},"a":0,"c":"{channel}","k":"req","i":{json.dumps(id)},"o":{caller.text}{more}}}'


def parsed(text: str) -> tuple[Any, ...]:
    frame = frames.decode(text)
    return frame["s"], frame["a"], frame["c"], frame["i"], Caller.from_dict(frame["o"])


@pytest.mark.parametrize("id", [0, 7, 123456789012345, "", "r-7", "with space", "7"])
def test_the_reader_returns_what_parsing_returns(id: RequestId) -> None:
    requests = RequestHeaderReader()
    for seq, caller in enumerate([ALICE, ALICE, BOB, ALICE], start=1):
        text = header(caller, seq, id, f"c{seq}")
        assert requests.read(text) == parsed(text)


@pytest.mark.parametrize("id", [0, 7, "r-7"])
def test_a_request_of_a_session_has_no_caller_whatever_came_before(id: RequestId) -> None:
    requests = RequestHeaderReader()
    text = f'{{"t":"msg","s":3,"a":2,"c":"c1","k":"req","i":{json.dumps(id)}}}'
    for _ in range(2):
        assert requests.read(text) == (3, 2, "c1", id, None)
        requests.read(header())


def test_the_caller_of_the_last_one_is_the_same_object() -> None:
    """The cache of a caller is found by identity, without comparing callers."""
    requests = RequestHeaderReader()
    first, second = requests.read(header(seq=1)), requests.read(header(seq=2))
    assert first is not None and second is not None and first[4] is second[4]


@pytest.mark.parametrize(
    "text",
    [
        header(more=',"d":1'),
        header(more=',"later":"version"'),
        header().replace('"i":7', '"i":-7'),
        header().replace('"i":7', '"i":7.0'),
        header().replace('"i":7', '"i":"\\u0041"'),
        header().replace('"i":7', '"i":7,"r":1'),
        header().replace('"s":1', '"s":01'),
        header().replace('"s":1', '"s":1\u0661'),
        header().replace('"i":7', '"i":\u0667'),
        header().replace('"req"', '"res"'),
        header().replace('"req"', '"note"'),
        header().replace('"s":1,"a":0', '"a":0,"s":1'),
        header().replace(",", ", "),
        '{"t":"msg","s":1,"a":0,"c":"c1","k":"req","i":7,"d":1}',
        '{"t":"msg","s":1,"a":0,"c":"c1","k":"req","i":7} ',
        '{"t":"msg","s":1,"a":0,"c":"c1","k":"req","i":7}\n',
        '{"t":"msg","s":1,"a":0,"c":"c1","k":"req"}',
        '{"t":"ack","a":3}',
        "",
    ],
)
def test_everything_else_is_left_to_the_parser(text: str) -> None:
    requests = RequestHeaderReader()
    requests.read(header())
    assert requests.read(text) is None


@pytest.mark.parametrize("caller", ["", '"era"', "{}", "null", '{"era":"modern"}', "{", "[" * 600 + "]" * 600])
def test_a_caller_that_is_none_is_refused_every_time(caller: str) -> None:
    requests = RequestHeaderReader()
    text = header().replace(ALICE.text, caller)
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            requests.read(text)


def test_the_reader_reads_what_a_relay_writes() -> None:
    """Otherwise the shortcut would never be used, and no other test would fail."""
    relay: Link[str] = Link.accepter(Terms("s", "e", "b"))
    relay.connected(0.0)
    relay.receive(frames.hello_header(Greeting("notes", "w1", "b"), None, 0), None, 0.0)
    relay.frames()
    for id in (1, "r1"):
        relay.send("c1", Kind.REQ, "{}", 0.0, id=id, caller=ALICE)
        ((written, _),) = relay.frames()
        assert RequestHeaderReader().read(written) == parsed(written)
    relay.open("s1", ALICE, 0.0)
    relay.send("s1", Kind.REQ, "{}", 0.0, id=3)
    _, (written, _) = relay.frames()
    assert RequestHeaderReader().read(written) == (4, 0, "s1", 3, None)


def test_ids_that_are_too_long_are_left_to_the_parser() -> None:
    requests = RequestHeaderReader()
    assert requests.read(header(id="x" * 1024, channel="c" * 256)) is not None
    assert requests.read(header(id="x" * 1025)) is None
    assert requests.read(header(channel="c" * 257)) is None
