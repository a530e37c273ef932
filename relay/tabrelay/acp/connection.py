"""One MCP connection over ACP, in the shapes that have connections (G1 to G3). The same from both of its ends.

On one side an MCP program that writes lines (an agent's client, or the bridge to a browser's server); on the other the
ACP peer, which sends and gets each message in an envelope that names the connection. Ids are translated both ways.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.acp import message as frames
from tabrelay.acp.concurrency import OrderedDelivery
from tabrelay.acp.dialects import CANCELLED, G1, G2, Dialect
from tabrelay.acp.inlet import refuse_id
from tabrelay.acp.message import AcpMessage
from tabrelay.acp.requests import ConnectionGone, RequestTable, Room, SentRequest
from tabrelay.bridge.messages import Key, elements, key
from tabrelay.errors import Busy
from tabserver.wire import jsonrpc, methods

log = logging.getLogger("tabrelay.acp")

MAX_RUNNING: Final = 128
MAX_ASKED: Final = 256
"""Questions of the peer's that the MCP program has not answered: as many as the bridge to a browser's server takes."""

# Names that only one of the two has which connect alike.
_SHOWS: Final = {G1.request: G1, G1.notification: G1, G2.request: G2}

Write = Callable[[bytes], Awaitable[None]]


class AcpConnection:
    def __init__(
        self,
        profile: Dialect,
        id: str,
        peer: RequestTable,
        write: Write,
        session: Callable[[], str | None],
        room: Room | None = None,
    ) -> None:
        """`write`: to the MCP program; `room`: until that can be done. `session`: the ACP session, once it is known."""
        self.profile = profile
        self.id = id
        self._is_certain = profile is not G1  # of the profile: G1 and G2 connect alike
        self._peer = peer
        self._write = write
        self._room = room
        self._session = session
        self._turns = OrderedDelivery(MAX_RUNNING, self._ask, write)
        self._asked: dict[Key, SentRequest] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._inbound: dict[str, tuple[Key, str]] = {}  # our inner id -> the peer's request
        self._ids = itertools.count(1)
        self.hung_up = asyncio.Event()  # by the peer

    # -- from the MCP program ------------------------------------------------------------------------------------------

    async def say(self, line: bytes) -> None:
        frame = AcpMessage.read(line)
        if frame.value is None:
            await say_parts(line, self.say, self._write)
        elif frame.is_request:
            await self._turns.enter(frame)
        elif frame.method == methods.CANCELLED:
            await self._cancel(frame)
        elif frame.method is not None:
            await self._peer.notify(self.profile.notification, self._params(frame.method, frame.part("params")))
        elif frame.is_response and isinstance(frame.id, str) and frame.id in self._inbound:
            _, outer = self._inbound.pop(frame.id)
            await self._peer.answer(outer, result=frame.result, error=frame.error)

    async def _ask(self, frame: AcpMessage) -> None:
        assert frame.method is not None
        params = frame.part("params")
        asked = await self._peer.begin(self.profile.request, self._params(frame.method, params), room=self._room)
        self._asked[frame.key] = asked
        # Nothing more is kept of it than may be needed: a call may be large, and run for long.
        again = None if self._is_certain else (frame.method, params)
        task = asyncio.create_task(self._answered(frame.key, frame.id_text, asked, again))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answered(self, one: Key, id: str, asked: SentRequest, again: tuple[str, str | None] | None) -> None:
        try:
            answer = await asked.answer
            if answer.error_code != jsonrpc.METHOD_NOT_FOUND:
                self._is_certain = True
            elif again is not None and not self._is_certain:
                asked = await self._peer.begin(G2.request, self._params(*again), room=self._room)
                self._asked[one] = asked
                answer = self._chosen(answer, await asked.answer)
            await self._write(frames.answer(id, result=answer.result, error=answer.error))
        except ConnectionGone:
            await self._write(frames.refusal(id, jsonrpc.INTERNAL_ERROR, "The connection was closed."))
        except asyncio.CancelledError:
            self._peer.forget(asked)
        finally:
            if self._asked.get(one) is asked:  # two may have the same id, though they must not
                del self._asked[one]
            self._turns.leave()

    def _chosen(self, first: AcpMessage, second: AcpMessage) -> AcpMessage:
        """`_mcp/request` is not known, or the MCP server does not know what was asked: only G2 can tell which."""
        if second.error_code == jsonrpc.METHOD_NOT_FOUND:
            return first
        self.profile, self._is_certain = G2, True
        return second

    async def _cancel(self, frame: AcpMessage) -> None:
        """Said twice: to the MCP server, in its words, and to whoever carries the request, in theirs."""
        one = key(frame.params.get("requestId"))
        if self._turns.withdraw(one):
            return
        async with self._turns.order:
            asked = self._asked.pop(one, None)
            if asked is None:
                return
            params = {**frame.params, "requestId": asked.id}
            await self._peer.notify(self.profile.notification, self._params(methods.CANCELLED, json.dumps(params)))
            await self._peer.cancel(asked)

    def _params(self, method: str, params: str | None) -> str:
        return self.profile.message_params(self.id, method, params, self._session())

    # -- from the ACP peer ---------------------------------------------------------------------------------------------

    async def hear(self, frame: AcpMessage) -> None:
        """A message for this connection."""
        if frame.method in _SHOWS:
            self.profile, self._is_certain = _SHOWS[frame.method], True
        method, params = frame.params.get("method"), frame.part("params", "params")
        inner = frame.params.get("params")
        about = inner.get("requestId") if isinstance(inner, dict) else None
        if not isinstance(method, str):
            if frame.is_request:
                await self._peer.refuse(frame.id_text, jsonrpc.INVALID_PARAMS, "params.method is missing.")
        elif frame.is_request and len(self._inbound) >= MAX_ASKED:
            text = f"{MAX_ASKED} requests of yours wait for this MCP client; this one was not delivered."
            await self._peer.refuse(frame.id_text, Busy.code, text)
        elif frame.is_request:
            id = f"acp-{next(self._ids)}"
            self._inbound[id] = (frame.key, frame.id_text)
            await self._write(frames.request(id, method, params))
        elif method == methods.CANCELLED and self.is_asked(about):
            await self.cancelled(about)
        else:
            await self._write(frames.notification(method, params))

    def is_asked(self, request: Any) -> bool:
        """Has the peer a request here with this id?"""
        return any(one == key(request) for one, _ in self._inbound.values())

    async def cancelled(self, request: Any) -> None:
        """The peer gives up a request of its own."""
        for inner, (one, outer) in list(self._inbound.items()):
            if one == key(request):
                del self._inbound[inner]
                await self._write(frames.notification(methods.CANCELLED, json.dumps({"requestId": inner})))
                await self._peer.refuse(outer, CANCELLED, "The request was cancelled.")

    async def close(self) -> None:
        """The MCP program is gone: nothing that it asked for is wanted, and nothing that it was asked will come."""
        await self._turns.close()
        for asked in list(self._asked.values()):
            await self._peer.cancel(asked)
        for _, outer in self._inbound.values():
            await self._peer.refuse(outer, jsonrpc.INTERNAL_ERROR, "The MCP connection was closed.")
        self._inbound.clear()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


async def disconnect(peer: RequestTable, profile: Dialect, id: str) -> None:
    """Tell the peer that a connection is over. Raises PeerGone."""
    params = profile.disconnect_params(id)
    if not profile.is_disconnect_answered:
        await peer.notify(profile.disconnect, params)
        return
    asked = await peer.begin(profile.disconnect, params)
    peer.forget(asked)  # it is answered, and there is nothing to do with the answer


async def say_parts(line: bytes, say: Write, write: Write) -> None:
    """An array of messages, as one version has them; or nothing that can be understood."""
    parts: list[bytes] = []
    if line.lstrip().startswith(b"["):
        with contextlib.suppress(ValueError, IndexError, RecursionError):
            parts = list(elements(line))
    for part in parts:
        if part.startswith(b"{"):
            frame = AcpMessage.read(part)
            await (say(part) if frame.id_flaw is None else refuse_id(frame, "an MCP client", write))
    if not parts:
        await write(frames.refusal("null", jsonrpc.PARSE_ERROR, "This line is not a JSON-RPC message."))
