"""Frames of the link: every input is either accepted or a violation, and the quick readers agree with the full one.

A worker's link and a relay's each get the same frames twice: by the methods that read ordinary frames without parsing
them, and by `receive` alone. Events, frames to send and state must be the same, and nothing may raise.
"""

from __future__ import annotations

from typing import Any, Final

from tabserver.wire.events import ByeReceived, Received, Violation
from tabserver.wire.frames import Greeting, Kind, Terms
from tabserver.wire.link import Link

SEPARATOR: Final = b"\x1e"
GREETING: Final = Greeting(server="notes", inst="w1", build="b1")
HELLO: Final = '{"t":"hello","v":[1,1],"build":"b1","server":"notes","inst":"w1","rx":0}'
WELCOME: Final = (
    '{"t":"welcome","sid":"s1","epoch":"e1","build":"b1","resumed":false,"rx":0,"grace_ms":30000,'
    '"max_msg":16777216,"window":32}'
)


def check(data: bytes) -> None:
    frames = [_parts(piece) for piece in data.split(SEPARATOR)]
    for make, read in ((_accepter, _answer), (_dialer, _request)):
        quick, full = make(), make()
        for number, (header, payload) in enumerate(frames):
            now = 10.0 + number
            event = None if payload is None else read(quick, header, payload, now)
            if event is None:
                quick.receive(header, payload, now)
            full.receive(header, payload, now)
            events = [*([] if event is None else [event]), *quick.events()]
            assert (events, *_state(quick)) == (full.events(), *_state(full)), f"{header!r} is read in two ways"
            if any(isinstance(each, Violation | ByeReceived) for each in events):
                break  # the shell closes the socket
        for link in (quick, full):
            link.handle_timer(100.0)
            link.disconnected(101.0)


def _parts(piece: bytes) -> tuple[str, str | None]:
    header, is_two, payload = piece.decode("utf-8", "replace").partition("\n")
    return header, payload if is_two else None


def _accepter() -> Link[str]:
    link: Link[str] = Link.accepter(Terms(sid="s1", epoch="e1", build="b1"))
    link.connected(0.0)
    link.receive(HELLO, None, 0.1)
    for id in range(1, 4):
        link.send("c1", Kind.REQ, "{}", 0.2, id=id)
    link.events()
    link.frames()
    return link


def _dialer() -> Link[str]:
    link: Link[str] = Link.dialer(GREETING)
    link.connected(0.0)
    link.receive(WELCOME, None, 0.1)
    link.events()
    link.frames()
    return link


def _answer(link: Link[str], header: str, payload: str, now: float) -> Received[str] | None:
    found = link.answer(header, payload, now)
    return None if found is None else Received(found[0], Kind.RES, found[1], None, payload, None)


def _request(link: Link[str], header: str, payload: str, now: float) -> Received[str] | None:
    return link.request(header, payload, now)


def _state(link: Link[str]) -> Any:
    return link.frames(), link.phase, link.last_received, link.unacknowledged, link.next_timer()
