"""Requests about tasks: `tasks/get`, `tasks/update` and `tasks/cancel` of 2026-07-28; `tasks/get`, `tasks/list`,
`tasks/result` and `tasks/cancel` of 2025-11-25; and the notifications about tasks.

A modern client answers a task's questions with `tasks/update`; a session gets them as requests while it waits for
`tasks/result`. Both eras see the same tasks of their principal. How a call becomes a task is in `task_call`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ..handlers.context import Result
from ..handlers.questions import Answer, ClientError, MissingCapability
from ..rpc import Refusal
from ..wire import methods
from ..wire.eras import META_SUBSCRIPTION, Era
from ..wire.jsonrpc import INVALID_PARAMS, INVALID_REQUEST, MISSING_CAPABILITY, RequestId, show
from . import task_forms
from .caller_state import caller_key
from .invocations import MAX_RUNNING
from .paging import page
from .parked_calls import BUSY
from .sessions import CallerSession, Outbox
from .subscriptions import SubscribedTo
from .task_questions import OpenQuestion
from .tasks import Task, TaskStatus, TaskTable

Params = dict[str, Any]
FormatResult = Callable[[CallerSession, Result, Params], Result]


class ResultWait:
    """A session's `tasks/result` that waits for the end of its task. One of the running requests of its session."""

    runner = None

    def __init__(self, task: Task, session: CallerSession, id: RequestId, left: Callable[[ResultWait], None]) -> None:
        self.task, self.session, self.id = task, session, id
        self._left = left
        # The questions that this session has, by key.
        self.asked: dict[str, asyncio.Task[None]] = {}

    def cancel(self, reason: str) -> None:
        """The client does not wait any more. The task goes on."""
        self.session.running.pop(self.id, None)
        self._left(self)


class TaskMethods:
    """`format_result` makes a tool's result of what the handler returned, in the form of a session's version."""

    def __init__(self, tasks: TaskTable, outbox: Outbox, format_result: FormatResult) -> None:
        self._tasks, self._outbox, self._format = tasks, outbox, format_result
        self._waiting: dict[Task, list[ResultWait]] = {}

    # -- 2026-07-28 ---------------------------------------------------------------------------------------------------

    def get(self, session: CallerSession, id: RequestId, params: Params) -> None:
        task = self._find(session, params, methods.TASKS_GET)
        task.was_read = task.was_read or task.is_over
        self._outbox.answer_text(session, id, task_forms.detailed_text(task, self._tasks.now_ms))

    def update(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        task = self._find(session, params, methods.TASKS_UPDATE)
        answers = params.get("inputResponses")
        if not isinstance(answers, dict) or not all(isinstance(answer, dict) for answer in answers.values()):
            raise Refusal(INVALID_PARAMS, "params.inputResponses: expected an object of objects")
        task.questions.receive(answers)
        return {}

    def cancel(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        self._tasks.cancel(self._find(session, params, methods.TASKS_CANCEL))
        return {}

    def _find(self, session: CallerSession, params: Params, method: str) -> Task:
        if session.era is Era.MODERN and not task_forms.declares(session.caller):
            raise MissingCapability(method, task_forms.NEEDED)
        given = params.get("taskId")
        if not isinstance(given, str):
            raise Refusal(INVALID_PARAMS, f"params.taskId: expected string, got {show(given)}")
        return self._tasks.find(given, session.caller.principal)

    # -- 2025-11-25 ---------------------------------------------------------------------------------------------------

    def get_legacy(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        return task_forms.legacy(self._find(session, params, methods.TASKS_GET), self._tasks.now_ms)

    def list_all(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        now = self._tasks.now_ms
        own = [task_forms.legacy(task, now) for task in self._tasks.of(session.caller.principal)]
        return page("tasks", own, params.get("cursor"))

    def cancel_legacy(self, session: CallerSession, id: RequestId, params: Params) -> Result:
        task = self._find(session, params, methods.TASKS_CANCEL)
        if task.is_over:
            raise Refusal(INVALID_PARAMS, f"Cannot cancel task: it has ended already, as '{task.status.value}'.")
        self._tasks.cancel(task)
        return task_forms.legacy(task, self._tasks.now_ms)

    def result(self, session: CallerSession, id: RequestId, params: Params) -> None:
        """Answer with the result of the tool, as soon as there is one. Until then the session gets the questions."""
        task = self._find(session, params, methods.TASKS_RESULT)
        if task.is_over:
            self._send_result(session, id, task)
            return
        if len(session.running) >= MAX_RUNNING:
            data = {"reason": "busy", "delivered": "no", "retryable": True}
            raise Refusal(BUSY, f"{MAX_RUNNING} requests of this session wait already; wait for one to end", data)
        wait = ResultWait(task, session, id, self._left)
        session.running[id] = wait
        self._waiting.setdefault(task, []).append(wait)
        self._send_questions(task)

    def _left(self, wait: ResultWait) -> None:
        """Its questions go to the next session that waits."""
        waiting = self._waiting.get(wait.task, [])
        if wait in waiting:
            waiting.remove(wait)
        if not waiting:
            self._waiting.pop(wait.task, None)
        for key, asking in list(wait.asked.items()):
            asking.cancel()
            if (asked := wait.task.questions.open.get(key)) is not None:
                asked.is_sent = False
        wait.asked.clear()
        if not wait.task.is_over:
            self._send_questions(wait.task)

    def _send_result(self, session: CallerSession, id: RequestId, task: Task) -> None:
        task.was_read = True
        if task.status is TaskStatus.COMPLETED:
            result = self._format(session, task_forms.result_of(task), {})
            self._outbox.answer(session, id, task_forms.related(result, task))
        elif task.error is not None:
            code = INVALID_REQUEST if task.error.code == MISSING_CAPABILITY else task.error.code
            self._outbox.refuse(session, id, Refusal(code, task.error.message, task.error.data))
        else:
            self._outbox.refuse(session, id, Refusal(INVALID_REQUEST, task.message or "The task was cancelled."))

    def _send_questions(self, task: Task) -> None:
        """Send the questions that no session has to the one that has waited longest."""
        waiting = self._waiting.get(task)
        for key, asked in list(task.questions.open.items()) if waiting else ():
            if not asked.is_sent:
                assert waiting
                asked.is_sent = True
                waiting[0].asked[key] = asyncio.get_running_loop().create_task(self._ask(waiting[0], key, asked))

    async def _ask(self, wait: ResultWait, key: str, asked: OpenQuestion) -> None:
        question, session = asked.question, wait.session
        params = task_forms.related(question.params(), wait.task)
        id, answer = self._outbox.ask(session, question.method, params, wait.id)
        try:
            given: Answer = await answer
            wait.asked.pop(key, None)
            wait.task.questions.receive({key: given})
        except ClientError as error:
            wait.asked.pop(key, None)
            wait.task.questions.refuse(key, error)
        except asyncio.CancelledError:
            reason = {"requestId": id, "reason": "no longer needed"}
            self._outbox.notify(session, methods.CANCELLED, reason, wait.id)
            raise
        finally:
            session.asked.pop(id, None)

    # -- changes of tasks ---------------------------------------------------------------------------------------------

    def changed(self, task: Task, sessions: list[CallerSession]) -> None:
        """Notify those that listen, and end what waits for the task."""
        for session in sessions:
            self._notify(task, session)
        if task.is_over:
            for wait in self._waiting.pop(task, []):
                wait.session.running.pop(wait.id, None)
                for asking in wait.asked.values():
                    asking.cancel()
                self._send_result(wait.session, wait.id, task)
        else:
            self._send_questions(task)

    def _notify(self, task: Task, session: CallerSession) -> None:
        if not self._tasks.has(task):
            return
        now = self._tasks.now_ms
        for id, wanted in session.listening.items():
            if task.id in wanted.tasks:
                self.send_state(session, id, task)
        is_its_caller = task_forms.has_tasks(session.caller) and session.is_ready
        if is_its_caller and caller_key(session.caller, session.id) == task.caller_key:
            self._outbox.notify(session, methods.TASKS_STATUS, task_forms.legacy(task, now))

    def send_state(self, session: CallerSession, id: RequestId, task: Task) -> None:
        """`id`: of the request that listens."""
        text = task_forms.detailed_text(task, self._tasks.now_ms)
        about = {"_meta": {META_SUBSCRIPTION: id}}
        self._outbox.notify_text(session, methods.TASKS_NOTIFICATION, text, about, id)

    def check_listener(self, session: CallerSession, wanted: SubscribedTo) -> SubscribedTo:
        """What a listener gets: only tasks of its principal. Raises MissingCapability."""
        if not wanted.tasks:
            return wanted
        if not task_forms.declares(session.caller):
            raise MissingCapability("a subscription to tasks", task_forms.NEEDED)
        own = {task.id for task in self._tasks.of(session.caller.principal)}
        return SubscribedTo(wanted.lists, wanted.uris, wanted.tasks & own)
