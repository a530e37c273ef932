"""An agent's MCP connection to a server that the editor provides: which shape that one speaks, and the way there.

`acp:` URLs mean G1 or G2, told apart by the first request. A server of type acp is asked for a connection: G3 has them,
and whoever does not know the method speaks G4. What was found out counts for the other servers of the same editor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, Final, Protocol

from tabrelay.acp import dialects as profiles
from tabrelay.acp import message as frames
from tabrelay.acp.concurrency import OrderedDelivery
from tabrelay.acp.connection import AcpConnection, Write, disconnect, say_parts
from tabrelay.acp.declarations import DeclaredServer
from tabrelay.acp.dialects import G1, G3, G4, MAX_ACTIVE, Dialect
from tabrelay.acp.envelope_requests import NOT_CARRIED, EnvelopeRequest, EnvelopeRequests
from tabrelay.acp.legacy_agent import LegacyAgent
from tabrelay.acp.line_reader import LineReader
from tabrelay.acp.line_writer import LineWriter
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable
from tabrelay.bridge.messages import Key, key, parse
from tabserver.wire import jsonrpc, methods

log = logging.getLogger("tabrelay.acp")

SESSION_S: Final = 0.25
"""How long the session's id is waited for. Not longer: some agents answer `session/new` only when their MCP servers
are connected."""
CONNECT_S: Final = 30.0
REST_S: Final = 1.0
"""For what a client said before it hung up, to be passed on."""


class ConnectionLookup(Protocol):
    """Where connections are found by those who bring messages for them."""

    def connected(self, conversation: AcpConnection) -> None: ...
    def carrying(self, server_id: str, carrier: EnvelopeRequests) -> None: ...
    def gone(self, one: AcpConnection | EnvelopeRequests) -> None: ...
    async def end(self, work: Coroutine[Any, Any, None]) -> None: ...


class ServerFacts:
    """Which shape an editor speaks, once one of its servers has shown it. `fixed`: the user says so."""

    def __init__(self, fixed: Dialect | None = None, *, is_shared: bool = True) -> None:
        """`is_shared` is False when other programs on the way declare servers too, each in its own shape."""
        self._fixed = fixed
        self._is_shared = is_shared
        self._found: dict[str, Dialect] = {}

    def of(self, declared: DeclaredServer) -> Dialect:
        if self._fixed is not None:
            return self._fixed
        return self._found.get(declared.style, G1 if declared.style == "url" else G3)

    def is_open(self, declared: DeclaredServer) -> bool:
        """May it still be G4? Also when that was found meanwhile: servers that connect at once ask at once."""
        return self._fixed is None and self._found.get(declared.style) in (None, G4)

    def found(self, declared: DeclaredServer, profile: Dialect) -> None:
        if self._is_shared:
            self._found[declared.style] = profile


class EditorConnection:
    def __init__(
        self,
        declared: DeclaredServer,
        peer: RequestTable,
        board: ConnectionLookup,
        knowledge: ServerFacts,
        outlet: LineWriter,
        session: Callable[[], str | None],
        on_connected: Callable[[str], None],
    ) -> None:
        self._declared = declared
        self._peer = peer
        self._board = board
        self._knowledge = knowledge
        self._outlet = outlet
        self._session = session
        self._on_connected = on_connected
        self._conversation: AcpConnection | None = None

    async def run(self, lines: AsyncIterator[bytes], known: Awaitable[Any]) -> None:
        """Until the agent's MCP client hangs up. `known`: until the session's id is."""
        ahead = LineReader(lines)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(SESSION_S):
                    await known
            connected = not ahead.ended.is_set()
            if connected and self._knowledge.of(self._declared) is not G4:
                connected = await self._unless_gone(ahead, self._connect(self._knowledge.of(self._declared)))
            if self._conversation is not None:
                await self._converse(self._conversation, ahead)
            elif connected:
                await self._carry(ahead)
        except (ConnectionGone, TimeoutError):
            log.warning("%s: the editor does not answer.", self._declared.name)
        finally:
            try:
                await ahead.close()
            finally:  # whoever is cancelled here, has been once already, and owes the editor this all the same
                if self._conversation is not None:
                    await self._board.end(self._end(self._conversation))

    async def _unless_gone(self, ahead: LineReader, work: Coroutine[Any, Any, None]) -> bool:
        """False: the client hung up meanwhile, and it was given up."""
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
            for task in (doing, gone):
                task.cancel()
            await asyncio.gather(doing, gone, return_exceptions=True)

    async def _connect(self, profile: Dialect) -> None:
        """Makes a conversation, or finds that there are no connections. Raises PeerGone when it wants none of us."""

        def connected(answer: AcpMessage) -> None:
            """The server's first message may follow at once."""
            id = _connection_in(answer)
            if id is not None:
                outlet = self._outlet
                made = AcpConnection(profile, id, self._peer, outlet.write, self._session, outlet.room)
                self._conversation = made
                self._board.connected(made)

        async def too_late(answer: AcpMessage) -> None:
            """Nobody is here any more who would use it, or end it."""
            id = _connection_in(answer)
            if id is not None:
                with contextlib.suppress(ConnectionGone):
                    await disconnect(self._peer, profile, id)

        params = profile.connect_params(self._declared, self._session())
        answer = await self._peer.request(profile.connect, params, connected, too_late)
        if self._conversation is not None:
            return
        is_unknown = answer.error_code == jsonrpc.METHOD_NOT_FOUND and profile is G3
        if not is_unknown or not self._knowledge.is_open(self._declared):
            log.warning("%s: the editor refused to connect: %s", self._declared.name, answer.error or "no id")
            raise ConnectionGone
        self._knowledge.found(self._declared, G4)

    async def _attend(self, ahead: LineReader, say: Callable[[bytes], Awaitable[None]], hung_up: asyncio.Event) -> None:
        """Says what the client says, until it or the other side hangs up."""

        async def say_all() -> None:
            async for line in ahead.lines():
                await say(line)

        saying, gone, over = ends = [
            asyncio.create_task(work) for work in (say_all(), _set(ahead.ended), _set(hung_up))
        ]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if gone.done():
                await asyncio.wait([saying, over], timeout=REST_S, return_when=asyncio.FIRST_COMPLETED)
            if saying.done():
                saying.result()
        finally:
            for end in ends:
                end.cancel()
            await asyncio.gather(*ends, return_exceptions=True)

    # -- with connections ----------------------------------------------------------------------------------------------

    async def _converse(self, conversation: AcpConnection, ahead: LineReader) -> None:
        self._on_connected(conversation.id)
        await self._attend(ahead, conversation.say, conversation.hung_up)

    async def _end(self, conversation: AcpConnection) -> None:
        """Once for each connection that there was, however it came to its end."""
        self._board.gone(conversation)
        if conversation.profile is not G1:
            self._knowledge.found(self._declared, conversation.profile)
        with contextlib.suppress(ConnectionGone, OSError):
            await conversation.close()
            if not conversation.hung_up.is_set():
                await disconnect(self._peer, conversation.profile, conversation.id)

    # -- in envelopes --------------------------------------------------------------------------------------------------

    async def _carry(self, ahead: LineReader) -> None:
        carrier = EnvelopeRequests(self._declared.bare, self._peer, self._session, self._outlet.room)
        carrying = ForwardedRequest(carrier, self._outlet.write)
        self._board.carrying(self._declared.bare, carrier)

        async def end() -> None:
            with contextlib.suppress(ConnectionGone, OSError):
                await carrying.close()

        try:
            await self._attend(ahead, carrying.say, asyncio.Event())
        finally:
            self._board.gone(carrier)
            await self._board.end(end())


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _connection_in(answer: AcpMessage) -> str | None:
    result = (answer.value or {}).get("result")
    return profiles.connection_of(result) if isinstance(result, dict) else None


class ForwardedRequest:
    """What an MCP client says, as requests of a carrier's. A client of the handshake era gets an interpreter."""

    def __init__(self, carrier: EnvelopeRequests, write: Write) -> None:
        self._carrier = carrier
        self._write = write
        self._turns = OrderedDelivery(
            MAX_ACTIVE, self._begin, write
        )  # as many as a provider takes: one more would be refused
        self._errands: dict[Key, EnvelopeRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._interpreting: LegacyAgent | None = None

    async def say(self, line: bytes) -> None:
        frame = AcpMessage.read(line)
        if frame.value is None:
            await say_parts(line, self.say, self._write)
        elif frame.is_request and frame.method == "initialize":
            self._interpreting = self._interpreting or LegacyAgent(self._carrier, self._write)
            await self._interpreting.greet(frame)
        elif frame.is_request and self._interpreting is None and not parse(line).is_modern:
            await self._write(frames.answer(frame.id_text, error=NOT_CARRIED))
        elif frame.is_request:
            await self._turns.enter(frame)
        elif frame.method == methods.CANCELLED:
            await self._cancel(frame)
        elif self._interpreting is not None:
            self._interpreting.say(frame)

    async def _cancel(self, frame: AcpMessage) -> None:
        one = key(frame.params.get("requestId"))
        if self._turns.withdraw(one):
            return
        async with self._turns.order:
            errand = self._errands.pop(one, None)
            if errand is not None:
                await self._carrier.give_up(errand)
            elif self._interpreting is not None:
                self._interpreting.say(frame)

    async def _begin(self, frame: AcpMessage) -> None:
        assert frame.method is not None
        if self._interpreting is not None and not parse(frame.raw).is_modern:
            self._interpreting.begin(frame, self._turns.leave)
            return

        async def told(method: str, params: str | None) -> None:
            await self._write(frames.notification(method, params))

        errand = await self._carrier.begin(frame.id_text, frame.method, frame.part("params"), told)
        self._errands[frame.key] = errand
        task = asyncio.create_task(self._finish(frame.key, frame.id_text, errand))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finish(self, one: Key, id: str, errand: EnvelopeRequest) -> None:
        try:
            outcome = await self._carrier.outcome(errand)
            await self._write(frames.answer(id, result=outcome.result, error=outcome.error))
        except asyncio.CancelledError:
            pass  # given up: nobody wants an answer
        finally:
            if self._errands.get(one) is errand:  # two may have the same id, though they must not
                del self._errands[one]
            self._turns.leave()

    async def close(self) -> None:
        await self._turns.close()
        await self._carrier.close()  # before those who wait for an answer end: then nobody would know what they asked
        if self._interpreting is not None:
            await self._interpreting.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
