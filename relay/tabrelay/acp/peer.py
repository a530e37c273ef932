"""One side of the conductor, as it speaks to it in its own name: requests with ids of its own, and their answers."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from tabrelay.acp import frame as frames
from tabrelay.acp.frame import Frame, Ids

MAX_LATE: Final = 1024

Send = Callable[[bytes], Awaitable[None]]


class PeerGone(Exception):
    """Nobody will answer any more."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request of ours that was written."""

    id: str
    answer: asyncio.Future[Frame]
    at_once: Callable[[Frame], None] | None = None


class Peer:
    def __init__(self, send: Send, ids: Ids) -> None:
        self._send = send
        self._ids = ids
        self._waiting: dict[str, Asked] = {}
        # Given up: the answer may still come, and is for nobody else.
        self._late: OrderedDict[str, None] = OrderedDict()
        self._is_gone = False

    async def begin(self, method: str, params: str | None, at_once: Callable[[Frame], None] | None = None) -> Asked:
        """Write a request; its answer comes later. So what is said one after the other arrives in that order."""
        if self._is_gone:
            raise PeerGone
        asked = Asked(self._ids.next(), asyncio.get_running_loop().create_future(), at_once)
        self._waiting[asked.id] = asked
        try:
            await self._send(frames.request(asked.id, method, params))
        except BaseException:
            self._waiting.pop(asked.id, None)
            raise
        return asked

    async def request(self, method: str, params: str | None, at_once: Callable[[Frame], None] | None = None) -> Frame:
        """The answer, result or error. Raises PeerGone. Whoever gives up cancels it.

        `at_once` hears of the answer before the peer's next message is looked at; whoever awaits it may be later."""
        asked = await self.begin(method, params, at_once)
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

    async def cancel(self, asked: Asked) -> None:
        """Tell it that the answer is no longer wanted."""
        if asked.id in self._waiting:
            self.forget(asked)
            await self.notify("$/cancel_request", json.dumps({"requestId": asked.id}))

    def forget(self, asked: Asked) -> None:
        if self._waiting.pop(asked.id, None) is not None:
            self._late[asked.id] = None
            if len(self._late) > MAX_LATE:
                self._late.popitem(last=False)
            asked.answer.cancel()

    def asked(self, frame: Frame) -> bool:
        """Does it answer a request of ours?"""
        return isinstance(frame.id, str) and (frame.id in self._waiting or frame.id in self._late)

    async def resolve(self, frame: Frame) -> None:
        """Whoever waited has had its turn when this returns: what the peer says next does not overtake its answer."""
        self._late.pop(frame.id, None)
        asked = self._waiting.pop(frame.id, None)
        if asked is not None and not asked.answer.done():
            if asked.at_once is not None:
                asked.at_once(frame)
            asked.answer.set_result(frame)
            await asyncio.sleep(0)  # it is woken before we are

    def close(self) -> None:
        self._is_gone = True
        for asked in self._waiting.values():
            if not asked.answer.done():
                asked.answer.set_exception(PeerGone())
                asked.answer.exception()  # nobody need have waited
        self._waiting.clear()
