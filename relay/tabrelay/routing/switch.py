"""Switch between faces and peers: finds the peer of a name, starts the call, enforces its deadline, cancels it.

Each call has exactly one end: a reply, an error of the peer, its deadline, or the stop of the relay. Calls without an
answer are bounded in memory, and per session in number. The switch does not depend on how a call arrives or leaves.
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

# A reloaded page offers its tools a moment after its browser is connected: lists wait for that, but not longer.
LIST_WAIT_S: Final = 1.0
# After this long without an answer, clients get the cached catalogue: because of a browser that hangs or has just
# disconnected, no client should give up or conclude that the server is of another era.
FALLBACK_S: Final = 3.0
# Characters. A larger call is encoded by its face and started by its peer in two iterations of the event loop.
LARGE_CALL: Final = 64 * 1024
# Calls that do work for a client: these are written to the call log.
RECORDED: Final = frozenset({methods.TOOLS_CALL, methods.RESOURCES_READ, methods.PROMPTS_GET})
UPSTREAM: Final = "elsewhere"  # style: ok - value of a span attribute that users query
# Used in each call. In Python 3.11, reading a member of an enum costs a function call each time.
LEGACY: Final = eras.Era.LEGACY


class RemoteLookup(Protocol):
    """Finds the relay that has a server's browser, where several relays share a bus."""

    def is_held(self, server: str) -> bool:
        """Is that known?"""

    async def find(self, server: str) -> None:
        """Add the server to the registry; raises RelayUnavailable if no other relay can be reached."""


# A running call: server of the request, address of its peer, start time, memory cost, and the timer of a call with a
# shorter deadline than others.
Watched = tuple[str, str, float, int, asyncio.TimerHandle | None]


class Switch:
    """One per relay."""

    def __init__(
        self,
        registry: Registry,
        settings: Settings,
        on_end: Callable[[], None] = lambda: None,
        call_log: CallObserver | None = None,
        metrics: CallObserver | None = None,
    ) -> None:
        """`on_end` is called whenever a call has ended. `call_log` records the calls in `RECORDED`, `metrics` all."""
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
        # A worker's request history outlives this process: a channel must never have the name of an earlier one.
        self._prefix = secrets.token_hex(5)
        self._running: dict[Pending, Watched] = {}
        self._deadlines: DeadlineQueue[Pending] = DeadlineQueue(settings.call_deadline_s, self._deadline_passed)
        self._per_session: dict[str, int] = {}
        # Payloads are kept until the calls are answered: after a reconnect, a call may have to be sent again.
        self.budget = MemoryBudget(settings.call_budget)

    @property
    def in_flight(self) -> int:
        """Running calls and listeners."""
        return len(self._running)

    def new_channel(self) -> str:
        """A channel id that was never used before, not even by an earlier process."""
        return f"{self._prefix}-{next(self._channels):x}"

    async def locate(self, server: str) -> None:
        """Where relays share a bus: find a server that this relay has never seen."""
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            try:
                await self.remote_lookup.find(server)
            except RelayUnavailable:
                if not self.registry.knows(server):
                    raise

    async def wait_for_start(self, server: str) -> None:
        """Wait for an upstream that is starting and has no catalogue yet: a client that gets an empty list now may
        never ask again."""
        entry = self.registry.find(server)
        if entry.connector is not None and entry.connector.is_connecting and entry.catalogue is None:
            with suppress(ServerOffline):
                await self.registry.acquire(server, self._settings.away_wait_s)

    async def start(self, server: str, call: Call, fallback: Callable[[], str | None] | None = None) -> Pending:
        """Start a call. Waits for a browser that is away; raises a RelayError if nothing was sent.

        `fallback`: the cached answer, used if the browser disconnects with the call or takes too long.
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
                await asyncio.sleep(0)  # encoding it took a while, and so may starting it
            address, peer = await self._acquire(server, call)
            if call.trace is not None:
                call.trace.sent(address, "browser" if self.registry.find(address).connector is None else UPSTREAM)
            if call.method in CHECKED_METHODS:
                pending.reply_filter = lambda reply: self._filter_list(address, pending, reply)
            peer.start(pending)
        except BaseException:
            self._release(call, cost)
            raise
        self._watch(server, self.registry.find(address), pending, started, cost)
        return pending

    def start_now(self, server: str, call: Call, on_peer: Callable[[Peer], None] | None = None) -> Pending | None:
        """Start a call without waiting; None, and nothing was done, if it would have to wait.

        For calls in `RECORDED`. An error at the start ends the call. `on_peer` is called with the peer before that.
        """
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            return None  # the relay that has the server must be located first
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
        """Count a started call, set its deadline, and record its end."""
        call = pending.call
        if call.caller.principal != RELAY:
            self._count(call, entry)
        early_timer = None
        if pending.fallback is not None and self.registry.cached_catalogue(server) is not None:
            soon_s = min(self._settings.call_deadline_s, FALLBACK_S)
            early_timer = asyncio.get_running_loop().call_later(soon_s, self._deadline_passed, pending, soon_s)
        elif call.method != methods.SUBSCRIPTIONS_LISTEN:  # stays open as long as the client listens
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
        server, address, *_ = self._running[pending]
        limit_s = self._settings.call_deadline_s if timeout_s is None else timeout_s
        pending.fail(DeadlinePassed(f'Server "{server}" did not answer "{pending.call.method}" within {limit_s:g} s.'))
        self._cancel(address, pending, "timeout")

    def _count(self, call: Call, entry: ServerEntry) -> None:
        if call.method == methods.TOOLS_CALL:
            entry.calls += 1
        elif call.method in LISTS:
            entry.listings += 1
        else:
            return
        if not entry.is_used:
            self.registry.catalogues.mark_used(entry)
        if entry.server != entry.name:  # one of the browsers that share a name: counts for the name too
            self._count(call, self.registry.find(entry.server))

    def _filter_list(self, server: str, pending: Pending, reply: Reply) -> None:
        """Finish a list call with the filtered list, and record what was left out."""

        def flag(flaws: Sequence[Rejection], payload: str) -> None:
            is_whole = '"cursor"' not in pending.call.payload and '"nextCursor"' not in payload
            self.registry.catalogues.flag(server, pending.call.method, flaws, is_whole=is_whole)

        self._filter.apply(pending, reply, flag)

    async def _acquire(self, server: str, call: Call) -> tuple[str, Peer]:
        if self.remote_lookup is not None and not self.remote_lookup.is_held(server):
            await self.remote_lookup.find(server)
        address, peer = await self.registry.acquire(server, self._settings.away_wait_s, call)
        is_listed = self.registry.find(address).is_listed
        if call.method in LISTS and not is_listed.is_set() and call.caller.principal != RELAY:
            with suppress(TimeoutError):
                async with asyncio.timeout(LIST_WAIT_S):
                    await is_listed.wait()
            address, peer = await self.registry.acquire(server, self._settings.away_wait_s, call)
        return address, peer

    @contextmanager
    def holding(self, call: Call) -> Iterator[None]:
        """Reserve memory for a call that is held before it can start."""
        if not self.budget.reserve(memory_of(call.payload)):
            raise _too_many_large_calls()
        try:
            yield
        finally:
            self.budget.release(memory_of(call.payload))

    def _claim(self, call: Call) -> int:
        """Reserve memory and a slot for a call, also while it waits for its browser; returns the bytes."""
        if call.caller.era is LEGACY:  # calls are counted per session, and a modern caller has none
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
        """Count the calls of a session."""
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
            _, address, *_ = self._running.get(pending, ("", server))
            self._cancel(address, pending, why)

    def _cancel(self, server: str, pending: Pending, why: str) -> None:
        """Cancel at the present peer of the name: the call may have moved to another session since it started."""
        peer = self.registry.holder(server)
        if peer is not None:
            peer.cancel(pending, why)

    def close(self) -> None:
        """The relay stops: no new call starts, and subscriptions end with a final result."""
        self.registry.close()
        for pending, (_, address, *_) in list(self._running.items()):
            if pending.call.method == methods.SUBSCRIPTIONS_LISTEN:
                result = {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: pending.call.id}}
                pending.finish(Reply(orjson.dumps(jsonrpc.result_message(pending.call.id, result)).decode()))
                self._cancel(address, pending, "the relay is restarting")

    def give_up(self, patience_s: float) -> None:
        """The relay stops and can't wait any longer: running calls fail, and browsers get a cancellation."""
        for pending, (_, address, *_) in list(self._running.items()):
            text = f'The relay is restarting, and "{pending.call.method}" was not done within {patience_s:g} s.'
            pending.fail(DeadlinePassed(text))
            self._cancel(address, pending, "the relay is restarting")

    async def ask(self, server: str, call: Call, fallback: Callable[[], str | None] | None = None) -> Reply:
        """Start a call and wait for its reply; notices are ignored."""
        pending = await self.start(server, call, fallback)
        try:
            while True:
                event = await pending.next()
                if isinstance(event, Reply):
                    return event
        except asyncio.CancelledError:
            self.abandon(server, pending, "the caller does not wait any more")
            pending.fail(unavailable())
            raise
        finally:
            pending.release()

    def notify(self, server: str, channel: str, caller: Caller, payload: str) -> None:
        """Forward a client's notification or response, if there is a peer.

        Also to a browser that is away for a moment: the tool that a cancellation refers to still runs there.
        """
        for address in self.registry.shared_names.destinations(server, channel):
            peer = self.registry.holder(address)
            if peer is not None:
                peer.notify(channel, caller, payload)

    def end(self, server: str, channel: str, why: str) -> None:
        """A session has ended: notify the peers that had calls of it."""
        for address in self.registry.shared_names.destinations(server, channel):
            peer = self.registry.holder(address)
            if peer is not None:
                peer.end(channel, why)
        self.registry.shared_names.unbind(server, channel)

    def is_up(self, server: str, session: str | None = None) -> bool:
        """Is the server connected? `session`: for the session with this channel."""
        peer = self.registry.holder(server, session)
        return peer is not None and peer.is_up


def _too_many_large_calls() -> Busy:
    text = "The relay has too many large calls without an answer. Try again in a moment."
    return Busy(text, retry_after_ms=1000)
