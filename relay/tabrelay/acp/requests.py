"""One side of the conductor, as it speaks to it in its own name: requests with ids of its own, and their answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage, RequestIds

MAX_LATE: Final = 1024

Send = Callable[[bytes], Awaitable[None]]
OnLateAnswer = Callable[[AcpMessage], Awaitable[None]]
WaitForRoom = Callable[[], Awaitable[None]]


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
    on_answer: Callable[[AcpMessage], None] | None = None
    on_late_answer: OnLateAnswer | None = None
    wait_for_room: WaitForRoom | None = None


class RequestTable:
    def __init__(self, send: Send, ids: RequestIds) -> None:
        self._send = send
        self._ids = ids
        self._waiting: dict[str, SentRequest] = {}
        self._late: dict[str, OnLateAnswer] = {}  # given up: the answer may still come, and somebody has to look at it
        self._sending: set[asyncio.Task[None]] = set()
        self._is_gone = False

    async def start(
        self,
        method: str,
        params: str | None,
        on_answer: Callable[[AcpMessage], None] | None = None,
        on_late_answer: OnLateAnswer | None = None,
        wait_for_room: WaitForRoom | None = None,
    ) -> SentRequest:
        """Write a request; its answer comes later. So what is said one after the other arrives in that order.

        Raises PeerGone, also when too many answers with a `late` are missing: none of them may be forgotten."""
        if self._is_gone or (on_late_answer is not None and len(self._late) >= MAX_LATE):
            raise ConnectionGone
        sent = SentRequest(
            self._ids.next(), asyncio.get_running_loop().create_future(), on_answer, on_late_answer, wait_for_room
        )
        self._waiting[sent.id] = sent
        line = acp_message.request(sent.id, method, params)
        try:
            await (self._send(line) if on_late_answer is None else self._send_shielded(line))
        except BaseException:
            self.forget(sent)  # it may have been written all the same
            raise
        return sent

    async def _send_shielded(self, line: bytes) -> None:
        """Whoever gives it up does not know whether it was written. It will be, so that an answer comes for certain."""
        sending = asyncio.create_task(self._send_line(line))
        self._sending.add(sending)
        sending.add_done_callback(self._sending.discard)
        await asyncio.shield(sending)

    async def _send_line(self, line: bytes) -> None:
        await self._send(line)

    async def request(
        self,
        method: str,
        params: str | None,
        on_answer: Callable[[AcpMessage], None] | None = None,
        on_late_answer: OnLateAnswer | None = None,
    ) -> AcpMessage:
        """The answer, result or error. Raises PeerGone. Whoever gives up cancels it."""
        sent = await self.start(method, params, on_answer, on_late_answer)
        try:
            return await sent.answer
        except asyncio.CancelledError:
            self.forget(sent)
            raise

    # Nobody reads what is said to a peer that is gone, and writing it may take for ever: then whoever says it can end.

    async def notify(self, method: str, params: str | None) -> None:
        if not self._is_gone:
            await self._send(acp_message.notification(method, params))

    async def answer(self, id: str, *, result: str | None = None, error: str | None = None) -> None:
        if not self._is_gone:
            await self._send(acp_message.answer(id, result=result, error=error))

    async def refuse(self, id: str, code: int, text: str) -> None:
        if not self._is_gone:
            await self._send(acp_message.refusal(id, code, text))

    async def cancel(self, sent: SentRequest) -> None:
        """Tell it that the answer is no longer wanted."""
        if sent.id in self._waiting:
            self.forget(sent)
            await self.notify("$/cancel_request", json.dumps({"requestId": sent.id}))

    def forget(self, sent: SentRequest) -> None:
        if self._waiting.pop(sent.id, None) is not None:
            if sent.on_late_answer is not None:
                self._late[sent.id] = sent.on_late_answer
            sent.answer.cancel()

    def is_answer(self, message: AcpMessage) -> bool:
        """Does it answer a request of ours? Also of one that was given up: the answer is for nobody else."""
        return self._ids.is_ours(message.id)

    async def resolve(self, message: AcpMessage) -> None:
        """Whoever waited has had its turn when this returns: what the peer says next does not overtake its answer."""
        sent = self._waiting.get(message.id)
        if sent is not None and sent.wait_for_room is not None:
            await sent.wait_for_room()  # else any number of answers could pile up with those who can't pass them on
        sent = self._waiting.pop(message.id, None)
        on_late_answer = self._late.pop(message.id, None) if sent is None else sent.on_late_answer
        if sent is not None and not sent.answer.done():
            if sent.on_answer is not None:
                sent.on_answer(message)
            sent.answer.set_result(message)
            await asyncio.sleep(0)  # it is woken before we are
        elif on_late_answer is not None:  # whoever waited was cancelled, and need not have had its turn yet
            await on_late_answer(message)

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
