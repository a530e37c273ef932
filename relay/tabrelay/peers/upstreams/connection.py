"""Connection to an upstream that many callers share: request ids, progress tokens and questions per call.

Over HTTP each call has a separate response stream, so a server message during a call belongs to that call. Over a pipe
a message that names no call is attributed only if exactly one call can have caused it, and never guessed. For that,
calls that may ask take turns (`QuestionQueue`), and a question waits a moment: the call that asked can't end before it
is answered, other calls can. No I/O: `DispatcherConnection` sends and receives.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from tabrelay.calls.calls import Notice, Pending
from tabrelay.config.specs import IdFormat
from tabrelay.peers.upstreams.dispatcher import DispatcherConnection, refusal
from tabrelay.peers.upstreams.handshake import ServerAbout
from tabrelay.peers.upstreams.question_order import QuestionQueue, target_of
from tabrelay.routing.question_limits import OpenQuestions, QuestionLimits
from tabrelay.translation import messages
from tabrelay.translation.shared_calls import SharedCalls, TrackedCall
from tabserver.wire import eras, jsonrpc, methods
from tabserver.wire.eras import Era

ATTRIBUTE_S: Final = 10.0
MAX_DIGITS: Final = 20  # of an id that the relay chose

# Set where a call is sent. HTTP transports read the response in the sender's context, and the SDK's streams keep it.
CALL: ContextVar[TrackedCall | None] = ContextVar("tabrelay_call", default=None)


class ConnectionOwner(Protocol):
    """What a connection reports to its owner."""

    def announced(self, connection: UpstreamConnection, message: dict[str, Any]) -> None:
        """A notification that belongs to no call."""

    def logged(self, connection: UpstreamConnection, params: dict[str, Any]) -> None:
        """A log message that belongs to no call."""

    def tools_changed(self) -> None:
        """Cached facts about the tools may be wrong now."""

    def wants_log(self, channel: str, params: object) -> bool:
        """Did this caller ask for log messages of that level?"""

    def roots(self) -> list[dict[str, Any]]:
        """The relay's own answer to `roots/list` outside of any call."""


@dataclass(slots=True, eq=False)
class ServerQuestion:
    """A request of the server that was forwarded to a caller."""

    running: TrackedCall
    answer: asyncio.Future[dict[str, Any]]


class UpstreamConnection:
    """One connection of an upstream. The next one is another object."""

    def __init__(
        self,
        owner: ConnectionOwner,
        ids: IdFormat,
        limits: QuestionLimits,
        question_queue: QuestionQueue | None = None,
    ) -> None:
        """`question_queue`: for a transport without call context. `limits`: of the server's questions."""
        self._owner = owner
        self._question_queue = question_queue
        self.dispatcher = DispatcherConnection(
            ids=ids, on_request=self._received_request, on_notification=self._received_notification
        )
        self.about: ServerAbout | None = None
        self._calls = SharedCalls()
        self._questions: dict[str, ServerQuestion] = {}
        self._open = OpenQuestions(limits)
        self._unattributed = 0  # questions whose call is not known yet
        self._max_unattributed = limits.per_connection
        self._question_ids = itertools.count(1)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def era(self) -> Era:
        assert self.about is not None
        return self.about.era

    # -- towards the server -------------------------------------------------------------------------------------------

    async def call(
        self, pending: Pending, params: dict[str, Any] | None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Make a call and return its result. Raises the server's MCPError, or ConnectionFault. If it is cancelled, it
        cancels the call at the server."""
        id = self.dispatcher.new_id()
        token = messages.progress_token(params) if params is not None else None
        if params is not None and token is not None:
            params = {**params, "_meta": {**params["_meta"], "progressToken": id}}
        running = TrackedCall(pending, token)
        if self._question_queue is None or not running.may_send:
            return await self._send(id, running, params, headers)
        is_answered = False
        try:
            await self._question_queue.acquire(running, target_of(pending.call.method, params))
            result = await self._send(id, running, params, headers)
            is_answered = True
            return result
        finally:
            self._question_queue.release(running, is_answered=is_answered)

    async def _send(
        self, id: jsonrpc.RequestId, running: TrackedCall, params: dict[str, Any] | None, headers: dict[str, str] | None
    ) -> dict[str, Any]:
        self._calls.put(id, running)
        CALL.set(running)
        is_cancelled = False
        try:
            return await self.dispatcher.request(running.pending.call.method, params, id=id, headers=headers)
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            if is_cancelled:
                self._calls.drop(id, self._loop.time())
            else:
                self._calls.take(id)
            CALL.set(None)
            self._fail_questions(running)
            self._changed.set()

    def answer(self, channel: str, message: dict[str, Any]) -> bool:
        """Take a caller's answer to a question. False if it was not asked here, or not of this caller."""
        question = self._questions.get(message["id"])
        if question is None or question.running.channel != channel or question.answer.done():
            return False
        error = message.get("error")
        if isinstance(error, dict):
            code = error.get("code")
            text = str(error.get("message", ""))
            question.answer.set_exception(refusal(code if isinstance(code, int) else jsonrpc.INTERNAL_ERROR, text))
        else:
            result = message.get("result")
            question.answer.set_result(result if isinstance(result, dict) else {})
        return True

    def _fail_questions(self, running: TrackedCall) -> None:
        """The call is over: its questions get an error, since no caller will answer them."""
        for question in self._questions.values():
            if question.running is running and not question.answer.done():
                question.answer.set_exception(refusal(jsonrpc.INVALID_REQUEST, "The caller of this call has left."))

    # -- from the server ----------------------------------------------------------------------------------------------

    def _received_notification(
        self, method: str, params: dict[str, Any] | None, context: contextvars.Context | None
    ) -> None:
        content = params or {}
        if method == methods.TOOLS_LIST_CHANGED:
            self._owner.tools_changed()
        running = context.get(CALL) if context is not None else None
        meta = content.get("_meta")
        if method == methods.PROGRESS:
            owner = self._calls.get(_as_id(content.get("progressToken")))
            if owner is not None and owner.token is not None:
                owner.notify(method, {**content, "progressToken": owner.token})
        elif method == methods.CANCELLED:
            return  # the dispatcher has cancelled the question
        elif method == methods.LOG_MESSAGE:
            self._received_log(running, content)
        elif isinstance(meta, dict) and eras.META_SUBSCRIPTION in meta:
            owner = self._calls.get(_as_id(meta[eras.META_SUBSCRIPTION]))
            if owner is not None:
                owner.notify(method, {**content, "_meta": {**meta, eras.META_SUBSCRIPTION: owner.pending.call.id}})
        elif running is not None and not method.endswith("/list_changed") and method != methods.RESOURCES_UPDATED:
            running.notify(method, content)
        else:
            self._owner.announced(self, jsonrpc.notification(method, params))

    def _received_log(self, running: TrackedCall | None, params: dict[str, Any]) -> None:
        now = self._loop.time()
        owner = running or self._calls.only_sender(now)
        if owner is not None:
            if self._owner.wants_log(owner.channel, params):
                owner.notify(methods.LOG_MESSAGE, params)
        elif self._calls.is_quiet(now):
            self._owner.logged(self, params)

    async def _received_request(self, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        if method == methods.PING:
            return {}
        if method not in messages.MAY_BE_ASKED or (self.about is not None and self.about.era is Era.MODERN):
            raise refusal(jsonrpc.METHOD_NOT_FOUND, f'The client has no method "{method}".')
        running = CALL.get() or await self._find_call()
        if running is None and method == methods.ROOTS_LIST and not self._calls.senders():
            return {"roots": self._owner.roots()}
        if running is None or running.pending.is_done:
            text = "No client can be asked: it is not clear which call this belongs to, or its caller has left."
            raise refusal(jsonrpc.INVALID_REQUEST, text)
        if messages.missing_capability(running.pending.call.caller.capabilities, method, params) is not None:
            raise refusal(jsonrpc.METHOD_NOT_FOUND, f"The client of this call can't do {method}.")
        return await self._forward_question(running, method, params)

    async def _find_call(self) -> TrackedCall | None:
        """Find the call of a question. It may take a moment, so the number of questions that wait is limited."""
        # defence: questions whose call is not known yet
        if self._unattributed >= self._max_unattributed:
            text = f"{self._max_unattributed} questions wait already until it is clear which call they belong to."
            raise refusal(jsonrpc.INVALID_REQUEST, text)
        self._unattributed += 1
        try:
            return await self._attribute()
        finally:
            self._unattributed -= 1

    async def _attribute(self) -> TrackedCall | None:
        """The only call that can have caused it. Calls that begin later can't, so the candidates only get fewer."""
        candidates = self._calls.senders()
        if self._question_queue is not None:
            candidates = self._question_queue.candidates(candidates)
        try:
            async with asyncio.timeout(ATTRIBUTE_S):
                while candidates:
                    found = self._calls.only_sender(self._loop.time(), candidates)
                    if found is not None:
                        return found
                    self._changed.clear()
                    await self._changed.wait()
                    still = self._calls.senders()
                    candidates = [running for running in candidates if running in still]
        except TimeoutError:
            pass
        return None

    async def _forward_question(
        self, running: TrackedCall, method: str, params: dict[str, Any] | None
    ) -> dict[str, Any]:
        id = f"ask-{next(self._question_ids)}"
        text = messages.text(jsonrpc.request(id, method, params))
        if text is None:
            raise refusal(jsonrpc.INVALID_PARAMS, "The question nests too deeply.")
        # defence: questions of an upstream server
        if (why := self._open.refusal(running, len(text))) is not None:
            raise refusal(jsonrpc.INVALID_REQUEST, why)
        self._open.add(running, len(text))
        question = self._questions[id] = ServerQuestion(running, self._loop.create_future())
        # The server may disconnect before the caller answers: then the exception is read here.
        question.answer.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
        running.pending.notify(Notice(text))
        if self._question_queue is not None:
            self._question_queue.asked(running)
        try:
            await asyncio.wait({question.answer})
        except asyncio.CancelledError:
            # The server withdrew the question; its caller has it under our id.
            running.notify(methods.CANCELLED, {"requestId": id})
            if self._question_queue is not None:
                self._question_queue.withdrawn(running)
            raise
        finally:
            del self._questions[id]
            self._open.remove(running, len(text))
        if self._question_queue is not None:
            await self._question_queue.answered(running)
        return question.answer.result()


def _as_id(value: object) -> object:
    """Some servers return a number as text. Python converts at most 4,300 digits."""
    # defence: upstreams: a progress token of many digits
    is_number = isinstance(value, str) and len(value) <= MAX_DIGITS and value.isascii() and value.isdecimal()
    return int(str(value)) if is_number else value
