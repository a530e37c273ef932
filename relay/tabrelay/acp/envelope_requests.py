"""MCP requests to a server that an ACP peer provides, in the dialect without connections (G4).

Each request of MCP 2026-07-28 is sent in one envelope, which names the server and the request. The result or error
comes back inside the response to the envelope. Notifications of the server name the request that they belong to. Only
the modern era is supported; `legacy_agent` translates for clients of the handshake era.
"""

from __future__ import annotations

import asyncio
import functools
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.acp import json_edit
from tabrelay.acp.dialects import FAILED, G4, SESSION
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable, SentRequest, WaitForRoom
from tabserver.wire import jsonrpc
from tabserver.wire.eras import META_SUBSCRIPTION

OnNotification = Callable[[str, str | None], Awaitable[None]]
"""Receives a notification: its method, and its params as JSON."""


@dataclass(frozen=True, slots=True)
class EnvelopeOutcome:
    """The result or the error, as JSON; the other is None."""

    result: str | None = None
    error: str | None = None


@dataclass(eq=False, slots=True)
class EnvelopeRequest:
    """One running request. `client_id`: the id that the client gave it, as JSON."""

    id: str
    client_id: str
    sent: SentRequest
    on_notification: OnNotification


class EnvelopeRequests:
    """The requests to one server. `session`: the ACP session id, or None until it is known. `wait_for_room` waits until
    an answer can be passed on."""

    def __init__(
        self, server_id: str, requests: RequestTable, session: Callable[[], str | None], wait_for_room: WaitForRoom
    ) -> None:
        self._server_id = server_id
        self._requests = requests
        self._session = session
        self._wait_for_room = wait_for_room
        self._running: dict[str, EnvelopeRequest] = {}

    async def start(
        self, client_id: str, method: str, params: str | None, on_notification: OnNotification
    ) -> EnvelopeRequest:
        """Sends a request. `client_id`: the id that the client gave it, as JSON."""
        id = secrets.token_hex(8)
        session = self._session()
        parts = {
            "serverId": json.dumps(self._server_id),
            "requestId": json.dumps(id),
            "method": json.dumps(method),
            "params": params,
            "_meta": None if session is None else json.dumps({SESSION: session}),
        }
        sent = await self._requests.start(G4.request, json_edit.build(parts), wait_for_room=self._wait_for_room)
        request = self._running[id] = EnvelopeRequest(id, client_id, sent, on_notification)
        return request

    async def outcome(self, request: EnvelopeRequest) -> EnvelopeOutcome:
        """Waits for the outcome. Raises CancelledError when the request was cancelled."""
        try:
            answer = await request.sent.answer
        except ConnectionGone:
            return _failed("The connection was closed.")
        except asyncio.CancelledError:
            self._requests.forget(request.sent)
            raise
        finally:
            self._running.pop(request.id, None)
        if answer.error is not None:
            if _is_error((answer.value or {}).get("error")):
                return EnvelopeOutcome(error=answer.error)
            return _failed("The server's provider failed without a reason.")
        carried = (answer.value or {}).get("result")
        # Senders must include exactly one outcome. Receivers prefer `result` if both are present.
        if isinstance(carried, dict) and "result" in carried:
            return EnvelopeOutcome(result=await _restore_id(answer, "result", request) or "null")
        if isinstance(carried, dict) and _is_error(carried.get("error")):
            return EnvelopeOutcome(error=answer.part("result", "error"))
        return _failed("The server's provider answered with neither a result nor an error.")

    async def cancel(self, request: EnvelopeRequest) -> None:
        self._running.pop(request.id, None)
        await self._requests.cancel(request.sent)

    def owns(self, message: AcpMessage) -> bool:
        id = message.params.get("requestId")
        return isinstance(id, str) and id in self._running

    async def receive(self, message: AcpMessage) -> None:
        """Passes on a notification for one of the requests."""
        request = self._running.get(message.params.get("requestId", ""))
        method = message.params.get("method")
        if request is not None and isinstance(method, str):
            await request.on_notification(method, await _restore_id(message, "params", request))

    async def close(self) -> None:
        for request in list(self._running.values()):
            await self.cancel(request)


async def _restore_id(envelope: AcpMessage, name: str, request: EnvelopeRequest) -> str | None:
    """The text of the params or result in an envelope, with the client's id: a subscription is named by the id of the
    request that opened it."""
    text = envelope.part(name, name)
    inside = (envelope.value or {}).get(name)
    about = inside[name].get("_meta") if isinstance(inside, dict) and isinstance(inside.get(name), dict) else None
    if text is None or not isinstance(about, dict) or about.get(META_SUBSCRIPTION) != request.id:
        return text
    put = functools.partial(json_edit.put, text, ("_meta", META_SUBSCRIPTION), request.client_id)
    return await asyncio.to_thread(put) if envelope.is_large else put()


def _failed(text: str) -> EnvelopeOutcome:
    return EnvelopeOutcome(error=json.dumps({"code": FAILED, "message": text}))


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("code"), int) and isinstance(value.get("message"), str)


MODERN_ONLY: Final = json.dumps(
    {"code": jsonrpc.INVALID_REQUEST, "message": "This server takes requests of MCP 2026-07-28 only."}
)
