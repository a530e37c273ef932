"""Forwarder: delivers one message to the server, with retries, and answers every request in it.

It decides which failures are retried, when a new session is opened and when the token is renewed. Each recovery happens
a bounded number of times per message; then the client gets an error. The bridge's own messages take the same path.
HTTP is in `http`, streams of events in `response_stream`.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
from collections.abc import Callable
from typing import Any, Final

from tabrelay import mcp_headers
from tabrelay.bridge import errors
from tabrelay.bridge.backoff import RetryAfter, read_retry_after
from tabrelay.bridge.clock import Clock
from tabrelay.bridge.credentials import CredentialsError
from tabrelay.bridge.delivery import Delivery, is_session_gone, may_repeat_in_new_session
from tabrelay.bridge.errors import BridgeFault, Failure
from tabrelay.bridge.http import HttpAnswer
from tabrelay.bridge.inbound import InboundMessages
from tabrelay.bridge.messages import BridgeMessage, load, make
from tabrelay.bridge.outbound import Outbound, Sent
from tabrelay.bridge.response_stream import ResponseStreams
from tabrelay.bridge.session import ClientSession, SessionSnapshot
from tabrelay.system.program import command
from tabserver.wire import jsonrpc, methods
from tabserver.wire.eras import META_PREFIX

log = logging.getLogger("tabrelay.bridge")

JSON_LIMIT: Final = 64 << 20
MAX_PAGES: Final = 50


# The answers of servers that support only HTTP+SSE of 2024-11-05. The relay supports that transport, the bridge does
# not.
NO_STREAMABLE: Final = frozenset({404, 405})
OLD_TRANSPORT: Final = (
    "Is that the address of an MCP server? If it only speaks HTTP+SSE (2024-11-05), name it in a configuration "
    "({command} serve -c FILE), and use it by that name."
)


class _TryAgain(Exception):
    """The cause of the failure was removed: send the message again."""


class Forwarder:
    def __init__(
        self,
        outbound: Outbound,
        session: ClientSession,
        inbound: InboundMessages,
        clock: Clock,
        on_renewed: Callable[[], None],
    ) -> None:
        """`on_renewed` is called when a lost session was replaced."""
        self._outbound = outbound
        self._session = session
        self._inbound = inbound
        self._clock = clock
        self._streams = ResponseStreams(outbound, session, inbound, clock)
        self._numbers = itertools.count(1)
        self._renewing = asyncio.Lock()
        self._on_renewed = on_renewed

    async def forward(self, message: BridgeMessage, on_written: Callable[[], None] | None = None) -> BridgeFault | None:
        """Delivers the message. Returns the fault, after its requests were answered with it."""
        delivery = Delivery(message)
        fault = await self._deliver(delivery, on_written)
        if fault is None:
            return None
        if message.method == methods.INITIALIZE:
            self._session.is_lost = True
        if not delivery.needs_answer:
            log.warning("%s was refused: %s", message.method or "An answer", fault.text)
        for id in delivery.unanswered:
            await self._inbound.fault(id, fault.error)
        return fault

    async def request(self, value: dict[str, Any]) -> Any:
        """Sends a request of the bridge itself; returns the response, or None."""
        delivery = Delivery(make({**value, "id": f"tabrelay-bridge-{next(self._numbers)}"}), is_own=True)
        fault = await self._deliver(delivery)
        if fault is not None:
            log.info("%s: %s", value.get("method"), fault.text)
            return {"error": fault.error}
        return delivery.answer

    async def renew(self, snapshot: SessionSnapshot) -> None:
        """The session of the snapshot is gone, as the server's stream found."""
        await self._renew(snapshot)

    async def end_session(self) -> None:
        """Ends the session at the server, if there is one."""
        snapshot = self._session.snapshot()
        if snapshot.id is None:
            return
        try:
            await self._outbound.end_session(snapshot)
        except (Failure, CredentialsError) as problem:
            log.debug("The session could not be ended: %s", problem)

    # -- one message, until it is delivered or failed ------------------------------------------------------------------

    async def _deliver(self, delivery: Delivery, on_written: Callable[[], None] | None = None) -> BridgeFault | None:
        while True:
            try:
                needs_session = self._session.is_lost and not self._needs_no_session(delivery)
                if needs_session and (fault := await self._renew()) is not None:
                    return fault
                return await self._attempt(delivery, on_written)
            except _TryAgain:
                continue
            except CredentialsError as problem:
                return BridgeFault(
                    errors.REFUSED, f"{self._outbound.where}: {problem}", {"status": 401, "help": errors.TOKEN}
                )
            except Failure as failure:
                if delivery.is_answered:
                    return None
                again = RetryAfter(delivery.attempt, delivery.message.is_repeatable or not failure.is_delivered)
                # The deadline covers all attempts: after a timeout there is no other.
                wait_s = again.after_failure() if failure.timeout_ms is None else None
                if wait_s is None:
                    return errors.of_failure(failure, self._outbound.where, self._outbound.advice)
                await self._pause(delivery, wait_s, failure.reason)

    async def _pause(self, delivery: Delivery, wait_s: float, why: str) -> None:
        log.info("%s: %s; trying again in %.1f s", delivery.message.method, why, wait_s)
        delivery.attempt += 1
        await self._clock.sleep(wait_s)

    async def _attempt(self, delivery: Delivery, on_written: Callable[[], None] | None) -> BridgeFault | None:
        snapshot = self._session.snapshot()
        async with self._outbound.post(delivery.message, snapshot, on_written) as sent:
            answer = sent.answer
            if answer.is_success:
                self._session.received_id(snapshot, answer.header(mcp_headers.SESSION_ID))
                return await self._success(delivery, answer, snapshot)
            body, _ = await answer.read(errors.ERROR_BODY)
        await self._refused(delivery, sent)
        return await self._recover(delivery, answer, body, snapshot) or self._refusal(delivery, answer, body)

    async def _success(self, delivery: Delivery, answer: HttpAnswer, snapshot: SessionSnapshot) -> BridgeFault | None:
        if not delivery.needs_answer:
            await answer.read(errors.ERROR_BODY)
            return None
        where = self._outbound.where
        if answer.content_type == "text/event-stream":
            return await self._streams.read(delivery, answer, snapshot)
        if answer.status in (202, 204):
            return errors.of_answer(f"upstream answered a request with {answer.status}", where, "NO_ANSWER")
        body, is_whole = await answer.read(JSON_LIMIT)
        if not is_whole:
            return errors.of_answer(f"upstream answered with more than {JSON_LIMIT >> 20} MiB", where, "TOO_LARGE")
        if not body.strip():
            return errors.of_answer("upstream answered a request with nothing", where, "NO_ANSWER")
        if not await self._inbound.body(body, delivery, snapshot):
            kind = answer.content_type or "no content type"
            return errors.of_answer(f"upstream answered with {kind}, and no JSON-RPC message", where, "NOT_JSON")
        if delivery.waiting:
            return errors.of_answer("upstream answered another request than it was asked", where, "NO_ANSWER")
        return None

    async def _refused(self, delivery: Delivery, sent: Sent) -> None:
        """Gets another token or proof, if the refusal calls for one."""
        may = delivery.may_sign_in(sent.answer.status, sent.answer.header("www-authenticate"))
        if may and await self._outbound.refused(sent):
            raise _TryAgain

    async def _recover(
        self, delivery: Delivery, answer: HttpAnswer, body: bytes, snapshot: SessionSnapshot
    ) -> BridgeFault | None:
        """Removes the cause of a refusal if possible, and raises _TryAgain. Returns the fault that prevented it."""
        message = delivery.message
        if is_session_gone(message, snapshot, answer.status, body) and not delivery.is_own and not delivery.was_renewed:
            delivery.was_renewed = True
            if (fault := await self._renew(snapshot)) is not None:
                return fault
            if self._session.opening is not None and may_repeat_in_new_session(message):
                raise _TryAgain
        if (
            message.method == methods.TOOLS_CALL
            and message.is_modern
            and not delivery.has_read_tools
            and _is_mismatch(body)
        ):
            delivery.has_read_tools = True
            await self._read_tools(message)
            raise _TryAgain
        retry_after_s = read_retry_after(answer.header("retry-after"), self._clock.now())
        wait_s = RetryAfter(delivery.attempt, message.is_repeatable).after_status(answer.status, retry_after_s)
        if wait_s is not None:
            await self._pause(delivery, wait_s, f"HTTP {answer.status}")
            raise _TryAgain
        return None

    def _refusal(self, delivery: Delivery, answer: HttpAnswer, body: bytes) -> BridgeFault:
        where = self._outbound.where
        if answer.status == 401:
            return errors.of_token(body, where, self._outbound.hint)
        hint = f"The server redirects to {answer.location}: use that URL if you trust it." if answer.location else ""
        if delivery.message.method == methods.INITIALIZE and answer.status in NO_STREAMABLE:
            hint = OLD_TRANSPORT.format(command=command())
        retry_after_s = read_retry_after(answer.header("retry-after"), self._clock.now())
        return errors.of_status(answer.status, body, where, hint, retry_after_s)

    # -- requests of the bridge itself ---------------------------------------------------------------------------------

    @staticmethod
    def _needs_no_session(delivery: Delivery) -> bool:
        """The message needs no session, or opens one."""
        return delivery.is_own or delivery.message.is_modern or delivery.message.method == methods.INITIALIZE

    async def _renew(self, snapshot: SessionSnapshot | None = None) -> BridgeFault | None:
        """Opens a new session in place of the snapshot's, or of one that is already lost. Concurrent messages share
        it."""
        async with self._renewing:
            if snapshot is not None:
                self._session.lose(snapshot)
            opening = self._session.opening
            if opening is None or not self._session.is_lost:
                return None
            log.info("The server does not know the session: opening another")
            answer = await self.request(json.loads(opening.raw))
            if "error" in answer:
                self._session.is_lost = True
                error = answer["error"]
                return BridgeFault(
                    error["code"], f"No new session could be opened: {error['message']}", error.get("data")
                )
            await self._deliver(Delivery(make(jsonrpc.notification(methods.INITIALIZED)), is_own=True))
            for message in self._session.kept():
                await self.request(json.loads(message.raw))
        self._on_renewed()
        return None

    async def _read_tools(self, call: BridgeMessage) -> None:
        """Reads the list of tools: a tool requires headers that were not known."""
        meta = {name: value for name, value in call.params["_meta"].items() if name.startswith(META_PREFIX)}
        cursor: dict[str, Any] = {}
        for _ in range(MAX_PAGES):
            answer = await self.request(jsonrpc.request(0, methods.TOOLS_LIST, {"_meta": meta, **cursor}))
            result = answer.get("result")
            if not isinstance(result, dict) or result.get("nextCursor") is None:
                return
            cursor = {"cursor": result["nextCursor"]}


def _is_mismatch(body: bytes) -> bool:
    try:
        return bool(load(body)["error"]["code"] == jsonrpc.HEADER_MISMATCH)
    except (ValueError, KeyError, TypeError):
        return False
