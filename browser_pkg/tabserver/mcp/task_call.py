"""Tool call that may become a task: the request is answered with a task, and the handler continues.

It becomes one when the client asks for it (2025-11-25), when the handler asks the client something or saves its state,
or when it has run for TASK_AFTER_S: what ends earlier costs the client no second request. If the task table has no
room, it stays an ordinary call. Its outcome then belongs to the task, whatever happens to the request and its session.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Final

from ..handlers.context import Outcome
from ..handlers.questions import Answer, InputRequired, MissingCapability, Question
from ..rpc import Refusal, dump, is_finite
from ..wire.eras import META_RELATED_TASK, Era
from ..wire.jsonrpc import RequestId
from .call import CallServices, MethodKind, Params, RequestMeta, RunningCall
from .sessions import CallerSession
from .task_forms import created
from .tasks import Task, TaskTable

TASK_AFTER_S: Final = 0.25
MAX_STATE: Final = 64 * 1024  # characters of JSON


class TaskCall(RunningCall):
    """`task`: None as long as it is an ordinary call."""

    task: Task | None = None
    _timer: asyncio.TimerHandle | None = None
    _rerun: asyncio.Task[None] | None = None
    state_to_run_again: Any = None

    def __init__(
        self,
        services: CallServices,
        kind: MethodKind,
        session: CallerSession,
        id: RequestId,
        meta: RequestMeta,
        payload: str,
        params: Params,
        tasks: TaskTable,
    ) -> None:
        super().__init__(services, kind, session, id, meta, payload, params)
        self._tasks = tasks
        self.task_id: str = tasks.new_id()

    def begin(self, answers: Mapping[str, Answer] | None = None, state: Any = None, *, goes_on: bool = False) -> None:
        super().begin(answers, state, goes_on=goes_on)
        if self.task is None and not self.is_over:
            self._timer = asyncio.get_running_loop().call_later(TASK_AFTER_S, self._try_to_become_task)

    def become_task(self, ttl_ms: int | None = None) -> Task:
        """Answer the request with a task. Raises Refusal if there is no room for one."""
        task = self.task = self._tasks.add(self, ttl_ms)
        self.detach()
        self.is_awaited, self.is_task = False, True
        self.services.outbox.answer(self.session, self.request_id, created(task, self.session.era, self._tasks.now_ms))
        return task

    def _try_to_become_task(self) -> Task | None:
        if self.task is None and not self.is_over and self.is_awaited:
            try:
                self.become_task()
            except Refusal:
                return None
        return self.task

    def detach(self) -> None:
        super().detach()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- the task -----------------------------------------------------------------------------------------------------

    def hold_outcome(self, outcome: Outcome) -> None:
        task = self.task
        if task is None:
            super().hold_outcome(outcome)
        elif isinstance(outcome, InputRequired):
            self._rerun = asyncio.get_running_loop().create_task(self._ask_and_rerun(task, outcome))
        else:
            self.is_over = True
            self._tasks.finish(task, outcome)

    async def _ask_and_rerun(self, task: Task, required: InputRequired) -> None:
        """The handler returned its questions: ask them, then run it again with the answers."""
        try:
            if (missing := required.lacking(self.caller.capabilities)) is not None:
                raise missing
            keys = list(required.requests)
            answers = await asyncio.gather(*(task.questions.ask(required.requests[key], key) for key in keys))
            self._rerun, self.goes_on = None, True
            self.run_handler(dict(zip(keys, answers, strict=True)), required.state)
        except Exception as error:
            self._rerun = None
            self.finish(self.kind.format_failure(error))

    def cancel(self, reason: str) -> None:
        super().cancel(reason)
        if self._rerun is not None:
            self._rerun.cancel(reason)

    async def ask(self, question: Question[Any], key: str | None) -> Answer:
        if self.is_over or (key is not None and key in self.input_responses):
            return await super().ask(question, key)
        if (needed := question.lacking(self.caller.capabilities)) is not None:
            raise MissingCapability(question.method, needed)
        task = self._try_to_become_task()
        return await (super().ask(question, key) if task is None else task.questions.ask(question, key))

    def save(self, state: Any) -> None:
        """Raises ValueError for a state that can't be kept."""
        text = dump(state)
        if len(text) > MAX_STATE:
            raise ValueError(f"the state of a task has at most {MAX_STATE:,} characters of JSON, not {len(text):,}")
        if (task := self._try_to_become_task()) is not None:
            self.state_to_run_again = json.loads(text)
            self._tasks.keep(task)

    def run_again(self) -> bool:
        if self.task is None or self.task.is_over or self.state_to_run_again is None or not self.is_sent:
            return False
        self.saved, self.goes_on = self.state_to_run_again, False
        self.stop_running("failed", "its page went away; it is run again")
        # After what goes on in the tabs: the page may be loading again, or another tab may have the tool.
        asyncio.get_running_loop().call_soon(self._begin_again)
        return True

    def continue_task(self, task: Task, saved: Any) -> None:
        """Run the handler of a task whose worker has ended. No request waits for it."""
        self.detach()
        self.task, self.task_id = task, task.id
        self.is_awaited, self.is_task = False, True
        self.saved = self.state_to_run_again = saved
        asyncio.get_running_loop().call_soon(self._begin_again)

    def _begin_again(self) -> None:
        if self.is_over:
            return
        try:
            self.run_handler(None, None)
        except Exception as error:
            self.finish(self.kind.format_failure(error))

    # -- reports to the client ----------------------------------------------------------------------------------------

    def notify_progress(self, progress: float, total: float | None, message: str | None) -> None:
        if self.task is not None:
            self._tasks.describe(self.task, _spell(progress, total, message))
        super().notify_progress(progress, total, message)

    def may_notify(self) -> bool:
        # 2025-11-25: the progress token stays valid as long as the task runs. 2026-07-28: a task has a status instead.
        return self.is_awaited or (self.task is not None and self.session.era is Era.LEGACY)

    def send_note(self, method: str, params: Params) -> None:
        if self.task is None:
            super().send_note(method, params)
        else:
            about = {"_meta": {META_RELATED_TASK: {"taskId": self.task.id}}}
            self.services.outbox.notify(self.session, method, params | about)


def _spell(progress: float, total: float | None, message: str | None) -> str:
    """Progress as a status message."""
    if not is_finite(progress):
        return message or ""
    reached = f"{progress:g} of {total:g}" if is_finite(total) and total else f"{progress:g}"
    return f"{message} ({reached})" if message else reached
