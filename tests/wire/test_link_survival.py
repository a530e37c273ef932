"""Calls over a connection that fails in every way: each runs at most once, and its caller gets one true outcome.

A property test proves nothing by passing: it must be shown to fail. So the same machine runs against mutants, which are
links with one rule broken, and must catch each of them; and the run must have exercised enough calls, cuts and restarts
to be meaningful.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tabserver.wire.events import Silence
from tabserver.wire.frames import Greeting, Terms
from tabserver.wire.link import Link
from tabserver.wire.pending_calls import PendingCalls
from tabserver.wire.receiver import Receiver
from tabserver.wire.sender import Sender
from tests.support.simulated_link import Call, World

IN_PYODIDE = sys.platform == "emscripten"
# Pyodide is several times slower; `TABRELAY_EXAMPLES` selects a longer run.
EXAMPLES = int(os.environ.get("TABRELAY_EXAMPLES", "60" if IN_PYODIDE else "200"))
STEPS = 60
MUTANT_EXAMPLES = 400


class Survival(RuleBasedStateMachine):
    """Events of a relay, a worker and their callers, in any order."""

    make_world: Callable[[], World] = World
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.world = type(self).make_world()
        self.world.dial()
        self.world.cross(up=True, most=9)
        self.world.cross(up=False, most=9)

    @rule(size=st.sampled_from([0, 0, 0, 30, 200]))
    def call(self, size: int) -> None:
        self.world.call(size)

    @rule(sizes=st.lists(st.sampled_from([0, 0, 30, 200]), min_size=1, max_size=4))
    def calls_arrive(self, sizes: list[int]) -> None:
        for size in sizes:
            self.world.call(size)
        self.everything_crosses()

    @rule()
    def everything_crosses(self) -> None:
        for _ in range(3):
            self.world.cross(up=False, most=50)
            self.world.cross(up=True, most=50)

    @rule(most=st.sampled_from([1, 1, 2, 50]))
    def frames_go_up(self, most: int) -> None:
        self.world.cross(up=True, most=most)

    @rule(most=st.sampled_from([1, 1, 2, 50]))
    def frames_go_down(self, most: int) -> None:
        self.world.cross(up=False, most=most)

    @rule(pick=st.integers(0, 99))
    @precondition(lambda self: self.world.worker.running)
    def a_tool_reports(self, pick: int) -> None:
        running = list(self.world.worker.running)
        self.world.worker.note(running[pick % len(running)])

    @rule(pick=st.integers(0, 99))
    @precondition(lambda self: self.world.worker.running)
    def a_tool_finishes(self, pick: int) -> None:
        running = list(self.world.worker.running)
        self.world.worker.finish(running[pick % len(running)])

    @rule()
    def all_tools_finish(self) -> None:
        for number in list(self.world.worker.running):
            self.world.worker.finish(number)

    @rule(who=st.sampled_from(["both", "both", "relay", "worker", "neither"]))
    def the_socket_dies(self, who: str) -> None:
        self.world.cut(relay_notices=who in ("both", "relay"), worker_notices=who in ("both", "worker"))

    @rule()
    @precondition(lambda self: self.world.worker.wire is not None and self.world.worker.wire.is_dead)
    def the_worker_notices(self) -> None:
        self.world.worker_loses_socket()

    @rule()
    @precondition(lambda self: self.world.worker.wire is None)
    def the_worker_dials(self) -> None:
        self.world.dial()

    @rule()
    def the_worker_comes_back(self) -> None:
        wire = self.world.worker.wire
        if wire is not None and wire.is_dead:
            self.world.worker_loses_socket()
        if self.world.worker.wire is None:
            self.world.dial()
            self.everything_crosses()

    @rule(seconds=st.sampled_from([0.5, 1.0, 1.0, 5.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(
        seconds=st.sampled_from([0.1, 1.0, 1.0, 20.0, 31.0, 51.0, 600.0, 86_400.0]),
        who=st.sampled_from(["both", "relay", "worker"]),
        seed=st.integers(0, 99),
    )
    def a_process_stalls(self, seconds: float, who: str, seed: int) -> None:
        self.world.stall(seconds, who, seed)

    @rule(seconds=st.sampled_from([1.0, 31.0, 86_400.0]), who=st.sampled_from(["both", "relay"]))
    @precondition(lambda self: self.world.worker.link.is_up)
    def the_relay_stalls_while_the_worker_dials(self, seconds: float, who: str) -> None:
        self.world.cut(relay_notices=True, worker_notices=True)
        if self.world.worker.wire is None:
            self.world.dial()
            self.world.stall(seconds, who, 0)

    # Disasters are rare, or no call would ever get through and nothing would be tested.
    @rule(what=st.sampled_from(["relay restarts", "worker restarts", "session is lost"] + ["nothing"] * 5))
    def a_disaster_happens(self, what: str) -> None:
        if what == "relay restarts":
            self.world.restart_relay()
        elif what == "worker restarts":
            self.world.restart_worker()
        elif what == "session is lost":
            self.world.lose_session()

    @invariant()
    def every_caller_got_a_true_outcome(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        self.world.heal()
        outcomes = Counter(f"outcome {call.outcome}" for call in self.world.calls)
        type(self).seen.update(self.world.seen + outcomes)


def hunt(world: Callable[[], World], examples: int, rules: type[Survival] = Survival) -> Counter[str]:
    machine: Any = type("Hunt", (rules,), {"make_world": staticmethod(world), "seen": Counter()})
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            deadline=None,
            database=None,
            derandomize=True,
            # A mutant only has to be caught, not explained.
            phases=[Phase.generate] if world is not World else [Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )
    seen: Counter[str] = machine.seen
    return seen


def test_nothing_is_lost_or_run_twice_whatever_happens() -> None:
    seen = hunt(World, EXAMPLES)
    print(dict(seen))
    # Counted over the whole run: a machine in which no call gets through would pass everything.
    enough = {
        "calls": 5,
        "outcome ok": 1.5,
        "outcome unknown": 0.3,
        "outcome not delivered": 0.3,
        "cuts": 0.7,
        "dials": 1.5,
        "relay restarts": 0.05,
        "worker restarts": 0.05,
        "sessions lost": 0.05,
        "asked again": 0.05,
        "stalls": 1,
        "read after a stall": 0.1,
        "let in after a stall": 0.1,
        "times reported": 0.5,
        "clock reads": 0.5,
    }
    assert {name: seen[name] for name, least in enough.items() if seen[name] < least * EXAMPLES} == {}


def test_calls_that_find_no_room_in_a_new_session_end_as_unknown() -> None:
    """Calls that were acknowledged take no room in the replay buffer. Asked again, all of them need room at once."""
    machine = Survival()
    machine.calls_arrive(sizes=[200, 200, 200, 200])
    machine.call(size=0)
    machine.call(size=200)
    machine.the_socket_dies(who="worker")
    for count in (4, 4, 4, 1):
        machine.calls_arrive(sizes=[0] * count)
    machine.a_disaster_happens(what="session is lost")
    asked = sum(call.outcome is None for call in machine.world.calls)
    machine.teardown()
    without_room = machine.world.seen["no room to ask again"]
    assert without_room > 0
    assert machine.world.seen["asked again"] == asked - without_room
    outcomes = Counter(call.outcome for call in machine.world.calls)
    assert outcomes == {"ok": asked - without_room, "unknown": without_room}


# -- mutants: one rule broken in each ----------------------------------------------------------------------------------


class SkipsDedupeById(World):
    """The worker runs a request that is sent again without a lookup in its history."""

    ignores_history = True


class WritesToTheNewestSocket(World):
    """The relay writes a session's frames to the newest socket of any session."""

    writes_to_newest = True


class AnyWorkerIsTheSame(PendingCalls[Call]):
    def claim(self, inst: str) -> tuple[list[Call], list[Call]]:
        return list(self.values()), []


class AsksANewWorkerAgain(World):
    """Calls of a worker that is gone are sent to the next one."""

    def make_pending_calls(self) -> PendingCalls[Call]:
        return AnyWorkerIsTheSame()


class MutantLinks(World):
    sender: type[Sender[Any]] = Sender
    receiver: type[Receiver[Any]] = Receiver
    link: type[Link[Any]] = Link

    def make_link(self, who: Terms | Greeting) -> Link[str]:
        link = super().make_link(who)
        # The same state with other behaviour: only methods differ.
        link.__class__ = self.link
        link._sender.__class__ = self.sender
        link._receiver.__class__ = self.receiver
        return link


class SkippingSender(Sender[Any]):
    def replay(self) -> None:
        super().replay()
        if len(self._kept) > 1:
            del self.outbox[-len(self._kept)]


class ReplaySkipsOne(MutantLinks):
    """The first frame that was not acknowledged is not sent again."""

    sender = SkippingSender


class HastySender(Sender[Any]):
    def fill(self, ack: int) -> None:
        super().fill(ack)
        self.confirm(self.last)

    def push(self, *args: Any) -> bool:
        is_written = super().push(*args)
        if is_written:
            self.confirm(self.last)
        return is_written


class AcknowledgedTooEarly(MutantLinks):
    """A frame counts as acknowledged as soon as it is written."""

    sender = HastySender


class RepeatingSender(Sender[Any]):
    """Keeps the last acknowledged frame and sends it again."""

    _last: Any = None

    def confirm(self, upto: int) -> None:
        super().confirm(upto - 1)


class CredulousReceiver(Receiver[Any]):
    def take(self, seq: int, header_size: int, payload: Any) -> bool:
        if seq <= self.rx:
            return True
        return super().take(seq, header_size, payload)


class ReplayOffByOne(MutantLinks):
    """One frame too many is sent again, and dedupe by sequence, which would hide it, is switched off."""

    sender = RepeatingSender
    receiver = CredulousReceiver


class StaleNames(Link[Any]):
    """Deletes each timer that was due at the start of the call, also one that another timer has ended since."""

    def handle_timer(self, now: float) -> None:
        for name in [name for name, due in self._timers.items() if due <= now]:
            del self._timers[name]
            if name == "ack":
                self._ack_due(now)
            elif name == "heartbeat":
                self._send_ack(now)
            elif name == "grace":
                self._grace_due(now, now)
            elif name == "recheck":
                self._recheck_due(now)
            else:
                self._rechecks_left = 2
                self._timers["recheck"] = now + 0.5


class SeveralTimersDueBreakTheLink(MutantLinks):
    """The heartbeat includes the ack and ends its timer, and the ack's timer is deleted a second time."""

    link = StaleNames


class HastyWatchdog(Link[Any]):
    def handle_timer(self, now: float) -> None:
        if self._timers.get("watchdog", now + 1) <= now:
            self._events.append(Silence("a frame"))
        super().handle_timer(now)


class GivesUpWithoutReading(MutantLinks):
    """A worker that stalled closes its socket before it has read what waits there."""

    link = HastyWatchdog


class HastyGrace(Link[Any]):
    def _grace_due(self, due: float, now: float) -> None:
        if now - due > self._limits.late_s:
            self._grace_left = -1
        super()._grace_due(due, now)


class GraceCountsStalls(MutantLinks):
    """The grace of a session runs while the relay is suspended."""

    link = HastyGrace


@pytest.mark.parametrize(
    "mutant",
    [
        SeveralTimersDueBreakTheLink,
        GivesUpWithoutReading,
        GraceCountsStalls,
        SkipsDedupeById,
        WritesToTheNewestSocket,
        AsksANewWorkerAgain,
        ReplaySkipsOne,
        AcknowledgedTooEarly,
        ReplayOffByOne,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_a_link_with_one_rule_broken_is_caught(mutant: type[World]) -> None:
    with pytest.raises((AssertionError, KeyError)):
        hunt(mutant, MUTANT_EXAMPLES)
