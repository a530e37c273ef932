"""Large frames: slices, their order among other frames, and memory."""

from __future__ import annotations

import json

import pytest

from tabserver.wire.errors import BufferFull, MessageTooLarge
from tabserver.wire.events import Event, Received, Violation
from tabserver.wire.frames import Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget

SMALL = Limits(max_part=10, max_message=1000, replay_bytes=4000, parts_in_flight=2, large_at_once=2)


class Ends:
    """A worker and a relay; `step` carries one round of frames across and logs them."""

    def __init__(self, limits: Limits = SMALL, budget: MemoryBudget | None = None) -> None:
        self.now = 0.0
        self.worker: Link[str] = Link.dialer(Greeting("s", "w", "b"), limits)
        self.relay: Link[str] = Link.accepter(
            Terms("sid", "e", "b", max_message=limits.max_message), limits, None, budget
        )
        self.crossed: list[tuple[str, str | None]] = []
        self.events: list[Event] = []
        self.connect()

    def connect(self) -> None:
        self.worker.connected(self.now)
        self.relay.connected(self.now)
        self.settle()

    def cut(self) -> None:
        self.worker.disconnected(self.now)
        self.relay.disconnected(self.now)

    def step(self, limit: int | None = None) -> bool:
        up, down = self.worker.frames(), self.relay.frames()
        for header, payload in up[:limit]:
            self.crossed.append((header, payload))
            self.relay.receive(header, payload, self.now)
        for header, payload in down:
            self.worker.receive(header, payload, self.now)
        self.events += self.relay.events()
        assert not any(isinstance(event, Violation) for event in self.worker.events())
        return bool(up or down)

    def settle(self) -> None:
        while self.step():
            pass

    def received(self) -> list[tuple[str, str]]:
        return [(event.channel, event.payload) for event in self.events if isinstance(event, Received)]

    def send(self, channel: str, text: str, kind: Kind = Kind.RES) -> None:
        self.worker.send(channel, kind, text, self.now, id=1 if kind is Kind.RES else None)


def test_a_large_message_arrives_whole_in_slices_of_the_part_size() -> None:
    ends = Ends()
    text = "".join(chr(97 + number % 26) for number in range(95))
    ends.send("a", text)
    ends.settle()
    assert ends.received() == [("a", text)]
    sizes = [len(payload or "") for header, payload in ends.crossed if json.loads(header)["t"] == "part"]
    assert sizes == [10] * 9 + [5]


def test_a_small_message_overtakes_a_large_one_of_another_channel() -> None:
    ends = Ends()
    ends.send("big", "x" * 500)
    ends.step()
    ends.send("small", "y")
    ends.settle()
    assert [channel for channel, _ in ends.received()] == ["small", "big"]


def test_what_follows_a_large_message_on_its_channel_stays_behind_it() -> None:
    ends = Ends()
    ends.send("a", "x" * 100, Kind.NOTE)
    ends.send("a", "then this", Kind.RES)
    ends.send("b", "meanwhile")
    ends.settle()
    assert [text[:5] for _, text in ends.received()] == ["meanw", "xxxxx", "then "]


def test_large_messages_are_sent_in_turns_and_few_at_a_time() -> None:
    ends = Ends()
    for channel in "abc":
        ends.send(channel, channel * 60)
    ends.settle()
    names = [json.loads(header)["f"] for header, _ in ends.crossed if json.loads(header)["t"] == "part"]
    assert names[:4] in ([1, 2, 1, 2], [2, 1, 2, 1])
    assert names.index(3) > 6
    assert sorted(ends.received()) == [("a", "a" * 60), ("b", "b" * 60), ("c", "c" * 60)]


@pytest.mark.parametrize("after", range(12))
def test_a_cut_between_slices_loses_and_repeats_nothing(after: int) -> None:
    ends = Ends()
    ends.send("a", "x" * 55 + "end")
    ends.send("b", "y" * 25)
    for _ in range(after):
        ends.step(limit=1)
    ends.cut()
    ends.connect()
    ends.settle()
    assert sorted(ends.received()) == [("a", "x" * 55 + "end"), ("b", "y" * 25)]


def test_a_message_sent_while_down_goes_out_in_slices_later() -> None:
    ends = Ends()
    ends.cut()
    ends.send("a", "x" * 55)
    ends.connect()
    ends.settle()
    assert ends.received() == [("a", "x" * 55)]


def test_only_a_few_slices_are_unacknowledged_at_once() -> None:
    ends = Ends()
    ends.send("a", "x" * 500)
    assert len(ends.worker.frames()) == 2
    assert ends.worker.frames() == []


def test_slices_that_come_together_are_acknowledged_together() -> None:
    ends = Ends()
    ends.send("a", "x" * 500)
    for header, payload in ends.worker.frames():
        ends.relay.receive(header, payload, ends.now)
    assert ends.relay.frames() == [('{"t":"ack","a":2}', None)]


def test_waiting_slices_count_against_the_replay_buffer() -> None:
    ends = Ends()
    for channel in "abcd":
        ends.send(channel, "x" * 950)
    with pytest.raises(BufferFull):
        ends.send("e", "x" * 950)
    with pytest.raises(MessageTooLarge):
        ends.send("e", "x" * 1001)
    ends.settle()
    ends.send("e", "x" * 950)
    ends.settle()
    assert len(ends.received()) == 5


def test_a_receiver_short_of_memory_holds_its_acknowledgement_and_small_frames_still_cross() -> None:
    budget = MemoryBudget(15, slack=3 * 10)
    ends = Ends(budget=budget)
    ends.send("a", "x" * 100)
    ends.settle()
    assert ends.received() == []
    assert budget.used <= 15 + 3 * 10  # it stops within the slices that were on their way
    ends.send("b", "small")
    ends.settle()
    assert ends.received() == [("b", "small")]
    budget.limit = 1000
    while (due := ends.relay.next_timer()) is not None and not any(channel == "a" for channel, _ in ends.received()):
        ends.now = due
        ends.relay.handle_timer(due)
        ends.settle()
    assert ("a", "x" * 100) in ends.received()
    assert budget.used == 0


def test_a_budget_that_is_spent_refuses_what_would_be_kept() -> None:
    budget = MemoryBudget(100)
    relay: Link[str] = Link.accepter(Terms("sid", "e", "b"), SMALL, None, budget)
    relay.send("a", Kind.REQ, "x" * 60, 0.0, id=1)
    with pytest.raises(BufferFull):
        relay.send("b", Kind.REQ, "x" * 60, 0.0, id=1)
    relay.end()
    assert budget.used == 0


PART = '{"t":"part","s":1,"a":0,"f":1,"q":0,"n":2,"h":{"t":"msg","c":"c","k":"res","i":1}}'


@pytest.mark.parametrize(
    "header",
    [
        PART.replace('"q":0', '"q":1'),
        PART.replace('"n":2', '"n":1'),
        PART.replace('"n":2', '"n":0'),
        PART.replace('"t":"msg",', '"t":"open",'),
        PART.replace(',"h":{"t":"msg","c":"c","k":"res","i":1}', ""),
        PART.replace('"c":"c"', '"c":7'),
    ],
)
def test_a_broken_slice_is_a_violation(header: str) -> None:
    ends = Ends()
    ends.relay.receive(header, "x", 0.0)
    assert [type(event) for event in ends.relay.events()] == [Violation]


def test_slices_that_add_up_to_too_much_are_a_violation() -> None:
    ends = Ends()
    ends.relay.receive(PART.replace('"n":2', '"n":99'), "x" * 600, 0.0)
    more = '{"t":"part","s":2,"a":0,"f":1,"q":1,"n":99}'
    ends.relay.receive(more, "x" * 600, 0.0)
    assert [type(event) for event in ends.relay.events()] == [Violation]


def test_unacknowledged_messages_without_a_reply_can_be_sent_another_way() -> None:
    ends = Ends()
    ends.relay.send("a", Kind.NOTE, "received", ends.now)
    ends.settle()
    ends.now += 5.0
    ends.worker.handle_timer(ends.now)  # it acknowledges
    ends.settle()
    ends.cut()
    ends.relay.send("a", Kind.NOTE, "note", ends.now)
    ends.relay.send("b", Kind.REQ, "call", ends.now, id=1)
    ends.relay.send("a", Kind.RES, "x" * 30, ends.now)
    ends.relay.send("a", Kind.RES, "after", ends.now)
    said = [("a", Kind.NOTE, "note"), ("a", Kind.RES, "x" * 30), ("a", Kind.RES, "after")]
    assert ends.relay.unacknowledged_messages() == said
    ends.connect()
    ends.now += 5.0
    ends.worker.handle_timer(ends.now)
    ends.settle()
    assert ends.relay.unacknowledged_messages() == []
