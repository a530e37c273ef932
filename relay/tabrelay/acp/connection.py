"""One MCP connection over ACP, in the dialects that have connections (G1 to G3). The same code serves both directions.

On one side is an MCP program that writes lines (an agent's client, or the bridge to a browser's server). On the other
is the ACP peer, which sends and receives each message in an envelope that names the connection. Ids are translated in
both directions. G4, which has no connections, is in `envelope_requests`.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tabrelay.acp import message as acp_message
from tabrelay.acp.concurrency import OrderedDelivery
from tabrelay.acp.dialects import CANCELLED, G1, G2, Dialect
from tabrelay.acp.line_reader import refuse_id
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable, SentRequest, WaitForRoom
from tabrelay.bridge.messages import Key, elements, key
from tabrelay.bridge.parsing import parsed
from tabrelay.errors import Busy
from tabrelay.system.tasks import BackgroundTasks
from tabserver.wire import jsonrpc, methods

log = logging.getLogger("tabrelay.acp")

MAX_RUNNING: Final = 128
MAX_INBOUND: Final = 256
"""Requests of the peer that the MCP program has not answered: the same limit as in the bridge to a browser's server."""

# Methods that only one of G1 and G2 has; both connect alike.
_DIALECT_SHOWN: Final = {G1.request: G1, G1.notification: G1, G2.request: G2}

Write = Callable[[bytes], Coroutine[Any, Any, None]]


class AcpConnection:
    def __init__(
        self,
        dialect: Dialect,
        id: str,
        requests: RequestTable,
        write: Write,
        session: Callable[[], str | None],
        wait_for_room: WaitForRoom | None = None,
    ) -> None:
        """`write` sends to the MCP program; `wait_for_room` waits until that is possible. `session`: the ACP session
        id, or None until it is known."""
        self.dialect = dialect
        self.id = id
        self._is_certain = dialect is not G1  # G1 and G2 connect alike: the dialect is certain after a request
        self._requests = requests
        self._write = write
        self._wait_for_room = wait_for_room
        self._session = session
        self._queue = OrderedDelivery(MAX_RUNNING, self._send_request, write)
        self._sent: dict[Key, SentRequest] = {}
        self._tasks = BackgroundTasks()
        self._inbound: dict[str, tuple[Key, str]] = {}  # our inner id -> the peer's request
        self._ids = itertools.count(1)
        self.closed_by_peer = asyncio.Event()  # by the peer

    # -- from the MCP program ------------------------------------------------------------------------------------------

    async def send(self, line: bytes) -> None:
        # defence: conductor's loop time: messages of an MCP program
        message = await parsed(AcpMessage.read, line)
        if message.value is None:
            await send_parts(line, self.send, self._write)
        elif message.is_request:
            await self._queue.submit(message)
        elif message.method == methods.CANCELLED:
            await self._cancel(message)
        elif message.method is not None:
            await self._requests.notify(self.dialect.notification, self._params(message.method, message.part("params")))
        elif message.is_response and isinstance(message.id, str) and message.id in self._inbound:
            _, outer = self._inbound.pop(message.id)
            await self._requests.answer(outer, result=message.result, error=message.error)

    async def _send_request(self, message: AcpMessage) -> None:
        assert message.method is not None
        params = message.part("params")
        sent = await self._requests.start(
            self.dialect.request, self._params(message.method, params), wait_for_room=self._wait_for_room
        )
        self._sent[message.key] = sent
        # Keep no more of the request than a second attempt needs: a call may be large and run for a long time.
        again = None if self._is_certain else (message.method, params)
        self._tasks.start(self._await_answer(message.key, message.id_text, sent, again))

    async def _await_answer(self, one: Key, id: str, sent: SentRequest, again: tuple[str, str | None] | None) -> None:
        try:
            answer = await sent.answer
            if answer.error_code != jsonrpc.METHOD_NOT_FOUND:
                self._is_certain = True
            elif again is not None and not self._is_certain:
                sent = await self._requests.start(G2.request, self._params(*again), wait_for_room=self._wait_for_room)
                self._sent[one] = sent
                answer = self._choose_answer(answer, await sent.answer)
            await self._write(acp_message.answer(id, result=answer.result, error=answer.error))
        except ConnectionGone:
            await self._write(acp_message.refusal(id, jsonrpc.INTERNAL_ERROR, "The connection was closed."))
        except asyncio.CancelledError:
            self._requests.forget(sent)
        finally:
            if self._sent.get(one) is sent:  # a faulty client may use one id twice
                del self._sent[one]
            self._queue.release()

    def _choose_answer(self, first: AcpMessage, second: AcpMessage) -> AcpMessage:
        """The peer does not know `_mcp/request`, or the MCP server does not know the method. Only the answer to the
        same request in G2 shows which."""
        if second.error_code == jsonrpc.METHOD_NOT_FOUND:
            return first
        self.dialect, self._is_certain = G2, True
        return second

    async def _cancel(self, message: AcpMessage) -> None:
        """Sends two notifications: MCP's `notifications/cancelled` to the server, and ACP's `$/cancel_request` to the
        peer that forwards the request."""
        one = key(message.params.get("requestId"))
        if self._queue.withdraw(one):
            return
        async with self._queue.start_lock:
            sent = self._sent.pop(one, None)
            if sent is None:
                return
            params = {**message.params, "requestId": sent.id}
            await self._requests.notify(self.dialect.notification, self._params(methods.CANCELLED, json.dumps(params)))
            await self._requests.cancel(sent)

    def _params(self, method: str, params: str | None) -> str:
        return self.dialect.message_params(self.id, method, params, self._session())

    # -- from the ACP peer ---------------------------------------------------------------------------------------------

    async def receive(self, message: AcpMessage) -> None:
        """A message for this connection."""
        if message.method in _DIALECT_SHOWN:
            self.dialect, self._is_certain = _DIALECT_SHOWN[message.method], True
        method, params = message.params.get("method"), message.part("params", "params")
        inner = message.params.get("params")
        about = inner.get("requestId") if isinstance(inner, dict) else None
        if not isinstance(method, str):
            if message.is_request:
                await self._requests.refuse(message.id_text, jsonrpc.INVALID_PARAMS, "params.method is missing.")
        elif message.is_request and len(self._inbound) >= MAX_INBOUND:
            text = f"{MAX_INBOUND} requests of yours wait for this MCP client; this one was not delivered."
            await self._requests.refuse(message.id_text, Busy.code, text)
        elif message.is_request:
            id = f"acp-{next(self._ids)}"
            self._inbound[id] = (message.key, message.id_text)
            await self._write(acp_message.request(id, method, params))
        elif method == methods.CANCELLED and self.has_inbound(about):
            await self.cancel_inbound(about)
        else:
            await self._write(acp_message.notification(method, params))

    def has_inbound(self, request: Any) -> bool:
        """Whether the peer has a request with this id here."""
        return any(one == key(request) for one, _ in self._inbound.values())

    async def cancel_inbound(self, request: Any) -> None:
        """The peer cancels its request."""
        for inner, (one, outer) in list(self._inbound.items()):
            if one == key(request):
                del self._inbound[inner]
                await self._write(acp_message.notification(methods.CANCELLED, json.dumps({"requestId": inner})))
                await self._requests.refuse(outer, CANCELLED, "The request was cancelled.")

    async def close(self) -> None:
        """The MCP program is gone: cancels its requests, and refuses the requests that it has not answered."""
        await self._queue.close()
        for asked in list(self._sent.values()):
            await self._requests.cancel(asked)
        for _, outer in self._inbound.values():
            await self._requests.refuse(outer, jsonrpc.INTERNAL_ERROR, "The MCP connection was closed.")
        self._inbound.clear()
        await self._tasks.cancel()


async def disconnect(requests: RequestTable, dialect: Dialect, id: str) -> None:
    """Notifies the peer that a connection has ended. Raises ConnectionGone."""
    params = dialect.disconnect_params(id)
    if not dialect.is_disconnect_answered:
        await requests.notify(dialect.disconnect, params)
        return
    sent = await requests.start(dialect.disconnect, params)
    requests.forget(sent)  # the answer has no use


async def send_parts(line: bytes, send: Write, write: Write) -> None:
    """Sends the messages of a batch (MCP 2025-03-26), or refuses a line that is not JSON-RPC."""
    parts: list[bytes] = []
    if line.lstrip().startswith(b"["):
        with contextlib.suppress(ValueError):
            parts = await parsed(elements, line)
    for part in parts:
        if part.startswith(b"{"):
            message = await parsed(AcpMessage.read, part)
            await (send(part) if message.id_flaw is None else refuse_id(message, "an MCP client", write))
    if not parts:
        await write(acp_message.refusal("null", jsonrpc.PARSE_ERROR, "This line is not a JSON-RPC message."))
