"""One side of the conductor, as it speaks to it in its own name: requests with ids of its own, and their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tabrelay.acp import message as frames
from tabrelay.acp.message import AcpMessage, RequestIds

MAX_LATE: Final = 1024

Send = Callable[[bytes], Awaitable[None]]
Late = Callable[[AcpMessage], Awaitable[None]]
Room = Callable[[], Awaitable[None]]


class ConnectionGone(Exception):
    """Nobody will answer any more."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request of ours that was written.

    `room` is waited for before the answer is taken: there has to be a place to put it. `at_once` hears of the answer
    before the peer's next message is looked at; whoever awaits it may be later. `late` gets it when nobody awaits it
    any more: for an answer that is the beginning of something which has to be ended.
    """

    id: str
    answer: asyncio.Future[AcpMessage]
    at_once: Callable[[AcpMessage], None] | None = None
    late: Late | None = None
    room: Room | None = None


class RequestTable:
    def __init__(self, send: Send, ids: RequestIds) -> None:
        self._send = send
        self._ids = ids
        self._waiting: dict[str, SentRequest] = {}
        self._late: dict[str, Late] = {}  # given up: the answer may still come, and somebody has to look at it
        self._sending: set[asyncio.Task[None]] = set()
        self._is_gone = False

    async def begin(
        self,
        method: str,
        params: str | None,
        at_once: Callable[[AcpMessage], None] | None = None,
        late: Late | None = None,
        room: Room | None = None,
    ) -> SentRequest:
        """Write a request; its answer comes later. So what is said one after the other arrives in that order.

        Raises PeerGone, also when too many answers with a `late` are missing: none of them may be forgotten."""
        if self._is_gone or (late is not None and len(self._late) >= MAX_LATE):
            raise ConnectionGone
        asked = SentRequest(self._ids.next(), asyncio.get_running_loop().create_future(), at_once, late, room)
        self._waiting[asked.id] = asked
        line = frames.request(asked.id, method, params)
        try:
            await (self._send(line) if late is None else self._send_surely(line))
        except BaseException:
            self.forget(asked)  # it may have been written all the same
            raise
        return asked

    async def _send_surely(self, line: bytes) -> None:
        """Whoever gives it up does not know whether it was written. It will be, so that an answer comes for certain."""
        sending = asyncio.create_task(self._sent(line))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        await asyncio.shield(sending)

    async def _sent(self, line: bytes) -> None:
        await self._send(line)

    async def request(
        self,
        method: str,
        params: str | None,
        at_once: Callable[[AcpMessage], None] | None = None,
        late: Late | None = None,
    ) -> AcpMessage:
        """The answer, result or error. Raises PeerGone. Whoever gives up cancels it."""
        asked = await self.begin(method, params, at_once, late)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            self.forget(asked)
            raise

    # Nobody reads what is said to a peer that is gone, and writing it may take for ever: then whoever says it can end.

    async def notify(self, method: str, params: str | None) -> None:
        if not self._is_gone:
            await self._send(frames.notification(method, params))

    async def answer(self, id: str, *, result: str | None = None, error: str | None = None) -> None:
        if not self._is_gone:
            await self._send(frames.answer(id, result=result, error=error))

    async def refuse(self, id: str, code: int, text: str) -> None:
        if not self._is_gone:
            await self._send(frames.refusal(id, code, text))

    async def cancel(self, asked: SentRequest) -> None:
        """Tell it that the answer is no longer wanted."""
        if asked.id in self._waiting:
            self.forget(asked)
            await self.notify("$/cancel_request", json.dumps({"requestId": asked.id}))

    def forget(self, asked: SentRequest) -> None:
        if self._waiting.pop(asked.id, None) is not None:
            if asked.late is not None:
                self._late[asked.id] = asked.late
            asked.answer.cancel()

    def asked(self, frame: AcpMessage) -> bool:
        """Does it answer a request of ours? Also of one that was given up: the answer is for nobody else."""
        return self._ids.is_ours(frame.id)

    async def resolve(self, frame: AcpMessage) -> None:
        """Whoever waited has had its turn when this returns: what the peer says next does not overtake its answer."""
        asked = self._waiting.get(frame.id)
        if asked is not None and asked.room is not None:
            await asked.room()  # else any number of answers could pile up with those who can't pass them on
        asked = self._waiting.pop(frame.id, None)
        late = self._late.pop(frame.id, None) if asked is None else asked.late
        if asked is not None and not asked.answer.done():
            if asked.at_once is not None:
                asked.at_once(frame)
            asked.answer.set_result(frame)
            await asyncio.sleep(0)  # it is woken before we are
        elif late is not None:  # whoever waited was cancelled, and need not have had its turn yet
            await late(frame)

    def close(self) -> None:
        self._is_gone = True
        for asked in self._waiting.values():
            if not asked.answer.done():
                asked.answer.set_exception(ConnectionGone())
                asked.answer.exception()  # nobody need have waited
        self._waiting.clear()
        self._late.clear()
        for sending in self._sending:
            sending.cancel()
