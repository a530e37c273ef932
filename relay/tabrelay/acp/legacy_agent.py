"""Handshake-era MCP client of an agent at a server of the G4 dialect, which supports only MCP 2026-07-28.

Requests go through the relay's translator (`translation.to_modern`), which calls back to send the modern request in an
envelope. This module connects the two; it does not translate messages itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import orjson

from tabrelay import __version__
from tabrelay.acp import message as acp_message
from tabrelay.acp.connection import Write
from tabrelay.acp.envelope_requests import EnvelopeOutcome, EnvelopeRequest, EnvelopeRequests
from tabrelay.acp.message import AcpMessage
from tabrelay.bridge.messages import load
from tabrelay.bridge.parsing import LARGE, parsed
from tabrelay.calls.calls import Call, Notice, Pending, Reply
from tabrelay.errors import BadAnswer, BadRequest, RelayError
from tabrelay.system.tasks import BackgroundTasks
from tabrelay.translation import messages
from tabrelay.translation.to_modern import LegacyToModern
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era
from tabserver.wire.frames import Caller

log = logging.getLogger("tabrelay.acp")

CHANNEL: Final = "agent"
INFO: Final = {"name": "tabrelay", "version": __version__}
DISCOVER_S: Final = 30.0  # the connection's other lines wait meanwhile; its end is detected
DISCOVER_TIMEOUT: Final = json.dumps(
    {"code": jsonrpc.INTERNAL_ERROR, "message": f"The server did not answer server/discover within {DISCOVER_S:g} s."}
)


class LegacyAgent:
    """One connection; its first message is `initialize`."""

    def __init__(self, envelopes: EnvelopeRequests, write: Write) -> None:
        self.discovered: dict[str, Any] = {}
        self.is_modern = False
        self._envelopes = envelopes
        self._write = write
        self._caller = Caller(Era.LEGACY, eras.NEWEST_LEGACY, "agent")
        self._translator = LegacyToModern(self, INFO)
        self._running: dict[Pending, EnvelopeRequest] = {}
        self._tasks = BackgroundTasks()
        self._announced: deque[bytes] = deque()  # notifications that are being written

    # -- from the agent ------------------------------------------------------------------------------------------------

    def receive(self, message: AcpMessage) -> None:
        """A notification or a response of the agent's client."""
        if message.value is not None:
            self._translator.notify(CHANNEL, message.value)

    async def initialize(self, message: AcpMessage) -> None:
        """`initialize`."""
        params, capabilities = message.params, message.params.get("capabilities")
        self._caller = Caller(
            Era.LEGACY,
            eras.negotiate(str(params.get("protocolVersion"))),
            "agent",
            params.get("clientInfo") if isinstance(params.get("clientInfo"), dict) else None,
            capabilities if isinstance(capabilities, dict) else {},
            ready=True,
        )
        outcome = await self._discover()
        if outcome.result is None:
            await self._write(acp_message.answer(message.id_text, error=outcome.error))
            return
        found = await parsed(load, outcome.result.encode())
        self.discovered, self.is_modern = (found if isinstance(found, dict) else {}), True
        self._translator.listen(CHANNEL, self._deliver)
        self.start_request(message, lambda: None)

    def _deliver(self, notice: Notice) -> None:
        self._announced.append(notice.payload.encode())

    async def _write_announced(self) -> None:
        """The server's next notification is read when the agent has room for those before it."""
        while self._announced:
            # defence: notifications that an agent does not read
            await self._write(self._announced.popleft())

    async def _discover(self) -> EnvelopeOutcome:
        modern = Caller(Era.MODERN, eras.MODERN_VERSIONS[0], "agent", self._caller.client, self._caller.capabilities)

        async def on_notification(method: str, params: str | None) -> None:
            """Ignored: there is no session yet."""

        params = json.dumps(messages.modern_params({}, modern, None))
        request = await self._envelopes.start('"discover"', methods.SERVER_DISCOVER, params, on_notification)
        await asyncio.wait((request.sent.answer,), timeout=DISCOVER_S)
        if not request.sent.answer.done():
            await self._envelopes.cancel(request)
            return EnvelopeOutcome(error=DISCOVER_TIMEOUT)
        return await self._envelopes.outcome(request)

    def start_request(self, message: AcpMessage, on_done: Callable[[], None]) -> None:
        """Starts a request without waiting: the next message may cancel it."""
        assert message.method is not None
        text = message.text.removeprefix("\ufeff")
        outer = Pending(Call(CHANNEL, message.id, message.method, text, self._caller))
        # defence: conductor's loop time: large requests of an agent of the handshake era
        outer.call.values = message.value if message.is_large else None
        try:
            self._translator.start(outer)
        except RelayError as error:
            outer.end(error)
        # Such as half of a surrogate pair, or 1e400: valid JSON that the translator can't parse or write.
        except (ValueError, TypeError) as problem:
            text = f"This request can't be translated for the server: {problem}"
            outer.end(BadRequest(text, code=jsonrpc.INVALID_PARAMS))
        outer.call.values = None
        self._tasks.start(self._write_replies(message.id_text, outer, on_done))

    async def _write_replies(self, id: str, outer: Pending, on_done: Callable[[], None]) -> None:
        try:
            while not isinstance(item := await outer.next(), Reply):
                if isinstance(item, Notice):
                    await self._write(item.payload.encode())
            if item.error_code != jsonrpc.REQUEST_CANCELLED:  # the client that cancelled it expects no answer
                await self._write(item.payload.encode())
        except RelayError as error:
            await self._write(acp_message.refusal(id, error.code, error.message, error.data(None)))
        finally:
            on_done()

    # -- the translator's peer -----------------------------------------------------------------------------------------

    def start(self, pending: Pending) -> None:
        async def carry() -> None:
            if not pending.is_done:  # it may be cancelled before it is sent
                await self._send_request(pending)

        self._tasks.start(carry())

    def cancel(self, pending: Pending, why: str) -> None:
        request = self._running.pop(pending, None)
        if request is not None:
            self._tasks.start(self._envelopes.cancel(request))

    async def _send_request(self, pending: Pending) -> None:
        message = await parsed(AcpMessage.read, pending.call.payload.encode())

        async def on_notification(method: str, params: str | None) -> None:
            try:
                pending.notify(Notice(acp_message.notification(method, params).decode()))
            except ValueError as problem:
                log.warning("A notice of the server's can't be translated: %s", problem)
            await self._write_announced()

        request = await self._envelopes.start(
            message.id_text, pending.call.method, message.part("params"), on_notification
        )
        if pending.is_done:
            await self._envelopes.cancel(request)
            return
        self._running[pending] = request
        try:
            outcome = await self._envelopes.outcome(request)
        except asyncio.CancelledError:
            return
        finally:
            self._running.pop(pending, None)
        code = None if outcome.error is None else (await parsed(load, outcome.error.encode()))["code"]
        payload = acp_message.answer(message.id_text, result=outcome.result, error=outcome.error).decode()
        try:
            # defence: conductor's loop time: large answers to an agent of the handshake era
            values = await asyncio.to_thread(orjson.loads, payload) if len(payload) > LARGE else None
            pending.end(Reply(payload, code, values=values))
        except ValueError as problem:
            pending.end(BadAnswer(f"The server's answer can't be translated: {problem}"))

    # -- the end -------------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        self.is_modern = False
        self._translator.end(CHANNEL)
        await self._tasks.cancel()
