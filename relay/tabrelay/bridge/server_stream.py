"""Server stream (SSE): one GET that stays open, for messages that belong to no request.

It is optional, so failures are only logged. It reconnects with growing pauses, and gives up when the server has no such
stream or after ten failures in a row. Each session has one stream. Responses to requests are in `response_stream`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from enum import Enum, auto

from tabrelay.bridge.backoff import LISTEN_FIRST_S, LISTEN_TRIES, listen_wait_s
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.errors import Failure
from tabrelay.bridge.http import HttpAnswer
from tabrelay.bridge.inbound import InboundMessages
from tabrelay.bridge.outbound import Outbound
from tabrelay.bridge.resumable_events import EventTooLarge, ResumableEvents
from tabrelay.bridge.session import SessionSnapshot

log = logging.getLogger("tabrelay.bridge")


class StreamEnd(Enum):
    """How one attempt ended."""

    CLEAN = auto()
    FAILED = auto()
    OFF = auto()
    GONE = auto()
    """The session is gone: the stream was open before, and now the server answers 404."""


class ServerStream:
    def __init__(
        self,
        outbound: Outbound,
        inbound: InboundMessages,
        clock: Clock,
        on_gone: Callable[[SessionSnapshot], Awaitable[None]],
    ):
        self._outbound = outbound
        self._inbound = inbound
        self._clock = clock
        self._on_gone = on_gone
        self._task: asyncio.Task[None] | None = None

    def start(self, snapshot: SessionSnapshot) -> None:
        """Replaces the previous stream, if there is one."""
        self.stop()
        self._task = asyncio.create_task(self.run(snapshot))

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def run(self, snapshot: SessionSnapshot) -> None:
        events = ResumableEvents(self._outbound.limits.max_event)
        failures = 0
        was_open = False
        while failures < LISTEN_TRIES:
            ended, is_open = await self._try(snapshot, events, was_open)
            was_open = was_open or is_open
            if ended is StreamEnd.OFF:
                log.info("The server has no server stream")
                return
            if ended is StreamEnd.GONE:
                # Cleared first: the new session starts another stream, which would cancel this task.
                self._task = None
                await self._on_gone(snapshot)
                return
            failures = 0 if is_open else failures
            if ended is StreamEnd.CLEAN:
                wait_s = LISTEN_FIRST_S if events.retry_ms is None else events.retry_ms / 1000
            else:
                failures += 1
                wait_s = listen_wait_s(failures, self._clock.chance())
            if failures < LISTEN_TRIES:
                await self._clock.sleep(wait_s)
        log.warning("The server stream failed %d times in a row: it is not opened again", failures)

    async def _try(self, snapshot: SessionSnapshot, events: ResumableEvents, was_open: bool) -> tuple[StreamEnd, bool]:
        """How the attempt ended, and whether the stream was open in between."""
        is_open = False
        try:
            async with self._outbound.stream(snapshot, events.last_id, is_patient=True) as sent:
                answer = sent.answer
                if answer.is_success and answer.content_type == "text/event-stream":
                    is_open = True
                    await self._read(answer, events, snapshot)
                    return StreamEnd.CLEAN, True
            if answer.status == 401:
                await self._outbound.refused(sent)
                return StreamEnd.FAILED, False
            return _end_of(answer, was_open and snapshot.id is not None), False
        except (Failure, CredentialsError) as problem:
            log.debug("The server stream: %s", problem)
            return StreamEnd.FAILED, is_open
        except EventTooLarge:
            log.warning("The server stream had an event that is too large (see --max-buffer)")
            return StreamEnd.FAILED, is_open

    async def _read(self, answer: HttpAnswer, events: ResumableEvents, snapshot: SessionSnapshot) -> None:
        events.restart()
        async with contextlib.aclosing(answer.chunks()) as chunks:
            async for chunk in chunks:
                for event in events.feed(chunk):
                    await self._inbound.event(event, None, snapshot)
            if (last := events.close()) is not None:
                await self._inbound.event(last, None, snapshot)


def _end_of(answer: HttpAnswer, had_session: bool) -> StreamEnd:
    if answer.status == 404 and had_session:
        return StreamEnd.GONE
    if answer.status == 429 or answer.status >= 500:
        return StreamEnd.FAILED
    return StreamEnd.OFF
