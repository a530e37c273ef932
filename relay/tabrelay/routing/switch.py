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
from contextlib import contextmanager
from functools import partial
from typing import Final

from tabrelay.calls.calls import LISTS, QUICK, UNLIMITED, Call, End, Pending, Reply
from tabrelay.calls.peer import CallObserver, CallOwner, Peer
from tabrelay.calls.principal import PAGE
from tabrelay.config.settings import Settings
from tabrelay.errors import Busy, DeadlinePassed, RelayError, not_own_server, took_too_long
from tabrelay.payloads.list_checks import CHECKED_METHODS, ListBounds, Rejection
from tabrelay.payloads.sliced import memory_of
from tabrelay.routing.deadline_queue import DeadlineQueue
from tabrelay.routing.drain import unavailable
from tabrelay.routing.entry import RemoteLookup, ServerEntry
from tabrelay.routing.list_filter import ListFilter
from tabrelay.routing.peer_wait import PeerWait, is_being_listed
from tabrelay.routing.registry import Registry
from tabrelay.routing.waiting_call import WaitingCall
from tabserver.wire import eras, methods
from tabserver.wire.control_messages import RELAY
from tabserver.wire.frames import Caller
from tabserver.wire.memory_budget import MemoryBudget

log = logging.getLogger(__name__)

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


ReplyFilter = Callable[[Pending, Reply], None]
# A running call: server of the request, address of its peer, when it was received, memory cost, and the timer of a call
# with a shorter deadline than others.
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
        remote_lookup: RemoteLookup | None = None,
    ) -> None:
        """`on_end` is called whenever a call has ended. `call_log` records the calls in `RECORDED`, `metrics` all.
        `remote_lookup`: where relays share a bus."""
        self.remote_lookup = remote_lookup
        self._peer_wait = PeerWait(registry, settings.away_wait_s, remote_lookup)
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
        self._on_call_end = self._ended  # bound once, and not for each call
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

    def find(self, server: str) -> ServerEntry | None:
        """The entry of a name; None: where relays share a bus, `locate` has to look it up. Raises UnknownServer."""
        lookup = self.remote_lookup
        return self.registry.find(server) if lookup is None or lookup.is_held(server) else None

    async def locate(self, server: str) -> None:
        """Where relays share a bus: find a server that this relay has never seen."""
        await self._peer_wait.locate(server)

    async def wait_for_start(self, entry: ServerEntry) -> None:
        if entry.is_starting:
            await self._peer_wait.start_of(entry)

    def start(self, named: ServerEntry, call: Call, owner: CallOwner | None = None) -> Pending | WaitingCall:
        """Start a call, if that is possible at this moment. An error ends the call: nothing is raised.

        `owner` gets its events and may have a cached reply, used if the browser disconnects with the call or takes too
        long.
        """
        began, server = time.monotonic(), named.name
        if call.trace is not None:
            call.trace.lookup_started(server, call)
            if call.trace.is_held:
                return WaitingCall(call, server, owner, began, self, is_held=True)
        lookup = self.remote_lookup
        if lookup is not None and not lookup.is_held(server):
            return self._waiting(call, server, owner, began, "The relay that has the server is being looked up.")
        if len(call.payload) > LARGE_CALL:
            return self._waiting(call, server, owner, began, "A large call starts after others.")
        try:
            entry, peer = self.registry.acquire(named, call)
            if peer is None:
                return self._waiting(call, server, owner, began, "The server is not connected at the moment.")
            if call.method in LISTS and is_being_listed(entry, call):
                return self._waiting(call, server, owner, began, "The relay is reading the lists of the server.")
            cost = self._claim(call)
        except RelayError as error:
            return self._failed(server, call, owner, began, error)
        return self._send(server, call, owner, began, entry, peer, cost, began)

    def _waiting(self, call: Call, server: str, owner: CallOwner | None, began: float, why: str) -> WaitingCall:
        if call.trace is not None:
            call.trace.waits(why)
        return WaitingCall(call, server, owner, began, self)

    async def start_later(
        self, server: str, call: Call, owner: CallOwner | None, began: float, *, is_held: bool = False
    ) -> Pending:
        """The rest of `start` for a call that has to wait. `is_held`: first for a person."""
        until = began + self._settings.call_deadline_s
        try:
            cost = self._claim(call)
            try:
                if is_held and call.trace is not None:
                    call = await call.trace.let_call_go(call, until)
                await asyncio.sleep(0)  # encoding a large call took a while, and so may starting it
                entry, peer = await self._peer_wait.peer_for(server, call)
            except BaseException:
                self._release(call, cost)
                raise
        except RelayError as error:
            return self._failed(server, call, owner, began, error)
        left_s = max(0.0, until - time.monotonic()) if is_held else None
        return self._send(server, call, owner, began, entry, peer, cost, time.monotonic(), left_s)

    def _failed(self, server: str, call: Call, owner: CallOwner | None, began: float, error: RelayError) -> Pending:
        self._record(server, call, began, error)
        pending = Pending(call, owner)
        pending.end(error)
        return pending

    def _send(
        self,
        server: str,
        call: Call,
        owner: CallOwner | None,
        began: float,
        entry: ServerEntry,
        peer: Peer,
        cost: int,
        sent_at: float,
        left_s: float | None = None,
    ) -> Pending:
        """Send a call to its peer, set its deadline, count it, and record its end. `left_s`: what is left of the
        deadline of a call that was held."""
        # defence: the call key of a page: a server that another origin took in the meantime
        if call.caller.principal.startswith(PAGE) and peer.principal != call.caller.principal:
            self._release(call, cost)
            return self._failed(server, call, owner, began, not_own_server(server))
        reply_filter: ReplyFilter | None = (
            partial(self._filter_list, entry.name) if call.method in CHECKED_METHODS else None
        )
        if call.trace is not None:
            reply_filter = reply_filter or call.trace.hold_result
        pending = Pending(call, owner, sent_at, reply_filter, self._on_call_end)
        if call.trace is not None:
            call.trace.sent(entry.name, "browser" if entry.connector is None else UPSTREAM, peer)
        early_timer = None
        is_cached = call.method not in RECORDED and owner is not None and owner.may_be_cached(call.method)
        if is_cached and self.registry.cached_catalogue(server) is not None:
            soon_s = min(self._settings.call_deadline_s, FALLBACK_S)
            early_timer = asyncio.get_running_loop().call_later(soon_s, self._deadline_passed, pending, soon_s)
        elif left_s is not None:
            limit_s = self._settings.call_deadline_s
            early_timer = asyncio.get_running_loop().call_later(left_s, self._deadline_passed, pending, limit_s)
        elif call.method not in UNLIMITED:
            self._deadlines.add(pending)
        self._running[pending] = server, entry.name, began, cost, early_timer
        try:
            if owner is not None:
                owner.sending(pending, peer)
            peer.start(pending)
        except RelayError as error:
            pending.end(error)
            return pending
        except BaseException:
            pending.end(RelayError("The relay could not start the call."))
            raise
        if call.caller.principal != RELAY:
            self._count(call, entry)
        return pending

    def _record(
        self,
        server: str,
        call: Call,
        started: float,
        outcome: End,
        pending: Pending | None = None,
    ) -> None:
        took_s = time.monotonic() - started
        if call.trace is not None:
            call.trace.ended(outcome, None if pending is None else pending.answer)
        if self._metrics is not None:
            self._metrics.record(server, call, took_s, outcome)
        # defence: every call is written down
        if self._call_log is not None and call.method in RECORDED:
            self._call_log.record(server, call, took_s, outcome)

    def _ended(self, pending: Pending, end: End) -> None:
        server, _, began, cost, early_timer = self._running.pop(pending)
        if early_timer is not None:
            early_timer.cancel()
        self._deadlines.pop(pending, None)
        self._release(pending.call, cost)
        on_end = self._on_end  # a name is called sooner than an attribute that is no method
        on_end()
        self._record(server, pending.call, began, end, pending)
        if log.isEnabledFor(logging.DEBUG):
            log.debug("%s %s took %.1f ms", server, pending.call.method, (time.monotonic() - began) * 1000)

    def _deadline_passed(self, pending: Pending, timeout_s: float | None = None) -> None:
        server, address, *_ = self._running[pending]
        limit_s = self._settings.call_deadline_s if timeout_s is None else timeout_s
        pending.end(took_too_long(server, pending.call.method, limit_s))
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
        channel, running = call.channel, 0
        # Calls are counted per session, and a modern caller has none.
        is_counted = call.caller.era is LEGACY and call.method not in QUICK
        if is_counted and (running := self._per_session.get(channel, 0)) >= self._settings.in_flight_caller:
            text = f"This session has {running} calls in flight already. Wait until one of them is answered."
            raise Busy(text, retry_after_ms=1000)
        cost = memory_of(call.payload)
        # defence: calls without an answer
        if not self.budget.reserve(cost):
            raise _too_many_large_calls()
        if is_counted:
            self._per_session[channel] = running + 1
        return cost

    def _release(self, call: Call, cost: int) -> None:
        self.budget.release(cost)
        if call.caller.era is LEGACY and call.method not in QUICK:
            left = self._per_session.pop(call.channel, 0) - 1
            if left > 0:
                self._per_session[call.channel] = left

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
        """The relay stops: no new call starts, subscriptions end with a final result, and what waits for tasks ends."""
        self.registry.close()
        for pending, (_, address, *_) in list(self._running.items()):
            if pending.call.method == methods.SUBSCRIPTIONS_LISTEN:
                result = {"resultType": "complete", "_meta": {eras.META_SUBSCRIPTION: pending.call.id}}
                pending.end(Reply.with_result(pending.call.id, result))
                self._cancel(address, pending, "the relay is stopping")
            elif pending.call.method == methods.TASKS_RESULT:
                pending.end(unavailable())

    def give_up(self, patience_s: float) -> None:
        """The relay stops and can't wait any longer: running calls fail, and browsers get a cancellation."""
        for pending, (_, address, *_) in list(self._running.items()):
            text = f'The relay is stopping, and "{pending.call.method}" was not done within {patience_s:g} s.'
            pending.end(DeadlinePassed(text))
            self._cancel(address, pending, "the relay is stopping")

    async def ask(self, server: str, call: Call) -> Reply:
        """Start a call and wait for its reply; notices are ignored."""
        return await self.reply_to(server, await self.start(self.registry.find(server), call).started())

    async def reply_to(self, server: str, pending: Pending) -> Reply:
        """Wait for the reply of a call; notices are ignored. Raises the call's RelayError."""
        try:
            while True:
                event = await pending.next()
                if isinstance(event, Reply):
                    return event
        except asyncio.CancelledError:
            self.abandon(server, pending, "the caller does not wait any more")
            pending.end(unavailable())
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
