"""Two ends of a link and every event between them, in one thread, with a number as the clock.

The shells here do what `peers/tab.py` and `reconnect.py` do, without sockets or event loops, so that the same test
runs on CPython and in Pyodide. A call is checked at its end: how often it ran, what its caller received, and in
which order.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from tabserver.wire.codec import TextCodec
from tabserver.wire.eras import Era
from tabserver.wire.errors import BufferFull
from tabserver.wire.events import (
    ClockRead,
    Closed,
    Event,
    Expired,
    Opened,
    Received,
    Silence,
    Undeliverable,
    Violation,
    Welcomed,
)
from tabserver.wire.frames import Caller, Greeting, Kind, Terms
from tabserver.wire.limits import Limits
from tabserver.wire.link import Link
from tabserver.wire.pending_calls import PendingCalls
from tabserver.wire.request_history import RecordedAnswer, RequestHistory, RequestStanding
from tabserver.wire.states import Phase

REFUSED_BY_RELAY, REFUSED_BY_WORKER = "!", "?"
CALLER = Caller(Era.MODERN, "2026-07-28", "tester")
LIMITS = Limits(
    ack_after_messages=3,
    grace_s=30.0,
    heartbeat_s=20.0,
    watchdog_s=50.0,
    replay_messages=40,
    replay_bytes=4_000,
    max_part=40,
    max_message=400,
    parts_in_flight=2,
    large_at_once=2,
)


@dataclass(slots=True, eq=False)
class Call:
    """One call as its caller sees it."""

    number: int
    size: int
    refused: str = ""  # "request" or "answer": the end that gets it closes the socket instead of accepting it
    outcome: str | None = None
    result: str | None = None
    runs: int = 0
    received: list[int] = field(default_factory=list)

    @property
    def channel(self) -> str:
        return f"c{self.number}"

    @property
    def is_measured(self) -> bool:
        return self.number % 3 == 0

    @property
    def payload(self) -> str:
        pad = REFUSED_BY_WORKER if self.refused == "request" else "q"
        return json.dumps({"call": self.number, "pad": pad * (self.size or 1)})

    @property
    def answer(self) -> str:
        pad = REFUSED_BY_RELAY if self.refused == "answer" else "a"
        return json.dumps({"result": self.number, "pad": pad * (self.size or 1)})

    def end(self, outcome: str, result: str | None = None) -> None:
        assert self.outcome is None, f"call {self.number} was {self.outcome}, and now is {outcome}"
        self.outcome, self.result = outcome, result


@dataclass(slots=True, eq=False)
class Wire:
    """One socket. Frames cross when the test lets them; each end detects the loss separately."""

    up: list[tuple[str, str | None]] = field(default_factory=list)
    down: list[tuple[str, str | None]] = field(default_factory=list)
    is_dead: bool = False
    relay_knows: bool = False


class RelayEnd:
    """One session of the relay: corresponds to BrowserPeer."""

    def __init__(self, world: World, inst: str, sid: str) -> None:
        self.world = world
        self.inst = inst
        self.link: Link[str] = world.make_link(Terms(sid, world.epoch, "b", max_message=LIMITS.max_message))
        self.wire: Wire | None = None

    def pump(self) -> None:
        self.write()
        for event in self.link.events():
            self.take(event)
        self.write()

    def write(self) -> None:
        frames = self.link.frames()
        wire = self.world.newest if self.world.writes_to_newest else self.wire
        if wire is not None:
            wire.down.extend(frames)

    def take(self, event: Event) -> None:
        world = self.world
        if isinstance(event, Received):
            if event.kind is Kind.RES and event.id is not None:
                call = world.pending.pop((event.channel, event.id), None)
                if event.reported is not None:
                    assert event.reported["out"] <= round(world.now * 1e6) and world.calls[int(event.id)].is_measured
                    world.seen["times reported"] += 1
                if call is not None and '"error"' in event.payload:
                    call.end("unknown")
                elif call is not None:
                    call.end("ok", event.payload)
            elif event.related is not None:
                call = world.pending.get((event.channel, event.related))
                if call is not None:
                    call.received.append(json.loads(event.payload)["note"])
        elif isinstance(event, ClockRead):
            # The clock crosses the link in whole microseconds.
            assert event.stamp <= event.theirs * 1e6 + 1 and event.theirs <= world.now + 1e-6
            world.seen["clock reads"] += 1
        elif isinstance(event, Welcomed):
            if not event.resumed:
                again, lost = world.pending.claim(self.inst)
                for call in again:
                    self.ask_again(call)
                for call in lost:
                    call.end("unknown")
            if world.holder is not self:
                displaced, world.holder = world.holder, self
                if displaced is not None:
                    world.forget(displaced)
        elif isinstance(event, Closed):
            for call in world.pending.take_channel(event.channel):
                call.end("unknown")
        elif isinstance(event, Expired):
            world.forget(self)
            if world.holder is self:
                world.holder = None
                for call in world.pending.abandon():
                    call.end("unknown")
        elif isinstance(event, Undeliverable):
            call = world.pending.pop((event.channel, event.id), None) if event.id is not None else None
            if call is not None:
                call.end("unknown")
        elif isinstance(event, Violation):
            raise AssertionError(f"the relay got an invalid frame: {event.reason}")

    def ask_again(self, call: Call) -> None:
        """Like BrowserPeer: a call that finds no room in the replay buffer ends with "unknown"."""
        try:
            self.ask(call, again=True)
        except BufferFull:
            self.world.pending.pop((call.channel, call.number), None)
            call.end("unknown")
            self.world.seen["no room to ask again"] += 1
        else:
            self.world.seen["asked again"] += 1

    def ask(self, call: Call, *, again: bool = False) -> None:
        now = self.world.now
        if call.is_measured:
            self.link.ask_clock(round(now * 1e6), now)
        self.link.send(
            *(call.channel, Kind.REQ, call.payload, now),
            id=call.number,
            caller=CALLER,
            again=again,
            is_measured=call.is_measured,
        )


class WorkerEnd:
    """One worker instance: corresponds to Transport and the MCP core."""

    def __init__(self, world: World, inst: str) -> None:
        self.world = world
        self.inst = inst
        self.link: Link[str] = world.make_link(Greeting("s", inst, "b"))
        self.history = RequestHistory(TextCodec())
        self.open: set[str] = set()
        self.running: dict[int, int] = {}
        self.unsent: list[tuple[int, str]] = []
        self.wire: Wire | None = None

    def pump(self) -> None:
        for event in self.link.events():
            self.take(event)
        self.flush()
        self.write()

    def write(self) -> None:
        frames = self.link.frames()
        if self.wire is not None:
            self.wire.up.extend(frames)

    def take(self, event: Event) -> None:
        if isinstance(event, Received):
            self.requested(event)
        elif isinstance(event, Welcomed):
            if not event.resumed:
                self.open.clear()
                self.unsent.clear()
        elif isinstance(event, Opened | Silence | Expired):
            raise AssertionError(f"unexpected {event}")
        elif isinstance(event, Violation):
            raise AssertionError(f"the worker got an invalid frame: {event.reason}")

    def requested(self, event: Received[str]) -> None:
        if event.kind is not Kind.REQ:
            return
        number = json.loads(event.payload)["call"]
        assert event.is_measured is self.world.calls[number].is_measured
        self.open.add(event.channel)
        standing: RecordedAnswer[str] | RequestStanding = RequestStanding.UNKNOWN
        if event.again and not self.world.ignores_history:
            standing = self.history.lookup(event.channel, number)
        if isinstance(standing, RecordedAnswer):
            self.unsent.append((number, standing.payload))
        elif standing is RequestStanding.FORGOTTEN:
            self.open.discard(event.channel)
            self.link.close(event.channel, "forgotten", self.world.now)
            self.world.seen["forgotten"] += 1
        elif standing is RequestStanding.UNKNOWN:
            self.history.begin(event.channel, number)
            self.running[number] = 0
            self.world.calls[number].runs += 1

    def note(self, number: int) -> None:
        """Progress of a running call; like the transport, drops it when there is no room or no caller."""
        self.running[number] += 1
        call = self.world.calls[number]
        if call.channel in self.open:
            text = json.dumps({"note": self.running[number]})
            try:
                self.link.send(call.channel, Kind.NOTE, text, self.world.now, related=number)
            except BufferFull:
                self.world.seen["notices dropped"] += 1
        self.pump()

    def finish(self, number: int) -> None:
        del self.running[number]
        call = self.world.calls[number]
        self.history.finish(call.channel, number, call.answer, self.world.now)
        if call.channel in self.open:
            self.unsent.append((number, call.answer))
        self.pump()

    def flush(self) -> None:
        while self.unsent:
            number, answer = self.unsent[0]
            channel = f"c{number}"
            if channel in self.open:
                try:
                    is_measured = self.world.calls[number].is_measured
                    times = f'{{"in":0,"out":{round(self.world.now * 1e6)}}}' if is_measured else ""
                    self.link.send(channel, Kind.RES, answer, self.world.now, id=number, times=times)
                except BufferFull:
                    return
            self.unsent.pop(0)


class World:
    """A relay, the present worker, and the sockets between them."""

    # Faults that a test may introduce; see the mutants.
    ignores_history = False
    writes_to_newest = False
    resends_refused = False

    def __init__(self) -> None:
        self.now = 0.0
        self.epoch = "e0"
        self.calls: list[Call] = []
        self.pending: PendingCalls[Call] = self.make_pending_calls()
        self.sessions: dict[str, RelayEnd] = {}
        self.holder: RelayEnd | None = None
        self.wires: list[Wire] = []
        self.newest: Wire | None = None
        self.seen: Counter[str] = Counter()
        self.worker = WorkerEnd(self, "w0")

    def make_link(self, who: Terms | Greeting) -> Link[str]:
        return Link.accepter(who, LIMITS) if isinstance(who, Terms) else Link.dialer(who, LIMITS)

    def make_pending_calls(self) -> PendingCalls[Call]:
        return PendingCalls()

    # -- callers, tools and clocks -------------------------------------------------------------------------------------

    def call(self, size: int, refused: str = "") -> None:
        call = Call(len(self.calls), size, refused)
        self.calls.append(call)
        self.seen["calls"] += 1
        if self.holder is None or not self.holder.link.is_up:
            call.end("not delivered")
            return
        try:
            self.holder.ask(call)
        except BufferFull:
            call.end("not delivered")
            self.seen["busy"] += 1
            return
        self.pending[call.channel, call.number] = call
        self.holder.pump()

    def tick(self, seconds: float, asleep: str = "none") -> None:
        """Advance the clock, and fire due timers, except at the end that is `asleep`."""
        end = self.now + seconds
        while True:
            ends = [each for each in self.ends() if each not in self.ends(asleep)]
            due = [timer for each in ends if (timer := each.link.next_timer()) is not None and timer <= end]
            if not due:
                break
            self.now = max(self.now, min(due))
            self.fire(ends)
        self.now = end

    def ends(self, who: str = "both") -> list[WorkerEnd | RelayEnd]:
        """The relay, the worker, both or neither."""
        worker: list[WorkerEnd | RelayEnd] = [self.worker] if who in ("worker", "both") else []
        return worker + (list(self.sessions.values()) if who in ("relay", "both") else [])

    def fire(self, ends: Sequence[WorkerEnd | RelayEnd]) -> None:
        """What a timer's callback does at each end."""
        for each in ends:
            each.link.handle_timer(self.now)
            if isinstance(each, RelayEnd):
                each.pump()
                continue
            for event in each.link.events():
                if isinstance(event, Silence):
                    self.worker_loses_socket()
                else:
                    each.take(event)
            each.pump()

    def stall(self, seconds: float, who: str, seed: int) -> None:
        """The process of one end, or of both, stalls: SIGSTOP, sleep, a blocked event loop. When it resumes, every due
        timer is late, and they fire in any order, before anything that waits on the socket is read."""
        self.tick(seconds, asleep=who)
        chance = random.Random(seed)
        ends = self.ends(who)
        chance.shuffle(ends)
        for each in ends:
            timers = list(each.link._timers.items())
            chance.shuffle(timers)
            each.link._timers.clear()
            each.link._timers.update(timers)
        wire = self.worker.wire
        is_unread = who != "relay" and wire is not None and not wire.is_dead and bool(wire.down)
        expected = [sid for sid in self.expected_back() if who != "worker"]
        self.fire(ends)
        assert all(sid in self.sessions for sid in expected), "a session ended while its worker waited to be let in"
        if is_unread and wire is not None:
            refused = self.seen["refused"]
            self.cross(up=False, most=50)
            self.tick(2 * LIMITS.watchdog_yield_s)
            is_kept = self.worker.wire is wire or self.seen["refused"] > refused
            assert is_kept, "a socket was given up before it was read"
            self.seen["read after a stall"] += 1
        self.seen["stalls"] += 1
        self.seen["let in after a stall"] += len(expected)

    def expected_back(self) -> list[str]:
        """Sessions in their grace period whose worker has connected: the greeting is still unread."""
        first = [json.loads(wire.up[0][0]) for wire in self.wires if wire.up and not wire.is_dead]
        asked = [frame.get("sid") for frame in first if frame["t"] == "hello"]
        return [sid for sid in asked if sid in self.sessions and self.sessions[sid].wire is None]

    # -- networks ------------------------------------------------------------------------------------------------------

    def dial(self) -> None:
        """The worker opens a new socket. It does so only when it knows that it has none."""
        assert self.worker.wire is None
        wire = Wire()
        self.wires.append(wire)
        self.newest = wire
        self.worker.wire = wire
        self.worker.link.connected(self.now)
        self.worker.pump()
        self.seen["dials"] += 1

    def cross(self, *, up: bool, most: int) -> None:
        """Let some frames cross, on every socket: an old one may still deliver frames."""
        for wire in self.wires:
            for _ in range(most):
                if up and wire.up and not wire.is_dead:
                    self.at_relay(wire, *wire.up.pop(0))
                elif not up and wire.down and not wire.is_dead:
                    self.at_worker(wire, *wire.down.pop(0))

    def at_relay(self, wire: Wire, header: str, payload: str | None) -> None:
        if payload is not None and REFUSED_BY_RELAY in payload:
            self.refuse(wire, self.worker.link if self.worker.wire is wire else None)
            return
        frame = json.loads(header)
        if frame["t"] == "hello":
            self.greet(wire, header, frame)
            return
        for session in list(self.sessions.values()):
            if session.wire is wire:
                session.link.receive(header, payload, self.now)
                session.pump()

    def greet(self, wire: Wire, header: str, frame: dict[str, str]) -> None:
        session = self.sessions.get(frame.get("sid", ""))
        if session is None or session.inst != frame["inst"]:
            sid = f"{self.epoch}-{len(self.wires)}"
            session = self.sessions[sid] = RelayEnd(self, frame["inst"], sid)
        if session.wire is not None:
            session.link.disconnected(self.now)
            self.kill(session.wire)
        session.wire = wire
        session.link.connected(self.now)
        session.link.receive(header, None, self.now)
        session.pump()

    def refuse(self, wire: Wire, sender: Link[str] | None) -> None:
        """One end closes the socket because of a frame (1009, 4400), and the sender of the frame receives the close."""
        self.seen["refused"] += 1
        if sender is not None and not self.resends_refused:
            sender.refused()
        wire.is_dead = wire.relay_knows = True
        self.relay_loses(wire)
        if self.worker.wire is wire:
            self.worker_loses_socket()

    def at_worker(self, wire: Wire, header: str, payload: str | None) -> None:
        if payload is not None and REFUSED_BY_WORKER in payload:
            sender = next((session.link for session in self.sessions.values() if session.wire is wire), None)
            self.refuse(wire, sender)
            return
        if self.worker.wire is wire:
            self.worker.link.receive(header, payload, self.now)
            self.worker.pump()

    def cut(self, *, relay_notices: bool, worker_notices: bool) -> None:
        """The newest socket dies. An end that does not notice keeps writing to it until it detects the loss."""
        wire = self.newest
        if wire is None or wire.is_dead:
            return
        wire.is_dead = True
        self.seen["cuts"] += 1
        if relay_notices:
            self.relay_loses(wire)
        if worker_notices and self.worker.wire is wire:
            self.worker_loses_socket()

    def kill(self, wire: Wire) -> None:
        wire.is_dead = True
        if self.worker.wire is wire:
            self.worker_loses_socket()

    def relay_loses(self, wire: Wire) -> None:
        for session in list(self.sessions.values()):
            if session.wire is wire:
                session.wire = None
                session.link.disconnected(self.now)
                session.pump()

    def worker_loses_socket(self) -> None:
        if self.worker.wire is not None:
            self.worker.wire.is_dead = True
            self.worker.wire = None
            self.worker.link.disconnected(self.now)

    # -- restarts ------------------------------------------------------------------------------------------------------

    def restart_relay(self) -> None:
        """Its callers lose their connections; whether their calls ran is unknown."""
        for call in self.pending.abandon():
            call.end("unknown")
        self.pending = self.make_pending_calls()
        self.sessions.clear()
        self.holder = None
        self.epoch = f"e{int(self.epoch[1:]) + 1}"
        for wire in self.wires:
            self.kill(wire)
        self.seen["relay restarts"] += 1

    def restart_worker(self) -> None:
        if self.worker.wire is not None:
            self.worker.wire.is_dead = True
        self.worker = WorkerEnd(self, f"w{int(self.worker.inst[1:]) + 1}")
        self.seen["worker restarts"] += 1

    def lose_session(self) -> None:
        """The relay keeps its callers but loses the session, as when a browser moves to another node."""
        for session in list(self.sessions.values()):
            if session.wire is not None:
                self.kill(session.wire)
        self.sessions.clear()
        self.holder = None
        self.seen["sessions lost"] += 1

    def forget(self, session: RelayEnd) -> None:
        self.sessions = {sid: each for sid, each in self.sessions.items() if each is not session}
        if session.wire is not None:
            self.kill(session.wire)

    # -- checks --------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold at every moment."""
        for call in self.calls:
            assert call.runs <= 1, f"call {call.number} ran {call.runs} times"
            assert call.received == sorted(set(call.received)), f"call {call.number} received {call.received}"
            if call.outcome == "ok":
                assert call.runs == 1 and call.result == call.answer, f"call {call.number} got {call.result}"
            elif call.outcome == "not delivered":
                assert call.runs == 0, f"call {call.number} ran, and its caller got an error that it did not"
        links = [self.worker.link, *(session.link for session in self.sessions.values())]
        for link in links:
            is_idle = link is self.worker.link and link.phase is Phase.DOWN
            assert is_idle or link.next_timer() is not None, "a link without a timer says nothing any more"
            assert link.unacknowledged <= LIMITS.replay_messages + self.seen["forgotten"]

    def heal(self) -> None:
        """No faults from here on: a call that is still unanswered then is lost."""
        for _ in range(200):
            if self.worker.wire is None:
                self.dial()
            elif self.worker.wire.is_dead:
                self.worker_loses_socket()
                continue
            for wire in self.wires:
                if wire.is_dead and not wire.relay_knows:
                    wire.relay_knows = True
                    self.relay_loses(wire)
            self.cross(up=True, most=50)
            self.cross(up=False, most=50)
            for number in list(self.worker.running):
                self.worker.finish(number)
            self.tick(1.0)
            if all(call.outcome for call in self.calls) and self.worker.link.is_up:
                break
        self.check()
        unanswered = [call.number for call in self.calls if call.outcome is None]
        assert not unanswered, f"calls {unanswered} were never answered"
