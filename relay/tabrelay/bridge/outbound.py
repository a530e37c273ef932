"""Every request to the server, with the user's headers and the token on it.

Between the rules of MCP (see forwarder, listener) and plain HTTP (see upstream): the one place where a token is put on.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from tabrelay.bridge import request_headers
from tabrelay.bridge.credentials import Credentials
from tabrelay.bridge.http import HttpAnswer, HttpEndpoint
from tabrelay.bridge.messages import BridgeMessage
from tabrelay.bridge.session import SessionSnapshot
from tabrelay.bridge.tool_headers import ToolHeaders
from tabserver.wire import methods

END_MS: Final = 1000


@dataclass(frozen=True, slots=True)
class OutboundLimits:
    timeout_ms: int = 300_000
    """Until an answer begins, and the longest silence within it."""

    max_event: int = 8 << 20


@dataclass(frozen=True, slots=True)
class Sent:
    """An answer, and the Authorization that its request had."""

    answer: HttpAnswer
    authorization: str | None


class Outbound:
    def __init__(
        self, upstream: HttpEndpoint, credentials: Credentials, given: Mapping[str, str], limits: OutboundLimits
    ) -> None:
        """`given`: headers of the user's."""
        self._upstream = upstream
        self._credentials = credentials
        self._given = given
        self.limits = limits
        self.params = ToolHeaders()

    @property
    def where(self) -> str:
        return self._upstream.where

    @property
    def advice(self) -> str:
        return self._upstream.advice

    @property
    def hint(self) -> str:
        return self._credentials.hint

    @contextlib.asynccontextmanager
    async def post(
        self, message: BridgeMessage, ticket: SessionSnapshot, on_written: Callable[[], None] | None = None
    ) -> AsyncIterator[Sent]:
        idle_ms = None if message.method == methods.SUBSCRIPTIONS_LISTEN else self.limits.timeout_ms
        authorization = await self._credentials.header()
        wanted = request_headers.for_post(self._with(authorization), message, ticket, self.params)
        async with self._upstream.open(
            "POST", wanted, message.raw, deadline_ms=self.limits.timeout_ms, idle_ms=idle_ms, on_written=on_written
        ) as answer:
            yield Sent(answer, authorization)

    @contextlib.asynccontextmanager
    async def stream(self, ticket: SessionSnapshot, last_id: str | None, *, is_patient: bool) -> AsyncIterator[Sent]:
        """The server's own stream (patient: it may be silent for ever), or the rest of one that broke."""
        authorization = await self._credentials.header()
        wanted = request_headers.for_stream(self._with(authorization), ticket, last_id)
        timeout_ms = self.limits.timeout_ms
        async with self._upstream.open(
            "GET", wanted, deadline_ms=timeout_ms, idle_ms=None if is_patient else timeout_ms
        ) as answer:
            yield Sent(answer, authorization)

    async def end(self, ticket: SessionSnapshot) -> None:
        wanted = request_headers.for_end(self._with(await self._credentials.header()), ticket)
        async with self._upstream.open("DELETE", wanted, deadline_ms=END_MS, idle_ms=END_MS):
            pass

    async def refused(self, sent: Sent) -> bool:
        """True: there is another token now, or another proof of the one that there was."""
        is_renewed = self._upstream.forget(sent.answer)
        return await self._credentials.refused(sent.authorization, sent.answer) or is_renewed

    async def close(self) -> None:
        await self._upstream.close()

    def _with(self, authorization: str | None) -> Mapping[str, str]:
        return self._given if authorization is None else {**self._given, "authorization": authorization}
