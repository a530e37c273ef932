"""Supervisor of one upstream connection: a task that connects, negotiates, detects the end and connects again.

The SDK's transports cancel the task that opened them when they fail. So each connection has a separate task, and a
failure of one upstream reaches neither another one nor a caller. The delays between attempts are `RetryPolicy`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Literal, Protocol

from tabrelay.errors import RelayError, ServerOffline
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.dispatcher import DispatcherConnection, Streams, UpstreamTransport
from tabrelay.peers.upstreams.faults import ConnectionFault, Redactor, UpstreamFault, first_leaf
from tabrelay.peers.upstreams.handshake import ServerAbout
from tabrelay.peers.upstreams.retry_policy import RetryPolicy
from tabrelay.system.program import NAME

log = logging.getLogger(__name__)

State = Literal["connecting", "connected", "waiting", "failed", "suspended", "stopped"]
Negotiate = Callable[[UpstreamConnection], Awaitable[ServerAbout]]


class SupervisorTimer(Protocol):
    def cancel(self) -> None: ...


CallLater = Callable[[float, Callable[[], None]], SupervisorTimer]


@dataclass(frozen=True, slots=True)
class Status:
    """The state for the status page. `retry_at` is on the loop's clock."""

    state: State
    attempts: int
    retry_at: float | None
    error: str | None


class Supervisor:
    """`on_up` and `on_away` are called when the server connects and disconnects. `command`: what starts this program,
    for messages."""

    def __init__(
        self,
        name: str,
        *,
        transport: UpstreamTransport,
        retry_policy: RetryPolicy,
        redact: Redactor,
        new_connection: Callable[[], UpstreamConnection],
        negotiate: Negotiate,
        start_s: float,
        on_up: Callable[[UpstreamConnection], None],
        on_away: Callable[[], None],
        command: str = NAME,
        clock: Callable[[], float] | None = None,
        call_later: CallLater | None = None,
    ) -> None:
        loop = asyncio.get_running_loop()
        self._name = name
        self._transport = transport
        self._retry_policy = retry_policy
        self._redact = redact
        self._new_connection = new_connection
        self._negotiate = negotiate
        self._start_s = start_s
        self._on_up = on_up
        self._on_away = on_away
        self._command = command
        self._clock = clock or loop.time
        self._call_later: CallLater = call_later or loop.call_later
        self._state: State = "connecting"
        self._retry_at: float | None = None
        self._error: str | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._outcome: asyncio.Future[None] = loop.create_future()
        self._current: UpstreamConnection | None = None
        self._was_up = False
        self._opening: asyncio.Task[object] | None = None
        self._stopping = asyncio.Event()

    # -- interface ----------------------------------------------------------------------------------------------------

    @property
    def status(self) -> Status:
        return Status(self._state, self._retry_policy.attempts, self._retry_at, self._error)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"upstream {self._name}")

    async def wait_for_start(self) -> None:
        """Return when the server is connected. A server that waits or has failed gets one attempt for this. Raises
        ServerOffline as soon as it is known that it won't connect."""
        # A connection that was just lost counts as lost: its task may not have noticed yet.
        if self._current is not None and self._current.dispatcher.end_fault is None:
            return
        if self._state in ("suspended", "stopped"):
            raise self._offline()
        if self._state in ("waiting", "failed"):
            self._wake.set()
        # All callers wait for one future. It is shielded, so that a cancelled caller does not cancel it for the others.
        await asyncio.shield(self._outcome)

    def reconnect(self) -> None:
        """The user requested it: forget all failures, and connect again."""
        self._retry_policy.reset()
        if self._state == "connected" and self._current is not None:
            self._current.dispatcher.report(None, UpstreamFault("a reconnect was requested", ends_connection=True))
        else:
            if self._state in ("suspended", "failed"):
                self._set("connecting")
            self._wake.set()

    async def stop(self) -> None:
        """Stop it, and return when its task has ended."""
        self._set("stopped")
        self._stopping.set()
        self._wake.set()
        if self._opening is not None:
            self._opening.cancel()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._resolve(ServerOffline(f'Server "{self._name}" was stopped.'))

    def absence(self) -> str:
        """Why the server is not connected, and what happens next."""
        why = f": {self._error}" if self._error else ""
        if self._state == "suspended":
            again = f"{self._command} reconnect {self._name}"
            return f'Server "{self._name}" fails too often{why}. It is suspended until: {again}'
        if self._state == "failed":
            return f'Server "{self._name}" does not start{why}. The next call tries again.'
        if self._state == "waiting":
            return f'Server "{self._name}" can\'t be reached{why}. The relay tries again from time to time.'
        return f'Server "{self._name}" is not connected yet{why}.'

    # -- the task -----------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        is_allowed = True
        while not self._stopping.is_set():
            if is_allowed:
                await self._try_until_over()
            else:
                self._set("suspended")
                self._resolve(self._offline())
            if self._stopping.is_set():
                return
            if self._state in ("failed", "suspended"):
                await self._wait_for_wake()
            self._set("connecting")
            is_allowed = self._retry_policy.begin(self._clock())

    async def _try_until_over(self) -> None:
        """Try until the server was connected and disconnected again, or the policy allows no more attempts."""
        while not self._stopping.is_set():
            self._retry_policy.attempted()
            was_up = await self._attempt()
            if was_up or self._stopping.is_set():
                return
            again = self._retry_policy.failed()
            if again is None:
                self._set("failed")
                self._resolve(self._offline())
                return
            self._set("waiting" if again.is_probe else "connecting")
            if again.is_probe:
                self._resolve(self._offline())
            await self._wait_for_wake(again.delay_s)
            self._set("connecting")

    async def _attempt(self) -> bool:
        """One connection, from its first byte to its end. True if it was usable."""
        # In a separate task: see the module docstring.
        task = asyncio.create_task(self._connection())
        await asyncio.wait({task})
        was_up, self._was_up = self._was_up, False
        fault = _fault(task)
        if fault is not None:
            self._error = self._redact(fault.text)
            log.warning("%s: %s", self._name, self._error)
            if not was_up and not self._stopping.is_set() and self._transport.adapt(fault):
                return await self._attempt()
        return was_up

    async def _connection(self) -> UpstreamFault | None:
        connection = self._new_connection()
        dispatcher = connection.dispatcher
        async with AsyncExitStack() as stack:
            streams = await self._open(stack, dispatcher)
            if streams is None:
                return None
            carrying = asyncio.create_task(dispatcher.run(streams))
            stopping = asyncio.create_task(self._stopping.wait())
            ended = asyncio.create_task(dispatcher.ended())
            negotiation = asyncio.create_task(self._negotiate_in_time(connection))
            try:
                await asyncio.wait({negotiation, stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
                if negotiation.done() and not stopping.done():
                    connection.about = negotiation.result()
                    self._up(connection)
                    await asyncio.wait({stopping, ended}, return_when=asyncio.FIRST_COMPLETED)
                return dispatcher.end_fault if ended.done() and not stopping.done() else None
            finally:
                # Before the transport is closed, which may take a while: no call may use it any more.
                self._down()
                for task in (negotiation, stopping, ended, carrying):
                    task.cancel()
                await asyncio.wait({negotiation, stopping, ended, carrying})

    async def _open(self, stack: AsyncExitStack, dispatcher: DispatcherConnection) -> Streams | None:
        """None if the supervisor was stopped meanwhile."""
        self._opening = asyncio.current_task()
        try:
            async with asyncio.timeout(self._start_s):
                return await stack.enter_async_context(self._transport.open(dispatcher.report))
        except TimeoutError:
            raise ConnectionFault(UpstreamFault(f"it could not be reached within {self._start_s:g} s", "no")) from None
        except asyncio.CancelledError:
            if not self._stopping.is_set() or self._opening is None:
                raise
            self._opening.uncancel()
            return None
        finally:
            self._opening = None

    def _up(self, connection: UpstreamConnection) -> None:
        self._was_up = True
        self._current = connection
        self._retry_policy.connected()
        self._error = None
        self._set("connected")
        log.info("%s: connected", self._name)
        self._resolve(None)
        self._on_up(connection)

    def _down(self) -> None:
        if self._current is not None:
            self._current = None
            self._set("connecting")
            self._on_away()

    async def _negotiate_in_time(self, connection: UpstreamConnection) -> ServerAbout:
        try:
            async with asyncio.timeout(self._start_s):
                await connection.dispatcher.opened()
                return await self._negotiate(connection)
        except TimeoutError:
            raise ConnectionFault(UpstreamFault(f"it did not answer within {self._start_s:g} s")) from None

    async def _wait_for_wake(self, delay_s: float | None = None) -> None:
        """Wait until a caller needs the server, or for this long."""
        self._wake.clear()
        timer = self._call_later(delay_s, self._wake.set) if delay_s is not None else None
        self._retry_at = self._clock() + delay_s if delay_s is not None else None
        if self._stopping.is_set():
            return
        await self._wake.wait()
        self._retry_at = None
        if timer is not None:
            timer.cancel()

    def _set(self, state: State) -> None:
        if self._state != "stopped":
            self._state = state

    def dismiss(self, error: RelayError) -> None:
        """Fail all callers that wait."""
        self._resolve(error)

    def _resolve(self, outcome: RelayError | None) -> None:
        """Give all callers that wait this outcome, and make a new future for the next ones."""
        round, self._outcome = self._outcome, asyncio.get_running_loop().create_future()
        if round.done():
            return
        if outcome is None:
            round.set_result(None)
        else:
            round.set_exception(outcome)
            round.exception()  # mark it as read: there may be no caller

    def _offline(self) -> ServerOffline:
        return ServerOffline(self.absence(), retry_after_ms=3000)


def _fault(task: asyncio.Task[UpstreamFault | None]) -> UpstreamFault | None:
    """What ended a connection, with a text for users."""
    if task.cancelled():
        return UpstreamFault("the connection was cancelled")
    error = task.exception()
    if error is None:
        return task.result()
    leaf = first_leaf(error)
    if isinstance(leaf, ConnectionFault):
        return leaf.fault
    return UpstreamFault(f"{type(leaf).__name__}: {leaf}" if str(leaf) else type(leaf).__name__)
