"""The conductor at work: runs the agent (and proxies), carries out what the router decides, and ends without a trace.

Each side has one reader, and what it reads is dealt with before the next line is: so nothing overtakes anything.
Whoever does not read makes the other side wait; nothing piles up here.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, Final

from tabrelay.acp import declarations, inlet
from tabrelay.acp import message as acp_message
from tabrelay.acp.browser_servers import BrowserServers
from tabrelay.acp.child import EXIT_S, ChildError, ChildProcess
from tabrelay.acp.connections import OpenConnections
from tabrelay.acp.declarations import DeclaredServer
from tabrelay.acp.dialects import G1, G2, Dialect
from tabrelay.acp.editor_connection import EditorConnection, ServerFacts
from tabrelay.acp.line_writer import LineWriter
from tabrelay.acp.local_port import LocalPort
from tabrelay.acp.message import RequestIds
from tabrelay.acp.proxy_chain import FIRST, ProxyChain, Step, ToAgent, ToEditor, ToProxy
from tabrelay.acp.relay_client import RelayClient
from tabrelay.acp.requests import RequestTable
from tabrelay.acp.router import (
    AbandonSession,
    CloseSession,
    Effect,
    ForwardMcp,
    Opening,
    OpenSession,
    ResolveRequest,
    ResolveSession,
    Router,
    SendDown,
    SendUp,
)
from tabrelay.acp.sessions import AcpSession, OfferedServer
from tabrelay.admission.tokens import StateError, TokenStoreError
from tabrelay.bridge.bridge import Bridge, Output
from tabserver.wire import jsonrpc

log = logging.getLogger("tabrelay.acp")

REPORT_S: Final = 5.0  # a relay that was restarted knows its sessions again about when its browsers are back
CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ConductorOptions:
    """`program`: how this installation is started, for agents. `wants_http`: send agents to the relay itself."""

    program: tuple[str, ...]
    wants_http: bool = False
    dialect: Dialect | None = None


class Conductor:
    def __init__(
        self,
        editor: Output,
        agent: ChildProcess,
        relay: RelayClient,
        options: ConductorOptions,
        proxies: Sequence[ChildProcess] = (),
    ) -> None:
        """`proxies`: those that stand between the two, the editor's neighbour first."""
        self._agent = agent
        self._proxies = list(proxies)
        self._editor = editor
        self._relay = relay
        self._options = options
        ids = RequestIds()
        self._editor_requests = RequestTable(self._send_up, ids)
        self._agent_requests = RequestTable(self._agent.write, ids)
        self._connections = OpenConnections(self._editor_requests)
        self._browser_servers = BrowserServers(self._agent_requests, self._make_outbound)
        self._router = Router(
            self._connections.owns, self._browser_servers.owns, self._editor_requests.asked, self._agent_requests.asked
        )
        is_first = options.dialect in (G1, G2)
        self._proxy_chain = ProxyChain(len(self._proxies), ids, FIRST if is_first else None)
        self._server_facts = ServerFacts(options.dialect, is_shared=not self._proxies)
        self._openings: dict[Opening, AcpSession] = {}
        self._sessions: dict[str, AcpSession] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._started = asyncio.Event()
        self._lines_received = 0  # lines of the editor's
        self._problem: str | None = None
        self._has_reported = False
        self._report_lock = asyncio.Lock()  # what was said last must be what is so

    # -- from begin to end ---------------------------------------------------------------------------------------------

    async def run(self, chunks: AsyncIterator[bytes], ended: asyncio.Event | None = None) -> int:
        """Until the editor, the agent or a proxy is gone, or somebody stops it; gives the exit code.

        `ended`: the editor will say no more, though not all that it said was taken yet."""
        reading = asyncio.create_task(self._read_editor(chunks))
        reporting = asyncio.create_task(self._report_changes())
        ends = [asyncio.create_task(event.wait()) for event in (self._stopped, self._editor.broken)]
        started, last = (asyncio.create_task(event.wait()) for event in (self._started, ended or asyncio.Event()))
        try:
            await asyncio.wait([reading, started, *ends], return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait([reading, last, *self._readers, *ends], return_when=asyncio.FIRST_COMPLETED)
            if last.done():
                await self._forward_rest([reading, *self._readers, *ends])
            if gone := [task for task in self._readers if task.done()]:
                return await self._agent_gone(gone, ends)
            if reading.done():
                reading.result()  # a bug: let it be seen
            if reading.done() or last.done():
                await self._finish(ends, EXIT_S if reading.done() else 0)  # one that does not read had its time
            return 0 if self._problem is None else 1
        finally:
            await self._close([reading, reporting, started, last, *ends])

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    async def _forward_rest(self, tasks: list[asyncio.Task[Any]]) -> None:
        """The editor has left. What it said still goes to the agent, while that takes any of it."""
        before = None
        while before != self._lines_received:
            before = self._lines_received
            done, _ = await asyncio.wait(tasks, timeout=EXIT_S, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    async def _finish(self, ends: list[asyncio.Task[Any]], leave_s: float) -> None:
        """The editor has said everything. What the agent still answers within a moment arrives."""
        for component in (*self._proxies, self._agent):
            component.close_input()
        if self._readers:
            last = asyncio.gather(*self._readers, return_exceptions=True)
            await asyncio.wait([last, *ends], timeout=leave_s, return_when=asyncio.FIRST_COMPLETED)
            last.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await last

    async def _agent_gone(self, gone: list[asyncio.Task[None]], ends: list[asyncio.Task[Any]]) -> int:
        for task in gone:
            task.result()  # a bug: let it be seen
        component = next(
            c for c, task in zip((self._agent, *self._proxies), self._readers, strict=True) if task in gone
        )
        why = await component.exit_reason()
        if component.code:
            log.error("%s", why)
        telling = asyncio.create_task(self._notify_gone(component, why))
        try:  # the editor may not read, or never again
            await asyncio.wait([telling, *ends], timeout=EXIT_S, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        code = component.code or 0
        return code if code >= 0 else 128 - code

    async def _notify_gone(self, component: ChildProcess, why: str) -> None:
        told = self._router.agent_gone(f"The agent is gone. {why}.")
        if self._proxies:
            told = [effect for effect in told if not isinstance(effect, SendUp)]
        await self._apply(told)
        await self._apply_steps(
            self._proxy_chain.fail_waiting(f"{'The agent' if component is self._agent else 'A proxy'} is gone. {why}.")
        )
        # The editor is still there: what the agent had of it is given back in order.
        self._agent_requests.close()
        await asyncio.gather(*(self._release(session) for session in self._sessions.values()))

    async def _close(self, tasks: list[asyncio.Task[Any]]) -> None:
        everything = [*tasks, *self._readers]
        for task in everything:
            task.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
        self._editor_requests.close()
        self._agent_requests.close()
        sessions = {*self._sessions.values(), *self._openings.values()}
        await asyncio.gather(*(self._release(session) for session in sessions))
        await asyncio.gather(self._connections.close(), self._browser_servers.close())
        await asyncio.gather(*(component.end() for component in (*self._proxies, self._agent)))
        await self._relay.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read_editor(self, chunks: AsyncIterator[bytes]) -> None:
        async for message in inlet.read_messages(inlet.split_lines(chunks), "the editor", self._editor.write):
            self._lines_received += 1
            if not self._started.is_set() and self._problem is None:
                await self._start()
            if self._problem is None:
                await self._apply_steps(self._proxy_chain.from_editor(message))
            elif message.is_request:
                await self._editor.write(acp_message.refusal(message.id_text, jsonrpc.INTERNAL_ERROR, self._problem))

    async def _start(self) -> None:
        """With the editor's first word, not before: editors start agents to look whether they are there."""
        try:
            for component in (self._agent, *self._proxies):
                await component.start()
        except ChildError as problem:
            self._problem = str(problem)
            log.error("%s", problem)
            self._stopped.set()
            return
        self._readers.append(asyncio.create_task(self._read_agent()))
        for place, proxy in enumerate(self._proxies):
            self._readers.append(asyncio.create_task(self._read_proxy(place, proxy)))
        self._started.set()

    async def _read_agent(self) -> None:
        async for message in inlet.read_messages(self._agent.lines(), "the agent", self._agent.write):
            await self._apply(self._router.from_agent(message))

    async def _read_proxy(self, place: int, proxy: ChildProcess) -> None:
        async for message in inlet.read_messages(proxy.lines(), proxy.command[0], proxy.write):
            await self._apply_steps(self._proxy_chain.from_proxy(place, message))

    # -- doing ---------------------------------------------------------------------------------------------------------

    async def _send_up(self, raw: bytes) -> None:
        await self._apply_steps(self._proxy_chain.from_agent(raw))

    async def _apply_steps(self, steps: list[Step]) -> None:
        for step in steps:
            match step:
                case ToEditor(raw):
                    await self._editor.write(raw)
                case ToProxy(place, raw):
                    await self._proxies[place].write(raw)
                case ToAgent(message):
                    await self._apply(self._router.from_editor(message))

    async def _apply(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendUp(raw):
                    await self._send_up(raw)
                case SendDown(raw):
                    await self._agent.write(raw)
                case OpenSession(opening):
                    await self._open_session(opening)
                case ResolveSession(opening, id):
                    await self._resolve_session(opening, id)
                case AbandonSession(opening):
                    if (session := self._openings.pop(opening, None)) is not None:
                        await self._release(session)
                case CloseSession(id):
                    if (closed := self._sessions.pop(id, None)) is not None:
                        await self._release(closed)
                        self._changed.set()
                case ForwardMcp(message, is_above):
                    await (self._connections if is_above else self._browser_servers).receive(message)
                case ResolveRequest(message, is_above):
                    await (self._editor_requests if is_above else self._agent_requests).resolve(message)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _open_session(self, opening: Opening) -> None:
        """Every port is open before the agent hears of the session."""
        session = self._openings[opening] = AcpSession(opening.session, self._changed.set)
        try:
            rewritten = await self._offer_servers(session, opening)
        finally:
            if session.is_closed:  # the agent died meanwhile: what was opened since then goes too
                await self._release(session)
        await self._agent.write(rewritten)

    async def _offer_servers(self, session: AcpSession, opening: Opening) -> bytes:
        """Makes the session's servers; gives what the agent is told instead."""
        replaced, added = {}, []
        if not self._router.is_native and self._router.takes_stdio:
            for place, declared in opening.declared.items():
                entry = opening.message.params["mcpServers"][place]
                if (bridged := await self._offer_editor_server(session, declared, entry)) is not None:
                    replaced[place] = bridged
        taken = set(opening.names)
        for server in await self._relay.servers():
            name = declarations.free_name(server, taken)
            taken.add(name)
            if (offered := await self._offer_browser_server(session, name, server)) is not None:
                added.append(offered)
        return opening.rewritten(replaced, added)

    async def _offer_editor_server(
        self, session: AcpSession, declared: DeclaredServer, entry: dict[str, Any]
    ) -> str | None:
        """A server of the editor's, for an agent that can't reach it itself."""
        offer = OfferedServer(session, declared.name, None, declared.id, "stdio")

        async def serve(reader: asyncio.StreamReader, outlet: LineWriter) -> None:
            connections: list[str] = []

            def connected(id: str) -> None:
                connections.append(id)
                offer.connected(id)

            tunnel = EditorConnection(
                declared,
                self._editor_requests,
                self._connections,
                self._server_facts,
                outlet,
                lambda: session.id,
                connected,
            )
            try:
                lines = inlet.read_messages(inlet.split_lines(_chunks(reader)), "an MCP client", outlet.write)
                await tunnel.run((message.raw async for message in lines), session.id_known.wait())
            finally:
                for id in connections:
                    offer.disconnected(id)

        return await self._open_port(offer, LocalPort(serve), entry.get("_meta"))

    async def _offer_browser_server(self, session: AcpSession, name: str, server: str) -> str | None:
        """A browser's server, in the way that suits the agent; None if it takes servers in no way at all."""
        offer = OfferedServer(session, name, server, str(uuid.uuid4()), "stdio")
        if self._router.is_native:
            offer.how = "acp"
            session.offers.append(offer)
            self._browser_servers.offer(offer)
            return declarations.native(name, offer.server_id, by_url=self._options.dialect in (G1, G2))
        if self._router.takes_http and (self._options.wants_http or not self._router.takes_stdio):
            try:
                token, offer.revoke = self._relay.token(server)
            except (StateError, TokenStoreError, OSError) as problem:
                log.warning("No token can be made for the agent: it gets %s as a program, if at all. %s", name, problem)
            else:
                offer.how = "http"
                session.offers.append(offer)
                return declarations.http(name, f"{self._relay.base()}/{server}", token, offer.server_id)
        if not self._router.takes_stdio:
            log.warning("The agent takes no MCP servers that are programs: it does not get %s.", name)
            return None

        async def serve(reader: asyncio.StreamReader, outlet: LineWriter) -> None:
            id = uuid.uuid4().hex[:12]
            outbound = self._make_outbound(offer, id)
            offer.connected(id)
            try:
                await Bridge(outbound, outlet).run(_chunks(reader))
            finally:
                offer.disconnected(id)
                await outbound.close()

        return await self._open_port(offer, LocalPort(serve), None)

    async def _open_port(self, offer: OfferedServer, listener: LocalPort, meta: Any) -> str | None:
        try:
            await listener.start()
        except OSError as problem:
            log.error("No port can be had for %s, which the agent does not get: %s", offer.name, problem)
            return None
        offer.local_port = listener
        offer.session.offers.append(offer)
        program, is_typed = self._options.program, self._router.is_typed
        return declarations.stdio(offer.name, program, listener.port, listener.nonce, is_typed=is_typed, meta=meta)

    def _make_outbound(self, offer: OfferedServer, connection: str) -> Any:
        assert offer.server is not None
        return self._relay.outbound(offer.server, offer.server_id, connection)

    async def _resolve_session(self, opening: Opening, id: str) -> None:
        session = self._openings.pop(opening)
        session.resolve(id)
        before = self._sessions.get(id)
        self._sessions[id] = session
        if before is not None:
            await self._release(before)
        await self._report()

    async def _release(self, session: AcpSession) -> None:
        for offer in session.offers:
            await self._browser_servers.withdraw(offer)
        await session.close()

    # -- what the relay is told ----------------------------------------------------------------------------------------

    async def _report_changes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._changed.wait()
            self._changed.clear()
            await self._report()
            await asyncio.sleep(0.1)  # many changes that come together are told together

    async def _report(self) -> None:
        async with self._report_lock:
            rows = [session.describe() for session in self._sessions.values()]
            if self._has_reported or any(offer["server"] is not None for row in rows for offer in row["servers"]):
                self._has_reported = True
                await self._relay.report(self._router.agent or PurePath(self._agent.command[0]).name, rows)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            yield data
