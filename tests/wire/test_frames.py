"""Encoding, decoding and bounds of frames."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tabserver.wire import eras, frames
from tabserver.wire.eras import Era
from tabserver.wire.errors import MessageTooLarge, RemoteProtocolError
from tabserver.wire.frames import Caller, Greeting, Terms


def test_a_message_is_cut_at_its_first_newline_only() -> None:
    assert frames.split('{"t":"msg"}\n{"a":\n1}') == ('{"t":"msg"}', '{"a":\n1}')
    assert frames.split('{"t":"ack"}') == ('{"t":"ack"}', None)
    assert frames.split("") == ("", None)


def test_a_caller_survives_the_wire() -> None:
    caller = Caller(Era.LEGACY, "2025-06-18", "p", {"name": "x"}, {"roots": {}}, ready=True)
    assert Caller.from_dict(caller.to_dict()) == caller


@pytest.mark.parametrize("value", [None, [], {}, {"era": "modern"}, {"era": "modern", "version": 1, "principal": "p"}])
def test_a_caller_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(RemoteProtocolError):
        Caller.from_dict(value)


SLICE = '{"t":"part","s":12,"a":3,"f":1,"q":10,"n":16}'
ACK = '{"t":"ack","a":7}'


@pytest.mark.parametrize(
    "header",
    [
        SLICE,
        ACK,
        SLICE.replace("12", "0"),
        SLICE.replace("12", "012"),
        SLICE.replace("12", "-12"),
        SLICE.replace("12", "1.5"),
        SLICE.replace("12", "٣"),
        SLICE.replace("12", "true"),
        SLICE.replace("12", "9" * 15),
        SLICE.replace("12", "9" * 400),
        SLICE.replace(",", ", "),
        SLICE.replace('"q":10,', ""),
        SLICE.replace('"n":16', '"n":16,"n":2'),
        SLICE[:-1] + ',"h":{"t":"msg","c":"c1","k":"res","i":1}}',
        SLICE[:-1],
        SLICE + "\n",
        SLICE + "}",
        ACK.replace("7", "-0"),
        ACK.replace("7", '"7"'),
        ACK.replace(":7", ": 7"),
        ACK[:-1] + ',"more":1}',
        ACK + " ",
        ACK + "{}",
    ],
)
def test_the_shortcut_for_slices_and_acknowledgements_returns_what_parsing_returns(header: str) -> None:
    ends = []
    for text in (header, " " + header):  # a leading blank has no meaning, and avoids the shortcut
        try:
            ends.append(frames.decode(text))
        except RemoteProtocolError as error:
            ends.append({"refused": str(error)})
    assert ends[0] == ends[1]


def test_a_hello_names_the_session_to_resume() -> None:
    fresh = frames.decode(frames.hello_header(Greeting("notes", "w1", "b"), None, 0))
    again = frames.decode(frames.hello_header(Greeting("notes", "w1", "b"), "sid", 7))
    assert "sid" not in fresh
    assert (again["sid"], again["rx"], again["inst"], again["server"]) == ("sid", 7, "w1", "notes")


def test_a_welcome_states_the_terms() -> None:
    frame = frames.decode(frames.welcome_header(Terms("s", "e", "b", grace_ms=5, max_message=9, window=3), True, 4))
    assert frame == {
        "t": "welcome",
        "sid": "s",
        "epoch": "e",
        "build": "b",
        "resumed": True,
        "rx": 4,
        "grace_ms": 5,
        "beat_ms": 15_000,
        "max_msg": 9,
        "window": 3,
    }


def test_a_legacy_version_is_answered_in_kind_and_an_unknown_one_with_the_newest() -> None:
    assert eras.negotiate("2025-03-26") == "2025-03-26"
    for strange in ("2031-01-01", "2026-07-28", None, 7):
        assert eras.negotiate(strange) == "2025-11-25"


def nested(levels: int) -> str:
    return '{"t":"open","s":1,"a":0,"c":"c1","o":' + '{"x":' * levels + "1" + "}" * levels + "}"


def test_a_header_nests_so_deeply_and_no_more_and_brackets_in_strings_do_not_count() -> None:
    assert frames.decode(nested(frames.MAX_DEPTH - 1))["t"] == "open"
    with pytest.raises(RemoteProtocolError, match="deeply"):
        frames.decode(nested(frames.MAX_DEPTH))
    for text in ("[" * 1000, '"[' * 1000, "\\" * 999 + "[" * 1000, '\\"{' * 1000):
        frame = {"t": "close", "s": 1, "a": 0, "c": "c1", "why": text}
        assert frames.decode(json.dumps(frame)) == frame
        with pytest.raises(RemoteProtocolError, match="deeply"):
            frames.decode(json.dumps(frame)[:-1] + ',"x":' + "[" * 501 + "]" * 501 + "}")


@pytest.mark.parametrize("piece", ['"', '\\"', "\\", '"\\', "[", '"['])
def test_the_depth_of_a_header_is_found_in_linear_time(piece: str) -> None:
    """At a quadratic cost, 120,000 characters would take minutes."""
    began = time.process_time()
    for text in (piece * (120_000 // len(piece)), '"' + piece * (120_000 // len(piece))):
        frames.is_deep("[" * 501 + text)
        frames.is_deep(("[]" * 501 + text)[: frames.MAX_HEADER])
    assert time.process_time() - began < 5


def test_a_caller_that_no_header_can_carry_has_no_text() -> None:
    deep: dict[str, Any] = {}
    for _ in range(990):
        deep = {"x": deep}
    for capabilities in (deep, {"x": "x" * frames.MAX_CALLER}):
        with pytest.raises(MessageTooLarge):
            _ = Caller(Era.MODERN, "2026-07-28", "p", None, capabilities).text


def test_an_id_of_a_channel_is_a_word_of_at_most_256_characters() -> None:
    assert frames.is_channel("3f9a12-1c") and frames.is_channel("c" * 256)
    for value in ("", "c" * 257, 'c","s":1', "c\n", "ü", 5, None):
        assert not frames.is_channel(value)
