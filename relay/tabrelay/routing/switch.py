"""The switch: find the peer of a name, start the call, watch its deadline, cancel what is abandoned.

It does not know how a call came in or how it goes out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import orjson

from tabrelay.calls.calls import LISTS, QUICK, Call, CallObserver, Peer, Pending, Reply, memory_of
from tabrelay.config.settings import Settings
from tabrelay.errors import Busy, DeadlinePassed, RelayError, RelayUnavailable, ServerOffline
from tabrelay.payloads.list_checks import CHECKED_METHODS, ListBounds, Rejection
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import unavailable
from tabrelay.routing.entry import ServerEntry
from tabrelay.routing.list_filter import ListFilter
from tabrelay.routing.registry import Registry
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.control_messages import RELAY
from tabserver.wire.frames import Caller
from tabserver.wire.memory_budget import MemoryBudget

log = logging.getLogger(__name__)

# A page that was reloaded offers its tools a moment after its browser is there: lists wait for that, but not longer.
LIST_WAIT_S: Final = 1.0
# What is remembered of a server is given to its clients when it says nothing for this long: a browser that is stuck or
# has just gone is no reason for a client to give up, or to believe that the server is of another era.
FALLBACK_S: Final = 3.0
# Characters of a call that is written by its face and started by its peer in two turns of the event loop.
LARGE_CALL: Final = 64 * 1024
# What a server does for somebody: these calls are written down.
RECORDED: Final = frozenset({methods.TOOLS_CALL, methods.RESOURCES_READ, methods.PROMPTS_GET})
# Asked for with each call. In Python 3.11 a member of an enum is found by a function, each time anew.
LEGACY: Final = eras.Era.LEGACY


class RemoteLookup(Protocol):
    """Whoever knows which relay has a server's browser, where several share a bus."""

    def is_held(self, server: str) -> bool:
        """Is that known already?"""

    async def find(self, server: str) -> None:
        """Make the registry know it; raises RelayUnavailable when nobody can be asked."""


# A call under way: which server was asked for, where the call is, since when, what it costs, and the timer of one that
# is waited for less long than others.
Watched = tuple[str, str, float, int, asyncio.TimerHandle | None]


class Switch:
    """Between faces and peers. One per relay."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        on_end: Callable[[], None] = lambda: None,
        call_log: CallObserver | None = None,
        metrics: CallObserver | None = None,
    ) -> None:
        """`on_end` is called whenever a call has ended. `scribe` hears which one, and how, of those that did something
        for somebody; `meter` of all."""
        self.remote_lookup: RemoteLookup | None = None
        self._call_log = call_log
        self._metrics = metrics
        self.registry = registry
        self._settings = settings
        self._on_end = on_end
        bounds = ListBounds(
            tools=settings.max_tools,
            list_bytes=settings.max_list,
            description=settings.max_description,
            schema_depth=settings.max_schema_depth,
        )
        self._filter = ListFilter(bounds, settings.max_values)
        self._channels = itertools.count(1)
        # A worker's ledger outlives this process: a channel of ours must never have the name of an earlier one's.
        self._prefix = secrets.token_hex(5)
        self._running: dict[Pending, Watched] = {}
        self._deadlines: DeadlineQueue[Pending] = DeadlineQueue(settings.call_deadline_s, self._deadline_passed)
        self._per_session: dict[str, int] = {}
        # What calls say is kept until they are answered: a browser that comes back may have to be asked again.
        self.budget = MemoryBudget(settings.call_budget)

    @property
    def in_flight(self) -> int:
        """Calls and listeners under way."""
        return len(self._running)

    def new_channel(self) -> str:
        """A channel id that was never used before, not even by the relay that ran before this one."""
        return f"{self._prefix}-{next(self._channels):x}"

    async def locate(self, server: str) -> None:
        """Where relays share a bus: learn of a server that this one has never seen."""
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            try:
                await self.remote_lookup.find(server)
            except RelayUnavailable:
                if not self.registry.knows(server):
                    raise

    async def wait_for_start(self, server: str) -> None:
        """A server elsewhere that is just starting and that nobody has seen yet is waited for: a client that is told of
        no tools now may never ask again."""
        entry = self.registry.find(server)
        if entry.connector is not None and entry.connector.is_coming and entry.catalogue is None:
            with suppress(ServerOffline):
                await self.registry.acquire(server, self._settings.away_wait_s)

    async def start(self, server: str, call: Call, fallback: Callable[[], str | None] | None = None) -> Pending:
        """Put a call on its way. Waits for a browser that is away; raises a RelayError if it never left.

        `rescue`: the answer that is remembered. It is given when the browser leaves with the call, or takes too long.
        """
        started = time.monotonic()
        try:
            return await self._start(server, call, started, fallback)
        except RelayError as error:
            self._record(server, call, started, error)
            raise

    def _record(self, server: str, call: Call, started: float, outcome: RelayError | tuple[int | None, str]) -> None:
        took_s = time.monotonic() - started
        if call.trace is not None:
            call.trace.ended(outcome)
        if self._metrics is not None:
            self._metrics.record(server, call, took_s, outcome)
        # defence: every call is written down
        if self._call_log is not None and call.method in RECORDED:
            self._call_log.record(server, call, took_s, outcome)

    async def _start(
        self, server: str, call: Call, started: float, fallback: Callable[[], str | None] | None
    ) -> Pending:
        cost = self._claim(call)
        pending = Pending(call)
        pending.fallback = fallback
        try:
            if call.trace is not None:
                call.trace.lookup_started(server)
            if len(call.payload) > LARGE_CALL:
                await asyncio.sleep(0)  # writing it took a while, and so may starting it
            place, peer = await self._acquire(server, call)
            if call.trace is not None:
                call.trace.sent(place, "browser" if self.registry.find(place).connector is None else "elsewhere")
            if call.method in CHECKED_METHODS:
                pending.reply_filter = lambda reply: self._filter_list(place, pending, reply)
            peer.start(pending)
        except BaseException:
            self._release(call, cost)
            raise
        self._watch(server, self.registry.find(place), pending, started, cost)
        return pending

    def start_now(self, server: str, call: Call, on_peer: Callable[[Peer], None] | None = None) -> Pending | None:
        """Put a call on its way without waiting for anybody; None, and nothing was done, if that can't be.

        For calls in `NOTED`. What goes wrong at the start is how the call has ended. `meet` hears who gets it, before.
        """
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            return None  # which relay has it has to be asked first
        acquired = self.registry.acquire_now(server, call)
        if acquired is None:
            return None
        started = time.monotonic()
        entry, peer = acquired
        if on_peer is not None:
            on_peer(peer)
        pending = Pending(call)
        try:
            cost = self._claim(call)
            try:
                peer.start(pending)
            except RelayError:
                self._release(call, cost)
                raise
        except RelayError as error:
            self._record(server, call, started, error)
            pending.fail(error)
            return pending
        self._watch(server, entry, pending, started, cost)
        return pending

    def _watch(self, server: str, entry: ServerEntry, pending: Pending, started: float, cost: int) -> None:
        """From its start to its end: count it, and see to it that it ends."""
        call = pending.call
        if call.caller.principal != RELAY:
            self._count(call, entry)
        early_timer = None
        if pending.fallback is not None and self.registry.cached_catalogue(server) is not None:
            soon_s = min(self._settings.call_deadline_s, FALLBACK_S)
            early_timer = asyncio.get_running_loop().call_later(soon_s, self._deadline_passed, pending, soon_s)
        elif call.method != methods.SUBSCRIPTIONS_LISTEN:  # stays open for as long as somebody listens
            self._deadlines.add(pending)
        self._running[pending] = server, entry.name, started, cost, early_timer
        if pending.is_done:
            self._ended(pending)
        else:
            pending.on_done = self._ended

    def _ended(self, pending: Pending) -> None:
        server, _, started, cost, early_timer = self._running.pop(pending)
        call = pending.call
        if early_timer is not None:
            early_timer.cancel()
        self._deadlines.pop(pending, None)
        self._release(call, cost)
        self._on_end()
        self._record(server, call, started, pending.ended_with)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s took %.1f ms", server, call.method, (time.monotonic() - started) * 1000)

    def _deadline_passed(self, pending: Pending, timeout_s: float | None = None) -> None:
        server, place, *_ = self._running[pending]
        limit_s = self._settings.call_deadline_s if timeout_s is None else timeout_s
        pending.fail(DeadlinePassed(f'Server "{server}" did not answer "{pending.call.method}" within {limit_s:g} s.'))
        self._cancel(place, pending, "timeout")

    def _count(self, call: Call, entry: ServerEntry) -> None:
        if call.method == methods.TOOLS_CALL:
            entry.calls += 1
        elif call.method in LISTS:
            entry.listings += 1
        else:
            return
        if not entry.is_used:
            self.registry.catalogues.mark_used(entry)
        if entry.server != entry.name:  # one of the browsers that share a name: it is that server's call too
            self._count(call, self.registry.find(entry.server))

    def _filter_list(self, server: str, pending: Pending, reply: Reply) -> None:
        """Nobody is told of a tool that can't be believed."""

        def flag(flaws: Sequence[Rejection], payload: str) -> None:
            is_whole = '"cursor"' not in pending.call.payload and '"nextCursor"' not in payload
            self.registry.catalogues.flag(server, pending.call.method, flaws, is_whole=is_whole)

        self._filter.apply(pending, reply, flag)

    async def _acquire(self, server: str, call: Call) -> tuple[str, Peer]:
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            await self.remote_lookup.find(server)
        place, peer = await self.registry.acquire(server, self._settings.away_wait_s, call)
        is_listed = self.registry.find(place).is_listed
        if call.method in LISTS and not is_listed.is_set() and call.caller.principal != RELAY:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_WAIT_S):
                    await is_listed.wait()
            place, peer = await self.registry.acquire(server, self._settings.away_wait_s, call)
        return place, peer

    @contextmanager
    def holding(self, call: Call) -> Iterator[None]:
        """A call that is kept before it can start counts like those under way."""
        if not self.budget.reserve(memory_of(call.payload)):
            raise _too_many_large_calls()
        try:
            yield
        finally:
            self.budget.release(memory_of(call.payload))

    def _claim(self, call: Call) -> int:
        """Count what a call takes until it ends, also while it still waits for its browser; gives what that is."""
        if call.caller.era is LEGACY:  # a modern caller has no session, whose calls would be counted
            self._claim_session_slot(call)
        cost = memory_of(call.payload)
        # defence: calls without an answer
        if not self.budget.reserve(cost):
            if call.caller.era is LEGACY:
                self._release_session_slot(call)
            raise _too_many_large_calls()
        return cost

    def _release(self, call: Call, cost: int) -> None:
        self.budget.release(cost)
        if call.caller.era is LEGACY:
            self._release_session_slot(call)

    def _claim_session_slot(self, call: Call) -> None:
        """Count a session's calls."""
        if call.method in QUICK:
            return
        running = self._per_session.get(call.channel, 0)
        if running >= self._settings.in_flight_caller:
            text = f"This session has {running} calls in flight already. Wait until one of them is answered."
            raise Busy(text, retry_after_ms=1000)
        self._per_session[call.channel] = running + 1

    def _release_session_slot(self, call: Call) -> None:
        if call.method in QUICK:
            return
        left = self._per_session.get(call.channel, 0) - 1
        if left > 0:
            self._per_session[call.channel] = left
        else:
            self._per_session.pop(call.channel, None)

    def abandon(self, server: str, pending: Pending, why: str) -> None:
        """The caller left before the reply."""
        if not pending.is_done:
            _, place, *_ = self._running.get(pending, ("", server))
            self._cancel(place, pending, why)

    def _cancel(self, server: str, pending: Pending, why: str) -> None:
        """Tell whoever holds the name now: the call may have moved to another session since it started."""
        peer = self.registry.holder(server)
        if peer is not None:
            peer.cancel(pending, why)

    def close(self) -> None:
        """The relay stops: no new call, and calls that would never end are ended in their own way."""
        self.registry.close()
        for pending, (_, place, *_) in list(self._running.items()):
            if pending.call.method == methods.SUBSCRIPTIONS_LISTEN:
                result = {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: pending.call.id}}
                pending.finish(Reply(orjson.dumps(jsonrpc.result_message(pending.call.id, result)).decode()))
                self._cancel(place, pending, "the relay is restarting")

    def give_up(self, patience_s: float) -> None:
        """The relay stops and can't wait any longer: the callers are told, and the browsers to stop working on it."""
        for pending, (_, place, *_) in list(self._running.items()):
            text = f'The relay is restarting, and "{pending.call.method}" was not done within {patience_s:g} s.'
            pending.fail(DeadlinePassed(text))
            self._cancel(place, pending, "the relay is restarting")

    async def ask(self, server: str, call: Call, fallback: Callable[[], str | None] | None = None) -> Reply:
        """Start a call and wait for its reply, whatever notices come before."""
        pending = await self.start(server, call, fallback)
        try:
            while True:
                event = await pending.next()
                if isinstance(event, Reply):
                    return event
        except asyncio.CancelledError:
            self.abandon(server, pending, "nobody waits for it any more")
            pending.fail(unavailable())
            raise
        finally:
            pending.release()

    def notify(self, server: str, channel: str, caller: Caller, payload: str) -> None:
        """Pass a client's notification or response on, if anyone is there to hear it.

        Also to a browser that is away for a moment: the tool that a cancellation is meant for runs on without a link.
        """
        for place in self.registry.shared_names.destinations(server, channel):
            peer = self.registry.holder(place)
            if peer is not None:
                peer.notify(channel, caller, payload)

    def end(self, server: str, channel: str, why: str) -> None:
        """A session has ended: whoever had a call of it is told."""
        for place in self.registry.shared_names.destinations(server, channel):
            peer = self.registry.holder(place)
            if peer is not None:
                peer.end(channel, why)
        self.registry.shared_names.unbind(server, channel)

    def is_up(self, server: str, session: str | None = None) -> bool:
        """Is the server there? `session`: for the one that has this channel."""
        peer = self.registry.holder(server, session)
        return peer is not None and peer.is_up


def _too_many_large_calls() -> Busy:
    text = "The relay has too many large calls without an answer. Try again in a moment."
    return Busy(text, retry_after_ms=1000)
