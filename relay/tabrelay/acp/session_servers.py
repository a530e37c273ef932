"""MCP servers that the conductor declares to an agent in one ACP session.

For each server that the editor provides and each connected browser, it chooses how the agent can use the server (MCP
over ACP, HTTP, or a stdio program), starts what that needs, and returns the `session/…` request with the declarations
in place. Every local port accepts connections before the agent receives the request.
It does not decide when a session opens or ends (`conductor`), nor which message belongs to which session (`router`).
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from tabrelay.acp import declarations, line_reader
from tabrelay.acp.browser_servers import BrowserServers
from tabrelay.acp.connections import OpenConnections
from tabrelay.acp.declarations import DeclaredServer
from tabrelay.acp.dialects import G1, G2, Dialect
from tabrelay.acp.editor_connection import EditorConnection, ServerFacts
from tabrelay.acp.line_writer import LineWriter
from tabrelay.acp.local_port import LocalPort
from tabrelay.acp.relay_client import RelayClient
from tabrelay.acp.requests import RequestTable
from tabrelay.acp.router import Opening, Router
from tabrelay.acp.sessions import AcpSession, OfferedServer
from tabrelay.admission.tokens import StateError, TokenStoreError
from tabrelay.bridge.bridge import Bridge
from tabrelay.bridge.outbound import Outbound

log = logging.getLogger("tabrelay.acp")

CHUNK: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class ConductorOptions:
    """`program`: the command that starts this installation, for agents.

    `bridge`: how agents reach a browser's server. `auto`: over HTTP if the agent advertises it, else as a program. Some
    agents advertise HTTP and refuse programs, although ACP 1 requires those of all agents. `http`: also if the agent
    does not advertise it.
    `dialect`: the form of MCP over ACP that the user chose; None: detect it.
    """

    program: tuple[str, ...]
    bridge: Literal["auto", "stdio", "http"] = "auto"
    dialect: Dialect | None = None


def make_outbound(relay: RelayClient, offer: OfferedServer, connection: str) -> Outbound:
    """The HTTP client for one MCP connection to a browser's server."""
    assert offer.server is not None
    return relay.outbound(offer.server, offer.server_id, connection)


class SessionServers:
    def __init__(
        self,
        options: ConductorOptions,
        router: Router,
        relay: RelayClient,
        browser_servers: BrowserServers,
        editor_requests: RequestTable,
        connections: OpenConnections,
        server_facts: ServerFacts,
    ) -> None:
        """`router` has the agent's capabilities. `editor_requests` and `connections`: for servers of the editor."""
        self._options = options
        self._router = router
        self._relay = relay
        self._browser_servers = browser_servers
        self._editor_requests = editor_requests
        self._connections = connections
        self._server_facts = server_facts

    async def declare(self, session: AcpSession, opening: Opening) -> bytes:
        """Starts the session's servers and returns the request that the agent gets instead of the editor's."""
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
        rewritten = functools.partial(opening.rewritten, replaced, added)
        return await asyncio.to_thread(rewritten) if opening.message.is_large else rewritten()

    async def _offer_editor_server(
        self, session: AcpSession, declared: DeclaredServer, entry: dict[str, Any]
    ) -> str | None:
        """A server of the editor as a stdio program, for an agent that does not support MCP over ACP."""
        offer = OfferedServer(session, declared.name, None, declared.id, "stdio")

        async def serve(reader: asyncio.StreamReader, writer: LineWriter) -> None:
            connections: list[str] = []

            def connected(id: str) -> None:
                connections.append(id)
                offer.connected(id)

            connection = EditorConnection(
                declared,
                self._editor_requests,
                self._connections,
                self._server_facts,
                writer,
                lambda: session.id,
                connected,
            )
            try:
                lines = line_reader.split_lines(_chunks(reader))
                messages = line_reader.read_messages(lines, "an MCP client", writer.write)
                await connection.run((message.raw async for message in messages), session.id_known.wait())
            finally:
                for id in connections:
                    offer.disconnected(id)

        return await self._open_port(offer, LocalPort(serve), entry.get("_meta"))

    async def _offer_browser_server(self, session: AcpSession, name: str, server: str) -> str | None:
        """A browser's server in the form that the agent supports; None if it supports none."""
        offer = OfferedServer(session, name, server, str(uuid.uuid4()), "stdio")
        if self._router.is_native:
            offer.how = "acp"
            session.offers.append(offer)
            self._browser_servers.offer(offer)
            return declarations.native(name, offer.server_id, by_url=self._options.dialect in (G1, G2))
        if self._is_over_http:
            try:
                token, offer.revoke = self._relay.token(server)
            except (StateError, TokenStoreError, OSError) as problem:
                log.warning(
                    "No token can be made for the agent, so it gets %s as a program, if at all. %s", name, problem
                )
            else:
                offer.how = "http"
                session.offers.append(offer)
                return declarations.http(name, f"{self._relay.base()}/{server}", token, offer.server_id)
        if not self._router.takes_stdio:
            log.warning("The agent does not support MCP servers that are programs, so it does not get %s.", name)
            return None

        async def serve(reader: asyncio.StreamReader, writer: LineWriter) -> None:
            id = uuid.uuid4().hex[:12]
            outbound = make_outbound(self._relay, offer, id)
            offer.connected(id)
            try:
                await Bridge(outbound, writer).run(_chunks(reader))
            finally:
                offer.disconnected(id)
                await outbound.close()

        return await self._open_port(offer, LocalPort(serve), None)

    @property
    def _is_over_http(self) -> bool:
        """Does the agent connect to the relay for a browser's server?"""
        match self._options.bridge:
            case "http":
                return True
            case "stdio":
                return self._router.takes_http and not self._router.takes_stdio
        return self._router.takes_http

    async def _open_port(self, offer: OfferedServer, port: LocalPort, meta: Any) -> str | None:
        """Listens for `tabrelay mcp` and returns the declaration that starts it; None if there is no free port."""
        try:
            await port.start()
        except OSError as problem:
            log.error("There is no free port for %s, so the agent does not get it: %s", offer.name, problem)
            return None
        offer.local_port = port
        offer.session.offers.append(offer)
        program, is_typed = self._options.program, self._router.is_typed
        return declarations.stdio(offer.name, program, port.port, port.nonce, is_typed=is_typed, meta=meta)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK):
            yield data
