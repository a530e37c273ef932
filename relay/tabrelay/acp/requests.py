"""Requests that the conductor itself sends to the editor or the agent, and their responses.

Ids carry the conductor's prefix, so its responses are distinguished from those of the two programs. A response is
handled completely before the peer's next message, so nothing overtakes it. Messages between editor and agent are not
tracked here (`router`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tabrelay.acp import message as acp_message
from tabrelay.acp.message import AcpMessage, RequestIds
from tabrelay.system.tasks import BackgroundTasks

MAX_LATE: Final = 1024

Send = Callable[[bytes], Awaitable[None]]
OnLateAnswer = Callable[[AcpMessage], Awaitable[None]]
WaitForRoom = Callable[[], Awaitable[None]]


class ConnectionGone(Exception):
    """The peer is gone and will not answer."""


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A request of the conductor that was written.

    `wait_for_room` is awaited before the answer is taken, so that the answer can be passed on. `on_answer` is called
    before the peer's next message is read; a task that awaits the answer may run later. `on_late_answer` gets the
    answer when no task awaits it any more: for answers that open something which has to be closed.
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
        self._late: dict[str, OnLateAnswer] = {}  # cancelled requests whose answer must still be handled
        self._sending = BackgroundTasks()
        self._is_gone = False

    async def start(
        self,
        method: str,
        params: str | None,
        on_answer: Callable[[AcpMessage], None] | None = None,
        on_late_answer: OnLateAnswer | None = None,
        wait_for_room: WaitForRoom | None = None,
    ) -> SentRequest:
        """Writes a request; the answer comes later. Requests are written in the order of the calls.

        Raises ConnectionGone, also when MAX_LATE answers with `on_late_answer` are missing: none of them may be
        lost."""
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
            self.forget(sent)  # it may have been written nevertheless
            raise
        return sent

    async def _send_shielded(self, line: bytes) -> None:
        """Writes the line even if the caller is cancelled: a caller that gives up can't know whether the request was
        written, so it always is, and an answer always comes."""
        await asyncio.shield(self._sending.start(self._send_line(line)))

    async def _send_line(self, line: bytes) -> None:
        await self._send(line)

    async def request(
        self,
        method: str,
        params: str | None,
        on_answer: Callable[[AcpMessage], None] | None = None,
        on_late_answer: OnLateAnswer | None = None,
    ) -> AcpMessage:
        """The response, result or error. Raises ConnectionGone. Cancelling the caller drops the request."""
        sent = await self.start(method, params, on_answer, on_late_answer)
        try:
            return await sent.answer
        except asyncio.CancelledError:
            self.forget(sent)
            raise

    # Nothing is written to a peer that is gone: the write could block without a limit, and its caller could not end.

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
        """Drops the request and sends `$/cancel_request`."""
        if sent.id in self._waiting:
            self.forget(sent)
            await self.notify("$/cancel_request", json.dumps({"requestId": sent.id}))

    def forget(self, sent: SentRequest) -> None:
        if self._waiting.pop(sent.id, None) is not None:
            if sent.on_late_answer is not None:
                self._late[sent.id] = sent.on_late_answer
            sent.answer.cancel()

    def is_answer(self, message: AcpMessage) -> bool:
        """Whether the message answers a request of the conductor, also one that was dropped."""
        return self._ids.is_ours(message.id)

    async def resolve(self, message: AcpMessage) -> None:
        """Delivers a response. The task that awaits it has run when this returns, so the peer's next message does not
        overtake the response."""
        sent = self._waiting.get(message.id)
        if sent is not None and sent.wait_for_room is not None:
            await sent.wait_for_room()  # otherwise answers could accumulate in tasks that can't pass them on
        sent = self._waiting.pop(message.id, None)
        on_late_answer = self._late.pop(message.id, None) if sent is None else sent.on_late_answer
        if sent is not None and not sent.answer.done():
            if sent.on_answer is not None:
                sent.on_answer(message)
            sent.answer.set_result(message)
            await asyncio.sleep(0)  # the waiting task runs before this one continues
        elif on_late_answer is not None:  # the waiting task was cancelled, and may not have run since
            await on_late_answer(message)

    def close(self) -> None:
        self._is_gone = True
        for asked in self._waiting.values():
            if not asked.answer.done():
                asked.answer.set_exception(ConnectionGone())
                asked.answer.exception()  # retrieved, since no task may be waiting
        self._waiting.clear()
        self._late.clear()
        for sending in self._sending:
            sending.cancel()
