"""Two ends of a link and a connection that a test can cut. Time is a number that the test increases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tabserver.wire import frames
from tabserver.wire.eras import Era
from tabserver.wire.errors import BufferFull, LocalProtocolError, MessageTooLarge
from tabserver.wire.events import ByeReceived, Closed, Event, Expired, Opened, Received, Silence, Violation, Welcomed
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.memory_budget import MemoryBudget
from tabserver.wire.states import ACCEPTS, TRANSITIONS, Phase, Role

CALLER = Caller(Era.MODERN, "2026-07-28", "token:1", {"name": "c", "version": "1"}, {"sampling": {}})
TERMS = Terms(sid="secret-1", epoch="e1", build="b")


class Pair:
    """A worker's link, a relay's, and the connection between them. `settle` carries frames across."""

    def __init__(self, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.limits = limits
        self.now = 100.0
        self.worker: Link[str] = Link.dialer(Greeting("notes", "w1", "b"), limits)
        self.relay: Link[str] = Link.accepter(TERMS, limits)
        self.at_worker: list[Event] = []
        self.at_relay: list[Event] = []

    def connect(self) -> Pair:
        self.worker.connected(self.now)
        self.relay.connected(self.now)
        return self.settle()

    def cut(self) -> Pair:
        self.worker.disconnected(self.now)
        self.relay.disconnected(self.now)
        return self.collect()

    def settle(self) -> Pair:
        while True:
            up, down = self.worker.frames(), self.relay.frames()
            for header, payload in up:
                self.relay.receive(header, payload, self.now)
            for header, payload in down:
                self.worker.receive(header, payload, self.now)
            self.collect()
            if not up and not down:
                return self

    def collect(self) -> Pair:
        self.at_worker += self.worker.events()
        self.at_relay += self.relay.events()
        return self

    def wait(self, seconds: float) -> Pair:
        """Advance the clock; timers fire exactly when they are due."""
        end = self.now + seconds
        while True:
            due = [timer for link in (self.worker, self.relay) if (timer := link.next_timer()) is not None]
            if not due or min(due) > end:
                break
            self.now = max(self.now, min(due))
            self.worker.handle_timer(self.now)
            self.relay.handle_timer(self.now)
            self.settle()
        self.now = end
        return self

    def payloads(self, events: list[Event]) -> list[str]:
        return [event.payload for event in events if isinstance(event, Received)]


def test_after_a_greeting_both_ends_are_up() -> None:
    pair = Pair().connect()
    assert pair.worker.is_up and pair.relay.is_up
    assert pair.at_worker == [Welcomed(resumed=False, epoch="e1", build="b")]
    assert pair.worker.sid == "secret-1"


def test_callers_that_take_turns_are_never_taken_for_each_other() -> None:
    pair = Pair().connect()
    others = [replace(CALLER, principal="other"), replace(CALLER, tab="t"), replace(CALLER, capabilities={"roots": {}})]
    said = [caller for other in others for caller in (CALLER, CALLER, other)]
    for number, caller in enumerate(said):
        pair.relay.send(f"c{number}", Kind.REQ, "{}", pair.now, id=1, caller=caller)
    pair.settle()
    assert [event.caller for event in pair.at_worker if isinstance(event, Received)] == said


def test_a_message_keeps_its_channel_kind_ids_and_caller() -> None:
    pair = Pair().connect()
    pair.relay.send("c1", Kind.REQ, '{"x":1}', pair.now, id='id "7"', caller=CALLER)
    pair.relay.open("s1", Caller(Era.LEGACY, "2025-11-25", "p", ready=True), pair.now)
    pair.settle()
    pair.worker.send("c1", Kind.NOTE, "{}", pair.now, related='id "7"')
    pair.worker.send("c1", Kind.RES, "{}", pair.now, id=7)
    pair.worker.close("s1", 'bye "you"', pair.now)
    pair.settle()
    assert pair.at_worker[1:] == [
        Received("c1", Kind.REQ, 'id "7"', None, '{"x":1}', CALLER),
        Opened("s1", Caller(Era.LEGACY, "2025-11-25", "p", ready=True)),
    ]
    assert pair.at_relay[1:] == [
        Received("c1", Kind.NOTE, None, 'id "7"', "{}", None),
        Received("c1", Kind.RES, 7, None, "{}", None),
        Closed("s1", 'bye "you"'),
    ]


@pytest.mark.parametrize("lost", range(4))
def test_frames_that_were_lost_with_a_socket_are_replayed_once_and_in_order(lost: int) -> None:
    pair = Pair().connect()
    for number in range(3):
        pair.relay.send("c", Kind.REQ, str(number), pair.now, id=number)
    for header, payload in pair.relay.frames()[: 3 - lost] if lost else pair.relay.frames():
        pair.worker.receive(header, payload, pair.now)
    pair.collect().cut()
    pair.relay.send("c", Kind.REQ, "3", pair.now, id=3)
    pair.connect()
    assert pair.payloads(pair.at_worker) == ["0", "1", "2", "3"]
    assert [event.resumed for event in pair.at_worker if isinstance(event, Welcomed)] == [False, True]


def test_a_relay_that_forgot_the_session_starts_a_new_one() -> None:
    pair = Pair().connect()
    pair.worker.send("c", Kind.RES, "for no caller", pair.now, id=1)
    pair.cut()
    pair.relay = Link.accepter(Terms(sid="secret-2", epoch="e2", build="b"))
    pair.connect()
    assert pair.at_worker[-1] == Welcomed(resumed=False, epoch="e2", build="b")
    assert pair.payloads(pair.at_relay) == []
    pair.worker.send("c", Kind.RES, "for a caller", pair.now, id=1)
    pair.settle()
    assert pair.payloads(pair.at_relay) == ["for a caller"]


def test_acknowledgements_empty_the_replay_buffer() -> None:
    pair = Pair().connect()
    pair.relay.send("c", Kind.REQ, "x", pair.now, id=1)
    pair.settle()
    assert pair.relay.unacknowledged == 1
    pair.wait(1.0)
    assert pair.relay.unacknowledged == 0
    for number in range(16):
        pair.relay.send("c", Kind.REQ, "x", pair.now, id=number)
    pair.settle()
    assert pair.relay.unacknowledged == 0
    pair.relay.send("c", Kind.REQ, "x" * 70_000, pair.now, id=1)
    pair.settle()
    assert pair.relay.unacknowledged == 0


def test_the_relay_sends_at_least_every_15_seconds_so_the_watchdog_does_not_fire() -> None:
    pair = Pair().connect().wait(600)
    assert not any(isinstance(event, Silence) for event in pair.at_worker)


def test_a_silent_relay_is_noticed_after_two_and_a_half_heartbeats_and_two_more_looks() -> None:
    pair = Pair().connect()
    start, worker = pair.now, pair.worker
    for wait_s in (37.5, 38, 38.5):
        assert worker.events() == [] and worker.next_timer() == start + wait_s
        worker.handle_timer(start + wait_s)
    assert worker.events() == [Silence("a frame")]


def test_frames_that_waited_unread_while_the_worker_was_blocked_keep_the_link() -> None:
    pair = Pair().connect()
    start, worker = pair.now, pair.worker
    worker.handle_timer(start + 70)
    worker.receive('{"t":"ack","a":0}', None, start + 70)
    worker.handle_timer(start + 71)
    assert worker.events() == []


def test_a_missing_greeting_is_a_silence() -> None:
    pair = Pair()
    pair.worker.connected(pair.now)
    for wait_s in (5, 5.5, 6):
        assert pair.worker.events() == []
        pair.worker.handle_timer(pair.now + wait_s)
    assert pair.worker.events() == [Silence("a greeting")]


def fire(link: Link[str], until: float) -> float:
    """Fire each timer when it is due; returns when the last one was."""
    fired = 0.0
    while (due := link.next_timer()) is not None and due <= until:
        fired = due
        link.handle_timer(due)
    return fired


def test_the_grace_ends_the_session() -> None:
    pair = Pair().connect().cut()
    assert fire(pair.relay, pair.now + 3600) == pair.now + 60.5
    assert pair.relay.events() == [Expired()]
    assert pair.relay.is_over
    with pytest.raises(LocalProtocolError):
        pair.relay.send("c", Kind.REQ, "x", pair.now, id=1)


@pytest.mark.parametrize("stall_s", [3.0, 29.9, 61.0, 86_400.0])
@pytest.mark.parametrize("begins_s", [0.0, 1.0, 57.0])
def test_a_stall_costs_a_session_a_small_part_of_its_grace(begins_s: float, stall_s: float) -> None:
    pair = Pair().connect().cut()
    start, relay = pair.now, pair.relay
    fire(relay, start + begins_s)
    awake = start + begins_s + stall_s
    relay.handle_timer(awake)
    assert relay.events() == []
    assert fire(relay, awake + 3600) - awake >= 60 - begins_s - 60 / 8 - 1
    assert relay.events() == [Expired()]


@pytest.mark.parametrize("order", [("ack", "heartbeat"), ("heartbeat", "ack")])
def test_a_heartbeat_and_an_ack_that_are_due_at_once_are_sent_once(order: tuple[str, ...]) -> None:
    pair = Pair().connect()
    pair.worker.send("c", Kind.RES, "x", pair.now, id=1)
    pair.settle()
    timers = dict(pair.relay._timers)
    pair.relay._timers.clear()
    pair.relay._timers.update({name: timers[name] for name in order})
    pair.relay.handle_timer(pair.now + 86_400)
    assert pair.relay.frames() == [('{"t":"ack","a":1}', None)]
    assert pair.relay.next_timer() == pair.now + 86_400 + 15


def test_a_close_has_room_where_nothing_else_has() -> None:
    budget = MemoryBudget(400)
    pair = Pair(Limits(replay_messages=2)).connect()
    pair.relay._sender._budget = budget
    for number in range(2):
        pair.relay.send("c", Kind.REQ, "x", pair.now, id=number)
    budget.add(400)
    with pytest.raises(BufferFull):
        pair.relay.send("c", Kind.NOTE, "x", pair.now)
    pair.relay.close("c", "the caller left", pair.now)
    assert pair.settle().at_worker[-1] == Closed("c", "the caller left")
    pair.wait(2)
    assert budget.used == 400


def test_buffers_are_bounded_in_number_and_size() -> None:
    pair = Pair(Limits(replay_messages=2, replay_bytes=1000, max_message=900)).connect()
    with pytest.raises(MessageTooLarge):
        pair.relay.send("c", Kind.REQ, "x" * 901, pair.now, id=1)
    pair.relay.send("c", Kind.REQ, "x" * 800, pair.now, id=1)
    with pytest.raises(BufferFull):
        pair.relay.send("c", Kind.REQ, "x" * 800, pair.now, id=2)
    pair.relay.send("c", Kind.REQ, "x", pair.now, id=3)
    with pytest.raises(BufferFull):
        pair.relay.send("c", Kind.REQ, "x", pair.now, id=4)
    pair.settle().wait(2)
    pair.relay.send("c", Kind.REQ, "x" * 800, pair.now, id=5)
    assert [event.id for event in pair.settle().at_worker if isinstance(event, Received)] == [1, 3, 5]


def test_a_bye_reaches_the_other_end() -> None:
    pair = Pair().connect()
    pair.relay.bye(1012, "restart", pair.now, retry_ms=400)
    assert pair.settle().at_worker[-1] == ByeReceived(1012, "restart", 400)


GOOD = '{"t":"msg","s":1,"a":0,"c":"c","k":"res","i":1}'


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        ("", None),
        ("nonsense", None),
        ("[]", None),
        ('{"t":["msg"]}', None),
        ('{"t":"shout"}', None),
        ('{"t":"hello"}', None),
        ('{"t":"welcome","sid":"x","epoch":"e","build":"b","resumed":false,"rx":0}', None),
        ('{"t":"open","s":1,"a":0,"c":"c","o":{}}', None),
        (GOOD, None),
        (GOOD.replace('"s":1', '"s":2'), "{}"),
        (GOOD.replace('"s":1', '"s":true'), "{}"),
        (GOOD.replace('"s":1', '"s":-1'), "{}"),
        (GOOD.replace('"a":0', '"a":9'), "{}"),
        (GOOD.replace('"res"', '"reply"'), "{}"),
        (GOOD.replace('"i":1', '"i":1.5'), "{}"),
        (GOOD.replace('"i":1', '"i":[]'), "{}"),
        (GOOD.replace('"i":1', '"o":{"era":"stone"}'), "{}"),
        ("[" * 100_000, None),
    ],
)
def test_a_broken_frame_is_a_violation_and_never_an_exception(header: str, payload: str | None) -> None:
    pair = Pair().connect()
    pair.relay.receive(header, payload, pair.now)
    assert [type(event) for event in pair.relay.events()] == [Violation]


def test_a_frame_seen_before_is_dropped() -> None:
    pair = Pair().connect()
    pair.relay.receive(GOOD, "{}", pair.now)
    pair.relay.receive(GOOD, "{}", pair.now)
    assert pair.payloads(pair.relay.events()) == ["{}"]


ANSWERS = [
    *('{"t":"msg","s":1,"a":0,"c":"c1","k":"res","i":7}', '{"t":"msg","s":1,"a":1,"c":"e1-9_Z","k":"res","i":0}'),
    *('{"t":"msg","s":2,"a":0,"c":"c1","k":"res","i":7}', '{"t":"msg","s":0,"a":0,"c":"c1","k":"res","i":7}'),
    *('{"t":"msg","s":1,"a":9,"c":"c1","k":"res","i":7}', '{"t":"msg","s":01,"a":0,"c":"c1","k":"res","i":7}'),
    *('{"t":"msg","s":1,"a":0,"c":"c1","k":"res","i":-7}', '{"t":"msg","s":1,"a":0,"c":"","k":"res","i":7}'),
    *('{"t":"msg","s":1,"a":0,"c":"c1","k":"res","i":7.0}', '{"t":"msg","s":1,"a":0,"c":"c1","k":"note","i":7}'),
    '{"t":"msg","s":1,"a":0,"c":"c1","k":"res","i":99999999999999999999}',
    '{"t":"msg","s":\u0661,"a":0,"c":"c1","k":"res","i":7}',
    '{"t":"msg","s":1,"a":0,"c":"c1","k":"res","i":7}\n',
]


@pytest.mark.parametrize("payload", ["{}", None])
@pytest.mark.parametrize("header", ANSWERS)
def test_the_shortcut_for_responses_has_the_same_effect_as_receive(header: str, payload: str | None) -> None:
    ends = []
    for receive in (by_shortcut, Link.receive):
        pair = Pair().connect()
        pair.relay.send("c1", Kind.REQ, "{}", pair.now, id=7, caller=CALLER)
        pair.relay.frames()
        receive(pair.relay, header, payload, pair.now)
        events = pair.relay.events()
        ends.append((events, pair.relay.frames(), pair.relay.next_timer(), pair.relay.unacknowledged))
    assert ends[0] == ends[1]


@pytest.mark.parametrize("used", [0, 1000])
def test_many_responses_are_acknowledged_alike_by_the_shortcut_and_by_receive(used: int) -> None:
    """At once after 16, later if there are fewer, and not at all while memory is short."""
    ends = []
    for receive in (by_shortcut, Link.receive):
        budget = MemoryBudget(100)
        relay: Link[str] = Link.accepter(TERMS, budget=budget)
        relay.connected(100.0)
        relay.receive(frames.hello_header(Greeting("notes", "w1", "b"), None, 0), None, 100.0)
        relay.events()
        budget.used = used
        said = []
        for number in range(1, 40):
            receive(relay, f'{{"t":"msg","s":{number},"a":0,"c":"c1","k":"res","i":{number}}}', "{}", 100.0 + number)
            said.append((relay.events(), relay.frames(), relay.next_timer()))
        ends.append(said)
    assert ends[0] == ends[1]


def by_shortcut(link: Link[str], header: str, payload: str | None, now: float) -> None:
    """As the shell of a relay does: `receive` handles only what the shortcut leaves."""
    answered = link.answer(header, payload, now) if payload is not None else None
    if answered is None:
        link.receive(header, payload, now)
    else:
        assert payload is not None
        channel, id = answered
        link._events.append(Received(channel, Kind.RES, id, None, payload, None))


REQUEST = f'{{"t":"msg","s":1,"a":0,"c":"c1","k":"req","i":1,"o":{CALLER.text}}}'


@pytest.mark.parametrize(
    ("header", "payload"),
    [
        (REQUEST, "{}"),
        (REQUEST.replace('"i":1', '"i":"text"'), "{}"),
        (REQUEST.replace('"a":0', '"a":1'), "{}"),
        (REQUEST.replace('"a":0', '"a":9'), "{}"),
        (REQUEST.replace('"s":1', '"s":0'), "{}"),
        (REQUEST.replace('"s":1', '"s":3'), "{}"),
        (REQUEST[:-1] + ',"d":1}', "{}"),
        (REQUEST.replace("modern", "ancient"), "{}"),
        (REQUEST.replace('"req"', '"note"'), "{}"),
        (REQUEST[:-1], "{}"),
        (REQUEST, "x" * 70_000),
        (REQUEST, None),
        ('{"t":"ack","a":1}', None),
    ],
)
def test_a_usual_request_has_the_same_effect_as_one_that_is_parsed(header: str, payload: str | None) -> None:
    ends = []
    for receive in (request_by_parsing, Link.receive):
        pair = Pair().connect()
        pair.worker.send("c0", Kind.NOTE, "{}", pair.now)
        pair.worker.frames()
        receive(pair.worker, header, payload, pair.now + 1)
        received = (pair.worker.events(), pair.worker.frames(), pair.worker.next_timer(), pair.worker.unacknowledged)
        # And the next frame, twice.
        for _ in range(2):
            receive(pair.worker, REQUEST.replace('"s":1', '"s":2'), "{}", pair.now + 2)
        ends.append((received, pair.worker.events(), pair.worker.frames(), pair.worker.next_timer()))
    assert ends[0] == ends[1]


def test_many_requests_are_acknowledged_alike_whether_or_not_they_are_parsed() -> None:
    ends = []
    for receive in (request_by_parsing, Link.receive):
        pair, said = Pair().connect(), []
        for number in range(1, 40):
            receive(pair.worker, REQUEST.replace('"s":1', f'"s":{number}'), "{}", pair.now + number)
            said.append((pair.worker.events(), pair.worker.frames(), pair.worker.next_timer()))
        ends.append(said)
    assert ends[0] == ends[1]


def request_by_parsing(link: Link[str], header: str, payload: str | None, now: float) -> None:
    """As if the reader of usual headers recognised none."""
    link.request = lambda header, payload, now: None  # type: ignore[method-assign]
    link.receive(header, payload, now)


def test_unknown_fields_are_left_for_later_versions() -> None:
    pair = Pair().connect()
    pair.relay.receive(GOOD.replace('"i":1', '"i":1,"later":[1]'), "{}", pair.now)
    assert pair.payloads(pair.relay.events()) == ["{}"]


def test_another_link_version_is_refused_with_the_reason() -> None:
    pair = Pair()
    pair.relay.connected(pair.now)
    hello = frames.hello_header(Greeting("notes", "w", "b"), None, 0).replace("[1,1]", "[2,3]")
    pair.relay.receive(hello, None, pair.now)
    [event] = pair.relay.events()
    assert isinstance(event, Violation) and "version 1" in event.reason


@pytest.mark.parametrize("act", [lambda link: link.connected(0.0)])
def test_using_the_link_out_of_order_is_our_own_error(act: Callable[[Link[str]], None]) -> None:
    pair = Pair().connect()
    with pytest.raises(LocalProtocolError):
        act(pair.worker)


def test_losing_a_socket_twice_is_harmless() -> None:
    pair = Pair().connect().cut().cut()
    assert pair.worker.phase is Phase.DOWN


def test_every_phase_but_the_last_has_a_way_out_and_every_open_phase_reads_frames() -> None:
    assert {phase for phase, _ in TRANSITIONS} == set(Phase) - {Phase.OVER}
    assert set(ACCEPTS) == {(role, phase) for role in Role for phase in (Phase.GREETING, Phase.UP)}
