"""Response stream of a request (SSE): read to its end, and resumed with Last-Event-ID where it broke.

A stream is resumed only in the handshake era, only while the session lasts, and at most ten times without progress. The
server's own stream is in `server_stream`.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from tabrelay.bridge import errors
from tabrelay.bridge.backoff import listen_wait_s
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.delivery import Delivery
from tabrelay.bridge.errors import BridgeFault, Failure
from tabrelay.bridge.http import HttpAnswer
from tabrelay.bridge.inbound import InboundMessages
from tabrelay.bridge.outbound import Outbound
from tabrelay.bridge.resumable_events import EventTooLarge, ResumableEvents
from tabrelay.bridge.session import ClientSession, SessionSnapshot

RESUME_TRIES: Final = 10
RESUME_S: Final = 1.0
LINGER_S: Final = 0.5


class ResponseStreams:
    def __init__(self, outbound: Outbound, session: ClientSession, inbound: InboundMessages, clock: Clock) -> None:
        self._outbound = outbound
        self._session = session
        self._inbound = inbound
        self._clock = clock

    async def read(self, delivery: Delivery, answer: HttpAnswer, snapshot: SessionSnapshot) -> BridgeFault | None:
        """Reads until the request is answered, or returns the fault."""
        events = ResumableEvents(self._outbound.limits.max_event)
        fault = await self._to_end(delivery, answer, events, snapshot)
        failures = 0
        # 2025-11-25: the server MAY close the connection after it sent an event id, and the client reconnects for the
        # rest. 2026-07-28 has no resumption.
        while fault is not None and events.last_id is not None and not delivery.message.is_modern:
            if failures >= RESUME_TRIES or not self._session.is_current(snapshot):
                break
            await self._clock.sleep(self._wait_s(failures, events))
            before = events.last_id
            fault, may_go_on = await self._resume(delivery, events, snapshot)
            if not may_go_on:
                break
            failures = 0 if events.last_id != before else failures + 1
        return fault

    def _wait_s(self, failures: int, events: ResumableEvents) -> float:
        if failures:
            return listen_wait_s(failures, self._clock.chance())
        return RESUME_S if events.retry_ms is None else events.retry_ms / 1000

    async def _resume(
        self, delivery: Delivery, events: ResumableEvents, snapshot: SessionSnapshot
    ) -> tuple[BridgeFault | None, bool]:
        """The current fault, and whether another attempt could help."""
        where = self._outbound.where
        try:
            async with self._outbound.stream(snapshot, events.last_id, is_patient=False) as sent:
                answer = sent.answer
                if answer.is_success and answer.content_type == "text/event-stream":
                    events.restart()
                    return await self._to_end(delivery, answer, events, snapshot), True
                body, _ = await answer.read(errors.ERROR_BODY)
            challenge = answer.header("www-authenticate")
            if answer.status == 401 and delivery.may_sign_in(401, challenge):
                return errors.of_status(401, body, where), await self._outbound.refused(sent)
            return errors.of_status(answer.status, body, where), answer.status == 429 or answer.status >= 500
        except Failure as failure:
            return errors.of_failure(failure, where), True

    async def _to_end(
        self, delivery: Delivery, answer: HttpAnswer, events: ResumableEvents, snapshot: SessionSnapshot
    ) -> BridgeFault | None:
        """Reads until the stream ends, or for LINGER_S after everything was answered."""
        where = self._outbound.where
        fault: BridgeFault | None = errors.of_answer("No valid JSON-RPC response in SSE stream", where, "NO_ANSWER")
        try:
            async with asyncio.timeout(None) as patience, contextlib.aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    for event in events.feed(chunk):
                        await self._inbound.event(event, delivery, snapshot)
                    if delivery.is_answered and patience.when() is None:
                        # The end mostly comes with the answer, and then the connection can be reused.
                        patience.reschedule(asyncio.get_running_loop().time() + LINGER_S)
                if (last := events.close()) is not None:
                    await self._inbound.event(last, delivery, snapshot)
        except TimeoutError:
            return None
        except Failure as failure:
            fault = errors.of_failure(failure, where)
        except EventTooLarge:
            # Not resumed: the server would send the same event again.
            size = f"{self._outbound.limits.max_event / (1 << 20):g} MiB"
            text = f"upstream sent an event of more than {size} (--max-buffer raises the limit)"
            fault = errors.of_answer(text, where, "TOO_LARGE")
            events.last_id = None
        return None if delivery.is_answered else fault
