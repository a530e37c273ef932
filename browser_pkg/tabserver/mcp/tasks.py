"""Task table of the worker: tool calls that outlive the request that started them, by task id.

A task belongs to the principal that made the call; any client of that principal may ask for it, and no other. It runs
for its time to live at most, and its result is kept for as long again. The table is bounded for each principal, in
total, and in the size of requests and results. Wire forms are in `task_forms`, requests about tasks in `task_methods`,
and the call that runs is in `task_call`.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..handlers.context import Result, Written
from ..rpc import Refusal, dump
from ..wire.jsonrpc import INTERNAL_ERROR, INVALID_PARAMS
from .parked_calls import BUSY, GONE
from .task_questions import TaskQuestions

if TYPE_CHECKING:
    from .kept_tasks import KeptTasks
    from .task_call import TaskCall

MAX_MESSAGE: Final = 1000  # characters of a status message
MIN_TTL_MS: Final = 1000
MAX_TASK_ROWS: Final = 64  # in the relay's status
# A client is notified of changes of one task with at least this pause between them; of its end at once.
NOTIFY_PAUSE_S: Final = 0.25
TOO_LARGE: Final = -31014  # as for the result of a call


class TaskStatus(StrEnum):
    """The same in both eras."""

    WORKING = "working"
    INPUT_REQUIRED = "input_required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED: Final = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELLED})


class TaskTerms(NamedTuple):
    """Bounds of the table, which the relay's settings decide. `results`: characters of all results together,
    and of the requests of all running tasks."""

    ttl_ms: int = 3_600_000
    most_ttl_ms: int = 86_400_000
    most: int = 256
    most_of_principal: int = 64
    results: int = 32 * 1024 * 1024

    @classmethod
    def read(cls, given: Mapping[str, Any] | None) -> TaskTerms:
        """The terms that the relay sends; a relay of an earlier version sends none."""
        known = {name: given[name] for name in cls._fields if type(given.get(name)) is int} if given else {}
        return cls(**known)


@dataclass(slots=True, eq=False)
class Task:
    """One task. Times are in milliseconds since 1970. `caller_key`: of the caller that made the call.

    `result`: the result of the tool, as JSON text; `error`: its JSON-RPC error. A running task has a `call`.
    """

    id: str
    principal: str
    tool: str
    caller_key: str
    created_ms: int
    updated_ms: int
    ttl_ms: int
    status: TaskStatus = TaskStatus.WORKING
    message: str = ""
    call: TaskCall | None = None
    questions: TaskQuestions = field(init=False)
    result: str | None = None
    is_error: bool = False
    error: Refusal | None = None
    was_read: bool = False
    is_change_due: bool = False

    @property
    def is_over(self) -> bool:
        return self.status in ENDED

    @property
    def expires_ms(self) -> int:
        return self.created_ms + self.ttl_ms


class TaskTable:
    """The tasks of one server. `clock`: seconds since 1970. `on_change` is called with a task that differs."""

    def __init__(self, clock: Callable[[], float], on_change: Callable[[Task], None]) -> None:
        self._clock, self._on_change = clock, on_change
        self.terms = TaskTerms()
        self._tasks: dict[str, Task] = {}
        self._size = 0
        self._running_size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        # What the next worker of this server needs, where the browser has a store for it.
        self.kept: KeptTasks | None = None
        # Part of each id: where several browsers offer the server, the relay finds the task's browser by it.
        self.home = ""

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[Task]:
        return iter(list(self._tasks.values()))

    @property
    def now_ms(self) -> int:
        return int(self._clock() * 1000)

    def new_id(self) -> str:
        """144 random bits: it can't be guessed."""
        return f"{secrets.token_urlsafe(18)}{self.home}"

    # -- beginning and finding ----------------------------------------------------------------------------------------

    def add(self, call: TaskCall, ttl_ms: int | None = None) -> Task:
        """Make a task of a call. Raises Refusal if there is no room."""
        principal = call.caller.principal
        self._make_room(principal)
        now, terms = self.now_ms, self.terms
        ttl_ms = terms.ttl_ms if ttl_ms is None else min(max(ttl_ms, MIN_TTL_MS), terms.most_ttl_ms)
        # defence: bounds: arguments of running tasks
        if self._running_size + len(call.payload) > terms.results:
            data = {"reason": "busy", "delivered": "no", "retryable": True}
            raise Refusal(BUSY, "The requests of running tasks are too large together. Wait for one of them.", data)
        self._running_size += len(call.payload)
        task = Task(call.task_id, principal, call.params["name"], call.caller_key, now, now, ttl_ms, call=call)
        task.questions = TaskQuestions(lambda: self._asked(task))
        self._tasks[task.id] = task
        self._arm()
        self.keep(task)
        self.changed(task)
        return task

    def restore(self, task: Task) -> bool:
        """Add a task of an earlier worker. False: it is not needed any more, or there is no room."""
        size = self._size + len(task.result or "")
        is_known = task.id in self._tasks or task.expires_ms <= self.now_ms
        # defence: bounds: tasks of an earlier worker
        if is_known or len(self._tasks) >= self.terms.most or size > self.terms.results:
            return False
        task.questions = TaskQuestions(lambda: self._asked(task))
        self._tasks[task.id] = task
        self._size = size
        self._arm()
        self.changed(task)
        return True

    def keep(self, task: Task) -> None:
        if self.kept is not None:
            self.kept.keep(task)

    def _make_room(self, principal: str) -> None:
        own = [task for task in self._tasks.values() if task.principal == principal]
        terms = self.terms
        is_full = len(self._tasks) >= terms.most
        # defence: bounds: tasks of one principal, and of all
        if is_full or len(own) >= terms.most_of_principal:
            whose = list(self._tasks.values()) if is_full else own
            self._drop_read(whose, f"There are {len(whose)} tasks already{'' if is_full else ' of this client'}.")

    def _drop_read(self, tasks: list[Task], full: str) -> None:
        """Drop the task that ended first, of those whose result a client has. Raises Refusal if there is none."""
        read = [task for task in tasks if task.is_over and task.was_read]
        if not read:
            data = {"reason": "busy", "delivered": "no", "retryable": True}
            raise Refusal(BUSY, f"{full} Wait for one of them, or cancel it.", data)
        self._drop(min(read, key=lambda task: task.updated_ms))

    def find(self, id: object, principal: str) -> Task:
        """Raises Refusal, with one text for a task of another principal and for one that does not exist."""
        task = self._tasks.get(id) if isinstance(id, str) else None
        # defence: tasks of another principal
        if task is None or task.principal != principal:
            raise Refusal(
                INVALID_PARAMS,
                "Task not found: it never existed, its time to live is over, or the worker that ran it has ended.",
            )
        return task

    def of(self, principal: str) -> list[Task]:
        """The tasks of a principal, the oldest first."""
        return [task for task in self._tasks.values() if task.principal == principal]

    # -- running ------------------------------------------------------------------------------------------------------

    def changed(self, task: Task, *, is_quiet: bool = False) -> None:
        """Something about the task differs. `is_quiet`: it may be reported a moment later, with what follows."""
        task.updated_ms = max(self.now_ms, task.updated_ms)
        if not is_quiet:
            self._on_change(task)
        elif not task.is_change_due:
            task.is_change_due = True
            asyncio.get_running_loop().call_later(NOTIFY_PAUSE_S, self._report_change, task)

    def _report_change(self, task: Task) -> None:
        if task.is_change_due and not task.is_over:
            self._on_change(task)
        task.is_change_due = False

    def describe(self, task: Task, message: str) -> None:
        """Set the status message."""
        if not task.is_over and message != task.message:
            task.message = message[:MAX_MESSAGE]
            self.changed(task, is_quiet=True)

    def _asked(self, task: Task) -> None:
        """The task asked something, or got an answer."""
        if not task.is_over:
            task.status = TaskStatus.INPUT_REQUIRED if task.questions.open else TaskStatus.WORKING
            self.changed(task)

    # -- ending -------------------------------------------------------------------------------------------------------

    def finish(self, task: Task, outcome: Result | Written | Refusal) -> None:
        """The handler has ended."""
        if task.is_over:
            return
        if isinstance(outcome, Refusal):
            self._fail(task, outcome)
            return
        result = outcome.read() if isinstance(outcome, Written) else outcome
        try:
            text = dump(result)
        except (ValueError, TypeError, RecursionError) as error:
            self._fail(task, Refusal(INTERNAL_ERROR, f"The result can't be sent as JSON: {error}"))
            return
        # defence: bounds: results of tasks
        if self._size + len(text) > self.terms.results:
            data = {"reason": "result_too_large", "delivered": "unknown", "retryable": False}
            self._fail(task, Refusal(TOO_LARGE, "The result is too large: there is no room to keep it.", data))
            return
        self._size += len(text)
        task.result, task.is_error = text, bool(result.get("isError"))
        self._end(task, TaskStatus.COMPLETED)

    def _fail(self, task: Task, error: Refusal) -> None:
        task.error, task.message = error, error.message[:MAX_MESSAGE]
        self._end(task, TaskStatus.FAILED)

    def _end(self, task: Task, status: TaskStatus) -> None:
        if task.call is not None:
            self._running_size -= len(task.call.payload)
        task.status, task.call = status, None
        # From now on the time to live is that of the result.
        task.ttl_ms += self.now_ms - task.created_ms
        task.questions.close()
        self._arm()
        self.keep(task)
        self.changed(task)

    def cancel(self, task: Task) -> None:
        """A client does not need the task any more. One that is over stays as it is."""
        if task.is_over:
            return
        call, task.message = task.call, "The task was cancelled."
        self._end(task, TaskStatus.CANCELLED)
        if call is not None:
            call.cancel("the client cancelled the task")

    def _drop(self, task: Task) -> None:
        del self._tasks[task.id]
        self._size -= len(task.result or "")
        if self.kept is not None:
            self.kept.drop(task)
        self.changed(task)

    def has(self, task: Task) -> bool:
        return self._tasks.get(task.id) is task

    # -- time to live -------------------------------------------------------------------------------------------------

    def _arm(self) -> None:
        """One timer for all tasks, moved only to an earlier time: a browser's event loop keeps a timer that was
        cancelled until its time comes."""
        if not self._tasks:
            return
        due_ms = min(task.expires_ms for task in self._tasks.values())
        if self._timer is not None:
            if due_ms >= self._due_ms:
                return
            self._timer.cancel()
        self._due_ms = due_ms
        delay_s = min(max(due_ms - self.now_ms, 0) / 1000, 3600.0)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._expire)

    def _expire(self) -> None:
        self._timer = None
        now = self.now_ms
        # defence: bounds: the time to live of a task
        for task in [task for task in self._tasks.values() if task.expires_ms <= now]:
            if task.is_over:
                self._drop(task)
                continue
            call, seconds = task.call, task.ttl_ms / 1000
            data = {"reason": "deadline", "delivered": "unknown", "retryable": False}
            self._fail(task, Refusal(GONE, f"The task ran longer than its time to live of {seconds:g} s.", data))
            if call is not None:
                call.cancel("the time to live of its task is over")
        self._arm()


def newest_rows(tasks: Iterable[Task]) -> list[dict[str, Any]]:
    """The newest tasks, for the relay's status. Without their messages and results, which belong to their clients."""
    newest = sorted(tasks, key=lambda task: task.created_ms, reverse=True)[:MAX_TASK_ROWS]
    return [
        {
            "id": task.id,
            "tool": task.tool,
            "principal": task.principal,
            "status": task.status.value,
            "created_ms": task.created_ms,
            "updated_ms": task.updated_ms,
            "expires_ms": task.expires_ms,
        }
        for task in newest
    ]
