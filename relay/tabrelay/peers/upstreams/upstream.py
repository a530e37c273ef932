"""Calls to one upstream session, from clients of every era to a server of either era.

If client and server have the same era, a call is passed on unchanged under another id; if not, a translator converts
it. A call that certainly did not arrive is made once more on a new connection. A call that may have arrived is repeated
only if its method is idempotent. Connecting is the `Supervisor`'s work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import orjson
from mcp.shared.exceptions import MCPError

from tabrelay.calls.calls import UNLIMITED, Notice, Pending, Reply
from tabrelay.calls.trace_context import headers_for
from tabrelay.errors import BadAnswer, BadRequest, Busy, DeadlinePassed, RelayError, ServerOffline, UpstreamGone
from tabrelay.peers.upstreams.connection import UpstreamConnection
from tabrelay.peers.upstreams.faults import ConnectionFault, UpstreamFault, relay_error
from tabrelay.peers.upstreams.handshake import CLIENT
from tabrelay.peers.upstreams.request_headers import RoutingHeaders
from tabrelay.peers.upstreams.task_owners import TaskOwners
from tabrelay.system.tasks import BackgroundTasks
from tabrelay.translation import messages
from tabrelay.translation.legacy_call import LegacyCall
from tabrelay.translation.parked_calls import ParkedCalls
from tabrelay.translation.shared_session import SharedSession
from tabrelay.translation.to_legacy import ModernToLegacy
from tabrelay.translation.to_modern import LegacyToModern
from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

log = logging.getLogger(__name__)

MAX_LISTENERS: Final = 512
MAX_SORTED: Final = 10_000  # tools; of longer lists, clients get no more than `max_tools`
# Repeating these does no harm, even if they were processed already.
IDEMPOTENT: Final = frozenset(
    {
        methods.COMPLETION_COMPLETE,
        methods.PING,
        methods.PROMPTS_GET,
        methods.PROMPTS_LIST,
        methods.RESOURCES_LIST,
        methods.RESOURCES_READ,
        methods.RESOURCES_TEMPLATES_LIST,
        methods.SERVER_DISCOVER,
        methods.TOOLS_LIST,
    }
)


class Upstream:
    """One server session. It outlives its connections, so that callers that listen receive from the next one."""

    def __init__(
        self,
        server: str,
        *,
        parked_calls: ParkedCalls[LegacyCall],
        in_flight_limit: int,
        timeout_s: float | None,
        routing_headers: RoutingHeaders | None,
        roots: list[dict[str, Any]],
        wait_for_start: Callable[[], Any],
        task_owners: TaskOwners,
    ) -> None:
        """`wait_for_start` waits for a connection, and raises ServerOffline if there will be none. `routing_headers`:
        for servers that are connected over HTTP."""
        self._server = server
        self._in_flight_limit = in_flight_limit
        self._timeout_s = timeout_s
        self._routing_headers = routing_headers
        self._roots = roots
        self._wait_for_start = wait_for_start
        self._task_owners = task_owners
        self._connection: UpstreamConnection | None = None
        self._shared = SharedSession(lambda: self.about, self._start_task, self._send_own_request, has_tasks=True)
        self._subscribers = self._shared.subscribers
        self._to_legacy = ModernToLegacy(self, parked_calls)
        self._to_modern = LegacyToModern(self, dict(CLIENT))
        self._tasks: dict[Pending, asyncio.Task[None]] = {}
        self._own_requests = BackgroundTasks()

    # -- connections --------------------------------------------------------------------------------------------------

    def up(self, connection: UpstreamConnection) -> None:
        """Use a new connection. The server gets the log level and the subscriptions that callers asked for before."""
        self._connection = connection
        if connection.era is Era.MODERN:
            self._to_modern.came_up()
            return
        self._shared.resume()

    def away(self) -> None:
        self._connection = None

    def retire(self) -> None:
        """Stop permanently: calls and streams end."""
        self._connection = None
        self._to_legacy.retire()
        for pending, task in list(self._tasks.items()):
            task.cancel()
            pending.end(UpstreamGone(f'Server "{self._server}" was stopped while it had the call.'))

    # -- interface for the switch -------------------------------------------------------------------------------------

    @property
    def server(self) -> str:
        return self._server

    @property
    def is_up(self) -> bool:
        return self._connection is not None and self._connection.dispatcher.end_fault is None

    @property
    def is_modern(self) -> bool:
        return self._connection is not None and self.is_up and self._connection.era is Era.MODERN

    @property
    def in_flight(self) -> int:
        """Number of calls that will end. A subscription stream does not count."""
        return sum(pending.call.method != methods.SUBSCRIPTIONS_LISTEN for pending in self._tasks)

    @property
    def is_idle(self) -> bool:
        """Has it neither a call nor a listening client?"""
        return not self._tasks and self._subscribers.is_empty

    @property
    def era(self) -> str | None:
        return self._connection.era.value if self._connection is not None else None

    @property
    def about(self) -> dict[str, Any]:
        """The `initialize` result of a server of the handshake era, as clients see it."""
        about = self.discovered
        known = {"serverInfo": {"name": self._server, "version": "0"}, **about}
        # Clients of the other era get them without tasks: see translation/messages.py.
        return {**known, "capabilities": messages.session_capabilities(about)}

    @property
    def discovered(self) -> dict[str, Any]:
        """The server's answer to the handshake, in the form of its era."""
        about = self._connection.about if self._connection is not None else None
        return about.result if about is not None else {}

    def start(self, pending: Pending) -> None:
        call = pending.call
        if self._connection is None:
            raise ServerOffline(f'Server "{self._server}" is not connected.', retry_after_ms=3000)
        if call.caller.era is Era.MODERN and self._connection.era is Era.LEGACY:
            self._to_legacy.start(pending)
            return
        if call.caller.era is Era.LEGACY and self._connection.era is Era.MODERN:
            self._check_limit(pending)
            self._to_modern.start(pending)
            return
        if call.caller.era is Era.LEGACY:
            self._shared.start(pending)
            return
        params = call.message().get("params")
        self._start_task(pending, params if isinstance(params, dict) else None)

    def cancel(self, pending: Pending, why: str) -> None:
        task = self._tasks.get(pending)
        if task is not None:
            task.cancel()
        elif not self._to_modern.cancel(pending, why):
            self._to_legacy.cancel(pending, why)

    def notify(self, channel: str, caller: Caller, payload: str) -> None:
        message = orjson.loads(payload)
        method, params = message.get("method"), message.get("params")
        is_answered = (
            method is None
            and jsonrpc.is_request_id(message.get("id"))
            and self._connection is not None
            and self._connection.answer(channel, message)
        )
        if is_answered:
            return
        if method == methods.CANCELLED and isinstance(params, dict):
            self._cancel_by_id(channel, params.get("requestId"))
        # Any other notification would speak for all callers: the relay sent `initialized`, and roots are asked anew.
        self._to_modern.notify(channel, message)

    def _cancel_by_id(self, channel: str, id: object) -> None:
        """Cancel a call by its id. Servers do not answer a cancelled request, but the caller's stream must end."""
        for pending in self._of(channel):
            if pending.call.id == id:
                self._tasks[pending].cancel()
                pending.end(Reply.with_error(pending.call.id, jsonrpc.REQUEST_CANCELLED, "The request was cancelled."))

    def end(self, channel: str, why: str) -> None:
        for pending in [*self._of(channel), *self._to_modern.of(channel)]:
            self.cancel(pending, why)
            pending.end(UpstreamGone(f"The session has ended: {why}."))
        self._to_modern.end(channel)
        is_legacy = self._connection is not None and self._connection.era is Era.LEGACY
        self._shared.leave(channel, is_connected=is_legacy)

    def listen(self, channel: str, caller: Caller, sink: Callable[[Notice], None]) -> None:
        self._subscribers.listen(channel, sink)
        self._to_modern.listen(channel, sink)

    # -- calls without translation ------------------------------------------------------------------------------------

    def _of(self, channel: str) -> list[Pending]:
        return [pending for pending in self._tasks if pending.call.channel == channel]

    def _check_limit(self, pending: Pending) -> None:
        call, running = pending.call, self.in_flight
        if call.method == methods.SUBSCRIPTIONS_LISTEN and len(self._tasks) - running >= MAX_LISTENERS:
            raise Busy(f'{MAX_LISTENERS} callers listen to "{self._server}" already.', retry_after_ms=10_000)
        if call.method != methods.SUBSCRIPTIONS_LISTEN and running >= self._in_flight_limit:
            text = f'Server "{self._server}" has {running} calls in flight already. Try again in a moment.'
            raise Busy(text, retry_after_ms=1000)
        is_used = any(other.call.id == call.id and not other.is_done for other in self._of(call.channel))
        if is_used or self._to_modern.find(call.channel, call.id) is not None:
            raise BadRequest(f"Request id {call.id!r} is still in use in this session.", reason="duplicate_id")

    def _start_task(self, pending: Pending, params: dict[str, Any] | None) -> None:
        self._check_limit(pending)
        task = asyncio.create_task(self._run(pending, params))
        self._tasks[pending] = task
        timer = None
        if self._timeout_s and pending.call.method not in UNLIMITED:
            timer = asyncio.get_running_loop().call_later(self._timeout_s, self._expire, pending, self._timeout_s)

        def ended(_task: asyncio.Task[None]) -> None:
            self._tasks.pop(pending, None)
            if timer is not None:
                timer.cancel()

        task.add_done_callback(ended)

    def _expire(self, pending: Pending, after_s: float) -> None:
        """Fail the call before cancelling it: a server that does not read must not delay that."""
        pending.end(DeadlinePassed(f"Request timeout after {after_s * 1000:.0f}ms"))
        self._tasks[pending].cancel()

    async def _run(self, pending: Pending, params: dict[str, Any] | None) -> None:
        try:
            pending.end(await self._reply(pending, params))
        except RelayError as error:
            pending.end(error)
        except Exception:
            log.exception("%s: a call failed in an unexpected way", self._server)
            pending.end(BadAnswer("The call failed inside the relay; the log has the details."))

    async def _reply(self, pending: Pending, params: dict[str, Any] | None) -> Reply:
        try:
            return await self._attempt(pending, params)
        except ConnectionFault as lost:
            if not _may_repeat(pending, lost.fault):
                raise relay_error(self._server, lost.fault) from None
        # One reconnect and one more attempt, whose outcome is final.
        await self._wait_for_start()
        try:
            return await self._attempt(pending, params)
        except ConnectionFault as lost:
            raise relay_error(self._server, lost.fault) from None

    async def _attempt(self, pending: Pending, params: dict[str, Any] | None) -> Reply:
        connection, method = self._connection, pending.call.method
        if (refused := self._task_owners.refusal(pending.call, params)) is not None:
            return refused
        if connection is None:
            raise ConnectionFault(UpstreamFault("it is not connected", delivered="no", ends_connection=True))
        headers = None
        if self._routing_headers is not None:  # connected over HTTP
            headers = headers_for(params)
            if connection.era is Era.MODERN:
                headers |= await self._routing_headers.headers(connection, method, params or {})
        try:
            result = await connection.call(pending, params, headers)
        except MCPError as error:
            message = {"code": error.code, "message": error.error.message}
            if error.error.data is not None:
                message["data"] = error.error.data
            return _encode_reply(pending, {"jsonrpc": "2.0", "id": pending.call.id, "error": message}, error.code)
        if method == methods.TOOLS_LIST and isinstance(result.get("tools"), list):
            result = {**result, "tools": self._sort_tools(connection, result["tools"])}
        result = self._task_owners.received(pending.call, result)
        return _encode_reply(pending, jsonrpc.result_message(pending.call.id, result))

    def _sort_tools(self, connection: UpstreamConnection, tools: list[Any]) -> list[Any]:
        """Sort tools by name, so that the same tools are the same bytes after a reconnect."""
        if len(tools) > MAX_SORTED:
            return tools
        if self._routing_headers is not None and connection.era is Era.MODERN:
            tools = self._routing_headers.filter_tools(tools)
        return sorted(tools, key=lambda tool: str(tool.get("name")) if isinstance(tool, dict) else "")

    def _send_own_request(self, method: str, params: dict[str, Any]) -> None:
        """Send a request of the relay itself. Its answer is ignored."""
        connection = self._connection
        if connection is None:
            return

        async def send() -> None:
            try:
                await connection.dispatcher.request(method, params)
            except (MCPError, ConnectionFault) as error:
                log.debug("%s: %s: %s", self._server, method, error)

        self._own_requests.start(send())

    # -- reports of the connection ------------------------------------------------------------------------------------

    def announced(self, connection: UpstreamConnection, message: dict[str, Any]) -> None:
        if connection is self._connection:
            self._subscribers.announce(message)

    def logged(self, connection: UpstreamConnection, params: dict[str, Any]) -> None:
        if connection is self._connection and connection.era is Era.LEGACY:
            self._shared.background_logs.announce(params, asyncio.get_running_loop().time())

    def tools_changed(self) -> None:
        if self._routing_headers is not None:
            self._routing_headers.invalidate()

    def wants_log(self, channel: str, params: object) -> bool:
        return self._subscribers.wants_level(channel, params)

    def roots(self) -> list[dict[str, Any]]:
        return self._roots


def _may_repeat(pending: Pending, fault: UpstreamFault) -> bool:
    """May the call be made again? Only if it certainly did not arrive, or is idempotent. Clients renew a subscription
    themselves."""
    if pending.is_done or pending.call.method == methods.SUBSCRIPTIONS_LISTEN:
        return False
    if fault.delivered == "no":
        return fault.ends_connection
    return pending.call.method in IDEMPOTENT and (fault.ends_connection or fault.status in (502, 503, 504))


def _encode_reply(pending: Pending, message: dict[str, Any], code: int | None = None) -> Reply:
    text = messages.text(message)
    if text is None:
        raise BadAnswer("The server's answer nests too deeply to be passed on.")
    return Reply(text, code, values=message)
