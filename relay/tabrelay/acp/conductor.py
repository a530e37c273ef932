"""ACP conductor: runs an agent and its proxies as child processes and passes messages between them and the editor.

Each side has one reader task, and a message is handled completely before the next line is read, so messages keep their
order. A program that does not read makes the other side wait (backpressure); nothing accumulates here.
Where a message goes is decided by `router` and `proxy_chain`. Servers for a session are made by `session_servers`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Sequence
from pathlib import PurePath
from typing import Any, Final

from tabrelay.acp import line_reader
from tabrelay.acp import message as acp_message
from tabrelay.acp.browser_servers import BrowserServers
from tabrelay.acp.child import EXIT_S, ChildError, ChildProcess
from tabrelay.acp.connections import OpenConnections
from tabrelay.acp.dialects import G1, G2
from tabrelay.acp.editor_connection import ServerFacts
from tabrelay.acp.message import AcpMessage, RequestIds
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
from tabrelay.acp.session_servers import ConductorOptions, SessionServers, make_outbound
from tabrelay.acp.sessions import AcpSession
from tabrelay.bridge.bridge import Output
from tabrelay.bridge.parsing import parsed
from tabrelay.system.tasks import cancel
from tabserver.wire import jsonrpc

log = logging.getLogger("tabrelay.acp")

REPORT_S: Final = 5.0  # a restarted relay gets the sessions again at about the time its browsers reconnect


class Conductor:
    def __init__(
        self,
        editor: Output,
        agent: ChildProcess,
        relay: RelayClient,
        options: ConductorOptions,
        proxies: Sequence[ChildProcess] = (),
    ) -> None:
        """`proxies`: in order from the editor to the agent."""
        self._agent = agent
        self._proxies = list(proxies)
        self._editor = editor
        self._relay = relay
        ids = RequestIds()
        self._editor_requests = RequestTable(self._send_up, ids)
        self._agent_requests = RequestTable(self._agent.write, ids)
        self._connections = OpenConnections(self._editor_requests)
        self._browser_servers = BrowserServers(self._agent_requests, functools.partial(make_outbound, relay))
        self._router = Router(
            self._connections.owns,
            self._browser_servers.owns,
            self._editor_requests.is_answer,
            self._agent_requests.is_answer,
        )
        is_first = options.dialect in (G1, G2)
        self._proxy_chain = ProxyChain(len(self._proxies), ids, FIRST if is_first else None)
        self._session_servers = SessionServers(
            options,
            self._router,
            relay,
            self._browser_servers,
            self._editor_requests,
            self._connections,
            ServerFacts(options.dialect, is_shared=not self._proxies),
        )
        self._openings: dict[Opening, AcpSession] = {}
        self._sessions: dict[str, AcpSession] = {}
        self._readers: list[asyncio.Task[None]] = []
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._started = asyncio.Event()
        self._lines_received = 0  # from the editor
        self._problem: str | None = None
        self._has_reported = False
        self._report_lock = asyncio.Lock()  # the last report must have the current state

    # -- life cycle ----------------------------------------------------------------------------------------------------

    async def run(self, chunks: AsyncIterator[bytes], ended: asyncio.Event | None = None) -> int:
        """Runs until the editor, the agent or a proxy is gone, or `stop` is called; returns the exit code.

        `ended`: the editor has closed its output, although some of it may not have been read yet."""
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
                reading.result()  # raises if the reader failed
            if reading.done() or last.done():
                # An agent that does not read already had its time in `_forward_rest`.
                await self._finish(ends, EXIT_S if reading.done() else 0)
            return 0 if self._problem is None else 1
        finally:
            await self._close([reading, reporting, started, last, *ends])

    def stop(self) -> None:
        self._stopped.set()

    @property
    def is_stopping(self) -> bool:
        return self._stopped.is_set()

    async def _forward_rest(self, tasks: list[asyncio.Task[Any]]) -> None:
        """Forwards the rest of the editor's lines after it has left, as long as the agent still reads some of them."""
        before = None
        while before != self._lines_received:
            before = self._lines_received
            done, _ = await asyncio.wait(tasks, timeout=EXIT_S, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return

    async def _finish(self, ends: list[asyncio.Task[Any]], leave_s: float) -> None:
        """Closes the children's input after the editor's last line, and waits `leave_s` for their last answers."""
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
            task.result()  # raises if the reader failed
        component = next(
            c for c, task in zip((self._agent, *self._proxies), self._readers, strict=True) if task in gone
        )
        why = await component.exit_reason()
        if component.code:
            log.error("%s", why)
        telling = asyncio.create_task(self._notify_gone(component, why))
        try:  # the editor may not read
            await asyncio.wait([telling, *ends], timeout=EXIT_S, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            await cancel(telling)
        code = component.code or 0
        return code if code >= 0 else 128 - code

    async def _notify_gone(self, component: ChildProcess, why: str) -> None:
        effects = self._router.agent_gone(f"The agent is gone. {why}.")
        if self._proxies:
            effects = [effect for effect in effects if not isinstance(effect, SendUp)]
        await self._apply(effects)
        await self._apply_steps(
            self._proxy_chain.fail_waiting(f"{'The agent' if component is self._agent else 'A proxy'} is gone. {why}.")
        )
        # The editor is still connected: the connections and sessions that the agent had there are closed in order.
        self._agent_requests.close()
        await asyncio.gather(*(self._release(session) for session in self._sessions.values()))

    async def _close(self, tasks: list[asyncio.Task[Any]]) -> None:
        await cancel(*tasks, *self._readers)
        self._editor_requests.close()
        self._agent_requests.close()
        sessions = {*self._sessions.values(), *self._openings.values()}
        await asyncio.gather(*(self._release(session) for session in sessions))
        await asyncio.gather(self._connections.close(), self._browser_servers.close())
        await asyncio.gather(*(component.end() for component in (*self._proxies, self._agent)))
        await self._relay.close()

    # -- reading -------------------------------------------------------------------------------------------------------

    async def _read_editor(self, chunks: AsyncIterator[bytes]) -> None:
        async for message in line_reader.read_messages(
            line_reader.split_lines(chunks), "the editor", self._editor.write
        ):
            self._lines_received += 1
            if not self._started.is_set() and self._problem is None:
                await self._start()
            if self._problem is None:
                await self._apply_steps(self._proxy_chain.from_editor(message))
            elif message.is_request:
                await self._editor.write(acp_message.refusal(message.id_text, jsonrpc.INTERNAL_ERROR, self._problem))

    async def _start(self) -> None:
        """Starts the children at the editor's first message: editors also start agents only to see if they exist."""
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
        async for message in line_reader.read_messages(self._agent.lines(), "the agent", self._agent.write):
            await self._apply(self._router.from_agent(message))

    async def _read_proxy(self, place: int, proxy: ChildProcess) -> None:
        async for message in line_reader.read_messages(proxy.lines(), proxy.command[0], proxy.write):
            await self._apply_steps(self._proxy_chain.from_proxy(place, message))

    # -- effects -------------------------------------------------------------------------------------------------------

    async def _send_up(self, raw: bytes) -> None:
        if self._proxies:
            await self._apply_steps(self._proxy_chain.from_agent(await parsed(AcpMessage.read, raw)))
        else:
            await self._editor.write(raw)

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
                case ForwardMcp(message, is_from_editor):
                    await _locate(message)
                    await (self._connections if is_from_editor else self._browser_servers).receive(message)
                case ResolveRequest(message, is_from_editor):
                    await _locate(message)
                    await (self._editor_requests if is_from_editor else self._agent_requests).resolve(message)

    # -- sessions ------------------------------------------------------------------------------------------------------

    async def _open_session(self, opening: Opening) -> None:
        """Every port is open before the agent receives the request."""
        session = self._openings[opening] = AcpSession(opening.session, self._changed.set)
        try:
            rewritten = await self._session_servers.declare(session, opening)
        finally:
            if session.is_closed:  # the agent ended meanwhile: close what was opened since then
                await self._release(session)
        await self._agent.write(rewritten)

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

    # -- reports to the relay ------------------------------------------------------------------------------------------

    async def _report_changes(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S):
                    await self._changed.wait()
            self._changed.clear()
            await self._report()
            await asyncio.sleep(0.1)  # changes that come together go into one report

    async def _report(self) -> None:
        async with self._report_lock:
            rows = [session.describe() for session in self._sessions.values()]
            if self._has_reported or any(offer["server"] is not None for row in rows for offer in row["servers"]):
                self._has_reported = True
                await self._relay.report(self._router.agent or PurePath(self._agent.command[0]).name, rows)


async def _locate(message: AcpMessage) -> None:
    """For a large message that was taken out of an envelope: those of a program's own lines were located when they were
    read."""
    # defence: conductor's loop time: members of a message out of an envelope
    if not message.is_located:
        await asyncio.to_thread(message.locate)
