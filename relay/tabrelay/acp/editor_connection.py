"""MCP connection of an agent to a server that the editor provides, with detection of the editor's dialect.

`acp:` URLs mean G1 or G2, distinguished by the first request. For a server of type acp a connection is requested: G3
has connections, and an editor that does not know the method uses G4. The result counts for the other servers of the
same editor. Message formats are in `dialects`, delivery in `connection` and `envelope_requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from tabrelay.acp import dialects
from tabrelay.acp import message as acp_message
from tabrelay.acp.concurrency import OrderedDelivery
from tabrelay.acp.connection import AcpConnection, Write, disconnect, send_parts
from tabrelay.acp.declarations import DeclaredServer
from tabrelay.acp.dialects import G1, G3, G4, MAX_ACTIVE, Dialect
from tabrelay.acp.envelope_requests import MODERN_ONLY, EnvelopeRequest, EnvelopeRequests
from tabrelay.acp.legacy_agent import LegacyAgent
from tabrelay.acp.line_reader import LineReader
from tabrelay.acp.line_writer import LineWriter
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable
from tabrelay.bridge.messages import Key, key
from tabrelay.bridge.parsing import parsed
from tabrelay.system.tasks import BackgroundTasks, cancel
from tabserver.wire import jsonrpc, methods

log = logging.getLogger("tabrelay.acp")

SESSION_S: Final = 0.25
"""How long to wait for the session's id. Not longer: some agents answer `session/new` only when their MCP servers are
connected."""
CONNECT_S: Final = 30.0
FLUSH_S: Final = 1.0
"""For the delivery of what a client sent before it closed the connection."""


class ConnectionLookup(Protocol):
    """The table in which messages find their connection."""

    def add_connection(self, connection: AcpConnection) -> None: ...
    def add_envelopes(self, server_id: str, envelopes: EnvelopeRequests) -> None: ...
    def remove(self, one: AcpConnection | EnvelopeRequests) -> None: ...
    async def run_to_end(self, work: Coroutine[Any, Any, None]) -> None: ...


class ServerFacts:
    """The dialect of an editor, once one of its servers has shown it. `fixed`: the user chose it."""

    def __init__(self, fixed: Dialect | None = None, *, is_shared: bool = True) -> None:
        """`is_shared` is False when proxies declare servers too, each in its own dialect."""
        self._fixed = fixed
        self._is_shared = is_shared
        self._found: dict[str, Dialect] = {}

    def dialect_of(self, declared: DeclaredServer) -> Dialect:
        if self._fixed is not None:
            return self._fixed
        return self._found.get(declared.style, G1 if declared.style == "url" else G3)

    def may_be_g4(self, declared: DeclaredServer) -> bool:
        """Whether the server may use G4. Also true when that was found meanwhile: several servers may connect at
        once."""
        return self._fixed is None and self._found.get(declared.style) in (None, G4)

    def record(self, declared: DeclaredServer, dialect: Dialect) -> None:
        if self._is_shared:
            self._found[declared.style] = dialect


class EditorConnection:
    def __init__(
        self,
        declared: DeclaredServer,
        requests: RequestTable,
        connections: ConnectionLookup,
        server_facts: ServerFacts,
        writer: LineWriter,
        session: Callable[[], str | None],
        on_connected: Callable[[str], None],
    ) -> None:
        self._declared = declared
        self._requests = requests
        self._connections = connections
        self._server_facts = server_facts
        self._writer = writer
        self._session = session
        self._on_connected = on_connected
        self._connection: AcpConnection | None = None

    async def run(self, lines: AsyncIterator[bytes], known: Awaitable[Any]) -> None:
        """Runs until the agent's MCP client closes the connection. `known` completes when the session's id is known."""
        ahead = LineReader(lines)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SESSION_S):
                    await known
            connected = not ahead.ended.is_set()
            if connected and self._server_facts.dialect_of(self._declared) is not G4:
                connected = await self._unless_closed(
                    ahead, self._connect(self._server_facts.dialect_of(self._declared))
                )
            if self._connection is not None:
                await self._run_connection(self._connection, ahead)
            elif connected:
                await self._run_envelopes(ahead)
        except (ConnectionGone, TimeoutError):
            log.warning("%s: the editor does not answer.", self._declared.name)
        finally:
            try:
                await ahead.close()
            finally:  # also when this task is cancelled again: the editor must be notified
                if self._connection is not None:
                    await self._connections.run_to_end(self._end(self._connection))

    async def _unless_closed(self, ahead: LineReader, work: Coroutine[Any, Any, None]) -> bool:
        """Does the work unless the client closes the connection first; then cancels it and returns False."""
        doing, gone = asyncio.create_task(work), asyncio.create_task(ahead.ended.wait())
        try:
            await asyncio.wait([doing, gone], timeout=CONNECT_S, return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return True
            if not gone.done():
                raise TimeoutError
            return False
        finally:
            await cancel(doing, gone)

    async def _connect(self, dialect: Dialect) -> None:
        """Opens a connection, or records that the editor has none (G4). Raises ConnectionGone when it refuses."""

        def connected(answer: AcpMessage) -> None:
            """Registered here, since the server's first message may follow immediately."""
            id = _connection_id_in(answer)
            if id is not None:
                writer = self._writer
                made = AcpConnection(dialect, id, self._requests, writer.write, self._session, writer.wait_for_room)
                self._connection = made
                self._connections.add_connection(made)

        async def too_late(answer: AcpMessage) -> None:
            """The connection was opened after the client had left: close it."""
            id = _connection_id_in(answer)
            if id is not None:
                with contextlib.suppress(ConnectionGone):
                    await disconnect(self._requests, dialect, id)

        params = dialect.connect_params(self._declared, self._session())
        answer = await self._requests.request(dialect.connect, params, connected, too_late)
        if self._connection is not None:
            return
        is_unknown = answer.error_code == jsonrpc.METHOD_NOT_FOUND and dialect is G3
        if not is_unknown or not self._server_facts.may_be_g4(self._declared):
            log.warning("%s: the editor refused to connect: %s", self._declared.name, answer.error or "no id")
            raise ConnectionGone
        self._server_facts.record(self._declared, G4)

    async def _forward_lines(
        self, ahead: LineReader, send: Callable[[bytes], Awaitable[None]], closed: asyncio.Event
    ) -> None:
        """Forwards the client's lines until the client or the other side closes the connection."""

        async def send_all() -> None:
            async for line in ahead.lines():
                await send(line)

        sending, gone, over = ends = [
            asyncio.create_task(work) for work in (send_all(), _wait_for(ahead.ended), _wait_for(closed))
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                await asyncio.wait([sending, over], timeout=FLUSH_S, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            await cancel(*ends)

    # -- with connections ----------------------------------------------------------------------------------------------

    async def _run_connection(self, connection: AcpConnection, ahead: LineReader) -> None:
        self._on_connected(connection.id)
        await self._forward_lines(ahead, connection.send, connection.closed_by_peer)

    async def _end(self, connection: AcpConnection) -> None:
        """Called once for each connection, however it ended."""
        self._connections.remove(connection)
        if connection.dialect is not G1:
            self._server_facts.record(self._declared, connection.dialect)
        with contextlib.suppress(ConnectionGone, OSError):
            await connection.close()
            if not connection.closed_by_peer.is_set():
                await disconnect(self._requests, connection.dialect, connection.id)

    # -- in envelopes --------------------------------------------------------------------------------------------------

    async def _run_envelopes(self, ahead: LineReader) -> None:
        envelopes = EnvelopeRequests(self._declared.bare, self._requests, self._session, self._writer.wait_for_room)
        forwarder = EnvelopeForwarder(envelopes, self._writer.write)
        self._connections.add_envelopes(self._declared.bare, envelopes)

        async def end() -> None:
            with contextlib.suppress(ConnectionGone, OSError):
                await forwarder.close()

        try:
            await self._forward_lines(ahead, forwarder.send, asyncio.Event())
        finally:
            self._connections.remove(envelopes)
            await self._connections.run_to_end(end())


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


def _connection_id_in(answer: AcpMessage) -> str | None:
    result = (answer.value or {}).get("result")
    return dialects.connection_of(result) if isinstance(result, dict) else None


class EnvelopeForwarder:
    """Sends the lines of an MCP client as envelope requests. A client of the handshake era gets a `LegacyAgent`."""

    def __init__(self, envelopes: EnvelopeRequests, write: Write) -> None:
        self._envelopes = envelopes
        self._write = write
        self._queue = OrderedDelivery(MAX_ACTIVE, self._start, write)  # the provider's limit: it would refuse one more
        self._running: dict[Key, EnvelopeRequest] = {}
        self._tasks = BackgroundTasks()
        self._legacy_agent: LegacyAgent | None = None

    async def send(self, line: bytes) -> None:
        message = await parsed(AcpMessage.read, line)
        if message.value is None:
            await send_parts(line, self.send, self._write)
        elif message.is_request and message.method == methods.INITIALIZE:
            self._legacy_agent = self._legacy_agent or LegacyAgent(self._envelopes, self._write)
            await self._legacy_agent.initialize(message)
        elif message.is_request and self._legacy_agent is None and not message.is_modern:
            await self._write(acp_message.answer(message.id_text, error=MODERN_ONLY))
        elif message.is_request:
            await self._queue.submit(message)
        elif message.method == methods.CANCELLED:
            await self._cancel(message)
        elif self._legacy_agent is not None:
            self._legacy_agent.receive(message)

    async def _cancel(self, message: AcpMessage) -> None:
        one = key(message.params.get("requestId"))
        if self._queue.withdraw(one):
            return
        async with self._queue.start_lock:
            request = self._running.pop(one, None)
            if request is not None:
                await self._envelopes.cancel(request)
            elif self._legacy_agent is not None:
                self._legacy_agent.receive(message)

    async def _start(self, message: AcpMessage) -> None:
        assert message.method is not None
        if self._legacy_agent is not None and not message.is_modern:
            self._legacy_agent.start_request(message, self._queue.release)
            return

        async def on_notification(method: str, params: str | None) -> None:
            await self._write(acp_message.notification(method, params))

        request = await self._envelopes.start(message.id_text, message.method, message.part("params"), on_notification)
        self._running[message.key] = request
        self._tasks.start(self._finish(message.key, message.id_text, request))

    async def _finish(self, one: Key, id: str, request: EnvelopeRequest) -> None:
        try:
            outcome = await self._envelopes.outcome(request)
            await self._write(acp_message.answer(id, result=outcome.result, error=outcome.error))
        except asyncio.CancelledError:
            pass  # cancelled: no answer is expected
        finally:
            if self._running.get(one) is request:  # a faulty client may use one id twice
                del self._running[one]
            self._queue.release()

    async def close(self) -> None:
        await self._queue.close()
        await self._envelopes.close()  # before the waiting tasks end: their requests would be lost
        if self._legacy_agent is not None:
            await self._legacy_agent.close()
        await self._tasks.cancel()
