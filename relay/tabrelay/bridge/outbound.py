"""HTTP requests of the bridge with the user's headers and the token.

It is between the rules of MCP (`forwarder`, `server_stream`) and plain HTTP (`http`), and the only place that adds a
token. It does not retry.
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
    """Until an answer begins, and the longest pause within it."""

    max_event: int = 8 << 20


@dataclass(frozen=True, slots=True)
class Sent:
    """An answer, and the Authorization header of its request."""

    answer: HttpAnswer
    authorization: str | None


class Outbound:
    def __init__(
        self, endpoint: HttpEndpoint, credentials: Credentials, user_headers: Mapping[str, str], limits: OutboundLimits
    ) -> None:
        """`user_headers`: headers given by the user."""
        self._endpoint = endpoint
        self._credentials = credentials
        self._user_headers = user_headers
        self.limits = limits
        self.tool_headers = ToolHeaders()

    @property
    def where(self) -> str:
        return self._endpoint.where

    @property
    def advice(self) -> str:
        return self._endpoint.advice

    @property
    def hint(self) -> str:
        return self._credentials.hint

    @contextlib.asynccontextmanager
    async def post(
        self, message: BridgeMessage, snapshot: SessionSnapshot, on_written: Callable[[], None] | None = None
    ) -> AsyncIterator[Sent]:
        idle_ms = None if message.method == methods.SUBSCRIPTIONS_LISTEN else self.limits.timeout_ms
        authorization = await self._credentials.header()
        wanted = request_headers.for_post(
            self._headers_with(authorization, "POST"), message, snapshot, self.tool_headers
        )
        async with self._endpoint.open(
            "POST", wanted, message.raw, deadline_ms=self.limits.timeout_ms, idle_ms=idle_ms, on_written=on_written
        ) as answer:
            yield Sent(answer, authorization)

    @contextlib.asynccontextmanager
    async def stream(self, snapshot: SessionSnapshot, last_id: str | None, *, is_patient: bool) -> AsyncIterator[Sent]:
        """The server's stream (`is_patient`: without a limit on pauses), or the rest of a broken response stream."""
        authorization = await self._credentials.header()
        wanted = request_headers.for_stream(self._headers_with(authorization, "GET"), snapshot, last_id)
        timeout_ms = self.limits.timeout_ms
        async with self._endpoint.open(
            "GET", wanted, deadline_ms=timeout_ms, idle_ms=None if is_patient else timeout_ms
        ) as answer:
            yield Sent(answer, authorization)

    async def end_session(self, snapshot: SessionSnapshot) -> None:
        wanted = request_headers.for_end(self._headers_with(await self._credentials.header(), "DELETE"), snapshot)
        async with self._endpoint.open("DELETE", wanted, deadline_ms=END_MS, idle_ms=END_MS):
            pass

    async def refused(self, sent: Sent) -> bool:
        """True: there is a new token now, or a new proof of the same token."""
        is_renewed = self._endpoint.forget_proof(sent.answer)
        return await self._credentials.refused(sent.authorization, sent.answer) or is_renewed

    async def close(self) -> None:
        await self._endpoint.close()

    def _headers_with(self, authorization: str | None, method: str) -> Mapping[str, str]:
        if authorization is None:
            return self._user_headers
        proof = self._credentials.proof(authorization, method, self._endpoint.url)
        return {**self._user_headers, "authorization": authorization, **proof}
