"""L16: a frame that made the other end close the socket is not sent again, and its caller gets one true outcome."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from tabserver.wire.eras import Era
from tabserver.wire.errors import MessageTooLarge
from tabserver.wire.events import Event, Received, Undeliverable, Violation
from tabserver.wire.frames import MAX_HEADER, MAX_WHY, Caller, Greeting, Kind, Terms, decode
from tabserver.wire.jsonrpc import MAX_ID
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.sender import Sender
from tests.support.simulated_link import World
from tests.wire.test_link_survival import EXAMPLES, MUTANT_EXAMPLES, MutantLinks, Survival, hunt

CALLER = Caller(Era.MODERN, "2026-07-28", "tester")


class Refusals(Survival):
    """The same machine, in which either end may refuse what it is sent."""

    @rule(size=st.sampled_from([0, 0, 30, 200]), refused=st.sampled_from(["answer", "answer", "request"]))
    def a_call_whose_frames_are_refused(self, size: int, refused: str) -> None:
        self.world.call(size, refused)


def test_nothing_is_lost_or_run_twice_where_frames_are_refused() -> None:
    seen = hunt(World, EXAMPLES, Refusals)
    enough = {"refused": 0.3, "outcome ok": 0.5, "outcome unknown": 0.3}
    assert {name: seen[name] for name, least in enough.items() if seen[name] < least * EXAMPLES} == {}


class SendsTheRefusedFrameAgain(World):
    """As before L16: each new socket ends like the previous one."""

    resends_refused = True


class ForgetfulSender(Sender[Any]):
    def drop_first(self, upto: int, ack: int) -> dict[str, Any] | None:
        if self._kept and self._kept[0][0] <= upto:
            self._kept.popleft()
        return None


class LeavesAGap(MutantLinks):
    """The refused frame is removed together with its number."""

    sender = ForgetfulSender


class EagerSender(Sender[Any]):
    def drop_first(self, upto: int, ack: int) -> dict[str, Any] | None:
        super().drop_first(upto, ack)
        return None


class NotifiesNoCaller(MutantLinks):
    """A request that was refused is replaced, and its caller gets no outcome."""

    sender = EagerSender


@pytest.mark.parametrize(
    "mutant", [SendsTheRefusedFrameAgain, LeavesAGap, NotifiesNoCaller], ids=lambda each: each.__name__
)
def test_a_link_with_one_rule_broken_is_caught(mutant: type[World]) -> None:
    with pytest.raises(AssertionError):
        hunt(mutant, MUTANT_EXAMPLES, Refusals)


# -- one frame at a time ----------------------------------------------------------------------------------------------


class Ends:
    """A worker and a relay. `refuses`: the payload that the relay does not accept."""

    def __init__(self, refuses: Callable[[str], bool] = lambda payload: False) -> None:
        self.limits = Limits(max_part=40, max_message=4_000)
        self.worker: Link[str] = Link.dialer(Greeting("s", "w", "b"), self.limits)
        self.relay: Link[str] = Link.accepter(Terms("sid", "e", "b", max_message=4_000), self.limits)
        self.refuses = refuses
        self.said: Counter[str] = Counter()

    def dial(self) -> None:
        self.worker.connected(0.0)
        self.relay.connected(0.0)

    def carry(self) -> bool:
        """Frames cross until there are none; False if the relay closed the socket meanwhile."""
        while frames := self.worker.frames():
            for header, payload in frames:
                if payload is not None and self.refuses(payload):
                    self.said[payload] += 1
                    self.worker.refused()
                    self.worker.disconnected(0.0)
                    self.relay.disconnected(0.0)
                    return False
                self.relay.receive(header, payload, 0.0)
            for header, payload in self.relay.frames():
                self.worker.receive(header, payload, 0.0)
        return True

    def received(self) -> list[Event]:
        return [event for event in self.relay.events() if isinstance(event, Received | Violation)]


@pytest.mark.parametrize("size", [1, 30, 39, 41, 200, 1000])
def test_an_answer_that_ends_a_socket_is_replaced_by_an_error_and_what_follows_arrives(size: int) -> None:
    ends = Ends(lambda payload: "!" in payload)
    ends.dial()
    assert ends.carry()
    ends.worker.send("c1", Kind.RES, "!" * size, 0.0, id=7)
    ends.worker.send("c2", Kind.RES, "fine", 0.0, id=8)
    ends.worker.send("c1", Kind.NOTE, "after", 0.0)
    assert not ends.carry()
    ends.dial()
    assert ends.carry()
    got = ends.received()
    answers = {(each.channel, each.id): each.payload for each in got if isinstance(each, Received) and each.id}
    assert answers["c2", 8] == "fine"
    assert json.loads(answers["c1", 7])["error"]["data"]["delivered"] == "unknown"
    assert any(isinstance(each, Received) and each.payload == "after" for each in got)
    assert [event for event in ends.worker.events() if isinstance(event, Undeliverable)] == [
        Undeliverable("c1", Kind.RES, 7)
    ]
    assert max(ends.said.values()) == 1
    # Nothing is counted any more, at either end, and large messages are still sent.
    ends.worker.send("c3", Kind.RES, "x" * 300, 0.0, id=9)
    assert ends.carry()
    assert [each.payload for each in ends.received() if isinstance(each, Received)] == ["x" * 300]
    ends.relay.receive('{"t":"ack","a":0}', None, 0.0)
    ends.worker.receive(f'{{"t":"ack","a":{ends.worker._sender.last}}}', None, 0.0)
    assert (ends.worker._sender._size, ends.worker._sender._cost, ends.worker._sender._parts) == (0, 0, 0)


def test_what_was_not_sent_on_the_socket_that_ended_is_not_replaced() -> None:
    ends = Ends()
    ends.dial()
    assert ends.carry()
    ends.worker.refused()
    ends.worker.disconnected(0.0)
    ends.relay.disconnected(0.0)
    ends.worker.send("c1", Kind.RES, "fine", 0.0, id=7)
    ends.dial()
    assert ends.carry()
    assert [each.payload for each in ends.received() if isinstance(each, Received)] == ["fine"]


def test_a_refused_frame_does_not_count_as_received() -> None:
    ends = Ends()
    ends.dial()
    assert ends.carry()
    ends.relay.events()
    ends.relay.receive('{"t":"msg","s":1,"a":0,"c":"c","k":"strange"}', "x", 0.0)
    assert [type(event) for event in ends.relay.events()] == [Violation]
    assert ends.relay.last_received == 0


# -- headers ----------------------------------------------------------------------------------------------------------


def test_a_header_that_the_other_end_would_refuse_is_not_sent() -> None:
    ends = Ends()
    ends.dial()
    assert ends.carry()
    with pytest.raises(MessageTooLarge, match="header"):
        ends.worker.send("c1", Kind.RES, "x", 0.0, id="i" * MAX_HEADER)
    assert ends.worker.unacknowledged == 0


def test_the_longest_header_that_is_sent_is_taken() -> None:
    """Ids of the greatest length, which JSON writes with six or twelve characters for one, and a long caller."""
    ends = Ends()
    ends.dial()
    assert ends.carry()
    id = "\N{CRAB}" * MAX_ID
    ends.worker.send("c" * 256, Kind.REQ, "x" * 100, 0.0, id=id, related=id)
    ends.worker.close("c", "w" * 1_000_000, 0.0)
    assert ends.carry()
    events = ends.relay.events()
    assert [event.id for event in events if isinstance(event, Received)] == [id]
    assert not [event for event in events if isinstance(event, Violation)]
    assert any(getattr(event, "why", "") == "w" * MAX_WHY for event in events)
    client = {"name": "\N{CRAB}" * 4_000}
    ends.relay.send("c1", Kind.REQ, "x", 0.0, id=id, caller=Caller(Era.MODERN, "v", "p" * 512, client, tab="t" * 64))
    for header, payload in ends.relay.frames():
        ends.worker.receive(header, payload, 0.0)
    assert [event.id for event in ends.worker.events() if isinstance(event, Received)] == [id]


@pytest.mark.parametrize(
    "header",
    [
        '{"t":"msg","s":1,"a":0,"c":"c","k":"res","i":"' + "i" * (MAX_ID + 1) + '"}',
        '{"t":"msg","s":1,"a":0,"c":"c","k":"note","r":"' + "r" * (MAX_ID + 1) + '"}',
        '{"t":"msg","s":1,"a":0,"c":"c","k":"res","i":1' + "0" * 30 + "}",
        '{"t":"close","s":1,"a":0,"c":"' + "c" * 257 + '","why":""}',
        '{"t":"ack","a":0,"x":"' + "x" * MAX_HEADER + '"}',
        '{"t":"close","s":1,"a":0,"c":"c","why":"\\ud800"}',
        '{"t":"close","s":1,"a":0,"c":"\\udc00","why":""}',
        '{"t":"msg","s":1,"a":0,"c":"c","k":"res","i":"\\uD83E"}',
        '{"t":"bye","code":1,"reason":"\\ud800\\ud800"}',
    ],
    ids=lambda header: header[:40] + header[-20:],
)
def test_a_header_with_too_long_or_broken_text_is_a_violation(header: str) -> None:
    ends = Ends()
    ends.dial()
    assert ends.carry()
    ends.relay.events()
    ends.relay.receive(header, "x", 0.0)
    assert [type(event) for event in ends.relay.events()] == [Violation]


def test_a_pair_of_surrogates_is_one_character() -> None:
    assert decode('{"t":"close","s":1,"a":0,"c":"c","why":"\\ud83e\\udd80"}')["why"] == "\N{CRAB}"
