"""HTTP transport to an upstream: the SDK's Streamable HTTP and HTTP+SSE transports on an `AnsweringClient`.

With transport "auto" it starts with Streamable HTTP, and changes to the other one after a status that indicates it. It
uses no MCP method.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import httpx2
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from tabrelay.config.specs import HttpSpec
from tabrelay.peers.upstreams.dispatcher import Report, Streams
from tabrelay.peers.upstreams.faults import ConnectionFault, Redactor, UpstreamFault
from tabrelay.peers.upstreams.large_messages import (
    MessageLimits,
    RestoringStream,
    StoringStream,
)
from tabrelay.peers.upstreams.transports.answering_client import AnsweringClient, SignIn

ENDPOINT_S: Final = 10.0  # to the first event of HTTP+SSE
# Statuses of an address without Streamable HTTP: it may support HTTP+SSE.
OTHER_TRANSPORT: Final = frozenset({400, 404, 405})


class HttpTransport:
    """The transport of one spec."""

    def __init__(
        self, spec: HttpSpec, *, limits: MessageLimits, redact: Redactor, sign_in: SignIn | None = None
    ) -> None:
        self._spec = spec
        self._sign_in = sign_in
        self._limits = limits
        self._redact = redact
        self._is_sse = spec.transport == "sse"

    @property
    def has_call_context(self) -> bool:
        return not self._is_sse

    def adapt(self, fault: UpstreamFault) -> bool:
        if self._spec.transport != "auto" or fault.status not in OTHER_TRANSPORT:
            return False
        # The next attempt starts with the other one again: the server may have been updated.
        self._is_sse = not self._is_sse
        return self._is_sse

    @contextlib.asynccontextmanager
    async def open(self, report: Report) -> AsyncIterator[Streams]:
        async with (
            AnsweringClient(self._spec, report, self._redact, self._limits, self._sign_in) as client,
            contextlib.AsyncExitStack() as stack,
        ):
            if self._is_sse:
                reading, writing = await self._open_sse(client, stack)
            else:
                size = self._limits.size
                transport = streamable_http_client(self._spec.url, http_client=client, max_sse_event_size=size)
                reading, writing = await stack.enter_async_context(transport)
            yield RestoringStream(reading, client.large_messages), StoringStream(writing, client.large_messages)

    async def _open_sse(self, client: AnsweringClient, stack: contextlib.AsyncExitStack) -> Streams:
        client.has_answer_stream = True

        def client_factory(headers: object = None, timeout: object = None, auth: object = None) -> httpx2.AsyncClient:
            return client

        try:
            # The SDK waits without a limit when the server gives it an address of another origin.
            async with asyncio.timeout(ENDPOINT_S):
                return await stack.enter_async_context(sse_client(self._spec.url, httpx_client_factory=client_factory))
        except TimeoutError:
            text = f"within {ENDPOINT_S:g} s it gave no address to send messages to, or one of another origin"
            raise ConnectionFault(UpstreamFault(text, "no", ends_connection=True)) from None
