"""MCP requests to a server that an ACP peer provides, in the shape without connections (G4).

Each request of MCP 2026-07-28 goes in an envelope of its own, which names the server and the request; its answer is
carried back inside an answer. Notices of the server name the request that they belong to.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from tabrelay.acp import json_edit
from tabrelay.acp.dialects import FAILED, G4, SESSION
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable, Room, SentRequest
from tabserver.wire import jsonrpc
from tabserver.wire.eras import META_SUBSCRIPTION

Told = Callable[[str, str | None], Awaitable[None]]
"""A notice: its method, and its params as JSON."""


@dataclass(frozen=True, slots=True)
class EnvelopeOutcome:
    """JSON; one of the two."""

    result: str | None = None
    error: str | None = None


@dataclass(eq=False, slots=True)
class EnvelopeRequest:
    """One request on its way."""

    id: str
    inner: str
    asked: SentRequest
    told: Told


class EnvelopeRequests:
    """For one server. `session`: the ACP session, once it is known. `room`: until an answer can be passed on."""

    def __init__(self, server_id: str, peer: RequestTable, session: Callable[[], str | None], room: Room) -> None:
        self._server_id = server_id
        self._peer = peer
        self._session = session
        self._room = room
        self._errands: dict[str, EnvelopeRequest] = {}

    async def begin(self, inner: str, method: str, params: str | None, told: Told) -> EnvelopeRequest:
        """Send a request. `inner`: the id that its sender gave it, as JSON."""
        id = secrets.token_hex(8)
        session = self._session()
        parts = {
            "serverId": json.dumps(self._server_id),
            "requestId": json.dumps(id),
            "method": json.dumps(method),
            "params": params,
            "_meta": None if session is None else json.dumps({SESSION: session}),
        }
        asked = await self._peer.begin(G4.request, json_edit.build(parts), room=self._room)
        errand = self._errands[id] = EnvelopeRequest(id, inner, asked, told)
        return errand

    async def outcome(self, errand: EnvelopeRequest) -> EnvelopeOutcome:
        """What became of it. Raises CancelledError when it was given up."""
        try:
            answer = await errand.asked.answer
        except ConnectionGone:
            return _failed("The connection was closed.")
        except asyncio.CancelledError:
            self._peer.forget(errand.asked)
            raise
        finally:
            self._errands.pop(errand.id, None)
        if answer.error is not None:
            if _is_error((answer.value or {}).get("error")):
                return EnvelopeOutcome(error=answer.error)
            return _failed("The server's provider failed, and did not say why.")
        carried = (answer.value or {}).get("result")
        # Senders must include exactly one outcome. Receivers prefer `result` if both are present.
        if isinstance(carried, dict) and "result" in carried:
            return EnvelopeOutcome(result=self._restored(answer.part("result", "result") or "null", errand))
        if isinstance(carried, dict) and _is_error(carried.get("error")):
            return EnvelopeOutcome(error=answer.part("result", "error"))
        return _failed("The server's provider answered with neither a result nor an error.")

    async def give_up(self, errand: EnvelopeRequest) -> None:
        self._errands.pop(errand.id, None)
        await self._peer.cancel(errand.asked)

    def owns(self, frame: AcpMessage) -> bool:
        id = frame.params.get("requestId")
        return isinstance(id, str) and id in self._errands

    async def hear(self, frame: AcpMessage) -> None:
        """A notice of the server's for one of the requests."""
        errand = self._errands.get(frame.params.get("requestId", ""))
        method = frame.params.get("method")
        if errand is not None and isinstance(method, str):
            params = frame.part("params", "params")
            await errand.told(method, None if params is None else self._restored(params, errand))

    async def close(self) -> None:
        for errand in list(self._errands.values()):
            await self.give_up(errand)

    def _restored(self, text: str, errand: EnvelopeRequest) -> str:
        """A subscription has the id of the request that asked for it: the sender knows that by its own."""
        if json_edit.raw(text, "_meta", META_SUBSCRIPTION) == json.dumps(errand.id):
            return json_edit.put(text, ("_meta", META_SUBSCRIPTION), errand.inner)
        return text


def _failed(text: str) -> EnvelopeOutcome:
    return EnvelopeOutcome(error=json.dumps({"code": FAILED, "message": text}))


def _is_error(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("code"), int) and isinstance(value.get("message"), str)


NOT_CARRIED: Final = json.dumps(
    {"code": jsonrpc.INVALID_REQUEST, "message": "This server takes requests of MCP 2026-07-28 only."}
)
