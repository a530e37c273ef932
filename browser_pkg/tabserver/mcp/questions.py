"""Questions of a running call to its client: sent as requests in a session, else as the response `input_required`.

For a modern client the handler is parked: the response is the question, and the client's next request continues the
same call. Questions that a handler asks close together are sent in one round. What a question contains is defined in
`handlers.questions`.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Mapping
from typing import Any, Final

from ..handlers.context import Result
from ..handlers.questions import Answer, InputRequired, MissingCapability, Question, new_key, wire_form
from ..rpc import Refusal
from ..wire import methods
from ..wire.eras import Era
from ..wire.jsonrpc import INTERNAL_ERROR, RequestId
from .call import RunningCall
from .parked_calls import BUSY, TTL_S, digest
from .sessions import CallerSession

# Questions that a handler asks within this time are sent in one round.
COALESCE_S: Final = 0.01
ASK_S: Final = 600.0
MOST_ROUNDS: Final = 8


class ClientQuestions:
    """The questions of one call, and the answers that it has not read yet."""

    def __init__(self, call: RunningCall) -> None:
        self._call, self._services = call, call.services
        # Questions without an answer, by key; and answers that arrived before their questions.
        self._open: dict[str, tuple[Question[Any], asyncio.Future[Answer]]] = {}
        self._early: dict[str, Answer] = {}
        self._keys = itertools.count(1)
        self._rounds = 0
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def receive_early(self, answers: Mapping[str, Answer]) -> None:
        """The request has answers to questions that the handler has yet to ask."""
        self._early = dict(answers)

    def receive(self, answers: Mapping[str, Answer]) -> None:
        for key, answer in answers.items():
            _, future = self._open.pop(key, (None, None))
            if future is not None and not future.done():
                future.set_result(answer)
        if self._open:
            self._park_soon()

    def stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self, reason: str) -> bool:
        """Stop to ask. False: no handler waits to be run again, so that its own code has to be stopped."""
        if self._task is None:
            return False
        self._task.cancel(reason)
        return True

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        call = self._call
        if call.is_over:
            raise RuntimeError("the request is over: the client can't be asked any more")
        if (needed := question.lacking(call.caller.capabilities)) is not None:
            raise MissingCapability(question.method, needed)
        if key is not None and key in self._early:
            return self._early.pop(key)
        if call.caller.era is Era.LEGACY:
            return await self._ask_session(question)
        key = key or new_key(question, self._open, self._keys)
        if key in self._open:
            raise ValueError(f"a question with the key {key!r} is already open")
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[key] = (question, answer)
        self._park_soon()
        try:
            return await answer
        finally:
            self._open.pop(key, None)

    async def _ask_session(self, question: Question[Any]) -> Answer:
        session, related, params = self._call.session, self._call.request_id, question.params()
        if params.get("mode") == "url":
            params["elicitationId"] = secrets.token_urlsafe(12)
        id, answer = self._services.outbox.ask(session, question.method, params, related)
        try:
            async with asyncio.timeout(ASK_S):
                return await answer
        except TimeoutError:
            self._withdraw(session, id, related, "timed out")
            raise TimeoutError("The client did not answer in time.") from None
        except asyncio.CancelledError:
            self._withdraw(session, id, related, "the call was cancelled")
            raise
        finally:
            session.asked.pop(id, None)

    def _withdraw(self, session: CallerSession, id: str, related: RequestId, reason: str) -> None:
        params = {"requestId": id, "reason": reason}
        self._services.outbox.notify(session, methods.CANCELLED, params, related)

    # -- waiting for the client's next request ------------------------------------------------------------------------

    def _park_soon(self) -> None:
        if self._timer is None and self._call.is_awaited:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_S, self._park)

    def _park(self) -> None:
        """Answer the waiting request with the open questions, and park the call until the client's next request."""
        self._timer = None
        call, parked = self._call, self._services.parked
        if not call.is_awaited or call.is_over or not self._open:
            return
        principal = call.caller.principal
        if not parked.has_room(principal):
            data = {"reason": "busy", "delivered": "unknown", "retryable": True}
            call.end(Refusal(BUSY, "Too many questions to this client are open already.", data))
            call.cancel("no room to wait")
            return
        call.detach()
        call.is_awaited = False
        handle = parked.park(call, principal)
        state = self._sealed({"h": handle, "p": parked.worker_id})
        self._timer = asyncio.get_running_loop().call_later(TTL_S, self._expire, handle)
        asked = {key: wire_form(question) for key, (question, _) in self._open.items()}
        result = {"resultType": "input_required", "inputRequests": asked, "requestState": state}
        self._services.outbox.answer(call.session, call.request_id, result)

    def _expire(self, handle: str) -> None:
        if self._services.parked.take(handle) is self._call:
            self._call.cancel("the client did not answer in time")

    def _sealed(self, held: dict[str, Any]) -> str:
        call = self._call
        mark = digest(call.kind.method, call.params)
        return self._services.seal.close(held, call.caller.principal, mark, self._services.clock() + TTL_S)

    # -- handlers that return their questions -------------------------------------------------------------------------

    def require(self, required: InputRequired) -> None:
        """The handler returned its questions and does not wait: it is run again with the answers."""
        call = self._call
        missing = required.lacking(call.caller.capabilities)
        if missing is not None:
            call.end(missing)
        elif call.session.era is Era.MODERN:
            result: Result = {"resultType": "input_required"}
            if required.requests or required.state is None:
                result["inputRequests"] = {key: wire_form(ask) for key, ask in required.requests.items()}
            if required.state is not None:
                result["requestState"] = self._sealed({"s": required.state, "p": self._services.parked.worker_id})
            call.end(result)
        elif self._rounds >= MOST_ROUNDS:
            call.end(Refusal(INTERNAL_ERROR, f"The handler still asks after {MOST_ROUNDS} rounds."))
        else:
            self._rounds += 1
            self._task = asyncio.get_running_loop().create_task(self._ask_session_and_rerun(required))

    async def _ask_session_and_rerun(self, required: InputRequired) -> None:
        """Ask a session at once, then run the handler again with the answers."""
        tasks = {key: asyncio.ensure_future(self.ask(ask, None)) for key, ask in required.requests.items()}
        try:
            await asyncio.gather(*tasks.values())
            answers = {key: task.result() for key, task in tasks.items()}
            self._task = None
            self._call.goes_on = True
            self._call.run_handler(answers, required.state)
        except Exception as error:
            self._task = None
            self._call.finish(self._call.kind.format_failure(error))
        finally:
            for task in tasks.values():
                task.cancel()
