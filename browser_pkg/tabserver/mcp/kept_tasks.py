"""Tasks of a worker that has ended, in the worker after it: a store keeps a record of each while the task exists.

A task that had ended keeps its result. A task that ran is run again with the state that its handler saved, as soon as
its tool is offered; without a state it fails, and the error says why. Where the records are is decided in `browser`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from ..rpc import Refusal, dump
from ..wire.errors import RemoteProtocolError
from ..wire.frames import Caller
from .parked_calls import GONE
from .tasks import ENDED, Task, TaskStatus, TaskTable

if TYPE_CHECKING:
    from .task_call import TaskCall

# Characters of a request or a result in a record. The task of a longer one fails with its worker.
MAX_TEXT: Final = 256 * 1024
# The page with the tool is loading, or the user opens it again.
TOOL_WAIT_S: Final = 60.0

_NO_STATE: Final = (
    "The worker that ran the task ended, because its last page was closed or loaded again. The tool had saved no state "
    "to go on from. It may have done a part of its work."
)
_NO_RESULT: Final = "The worker that had the task's result ended, and the result was too large to be kept."
_NO_TOOL: Final = "The worker that ran the task ended, and no page offers its tool any more."


class TaskStore(Protocol):
    """Where records are kept."""

    def keep(self, id: str, expires_ms: int, text: str) -> None: ...
    def drop(self, id: str) -> None: ...


class LostRun(NamedTuple):
    """A run that ended with its worker, and can be repeated."""

    task: Task
    caller: Caller
    payload: str
    saved: Any


class KeptTasks:
    """The tasks of one table in a store. `run_again` starts the handler once more; `offers`: is there such a tool?"""

    def __init__(
        self,
        tasks: TaskTable,
        store: TaskStore,
        run_again: Callable[[LostRun], TaskCall],
        offers: Callable[[str], bool],
    ) -> None:
        self._tasks, self._store = tasks, store
        self._run_again, self._offers = run_again, offers
        self._waiting: list[LostRun] = []

    def keep(self, task: Task) -> None:
        """The task has begun, saved a state, or ended."""
        waiting = next((run for run in self._waiting if run.task is task), None)
        self._store.keep(task.id, task.expires_ms, record(task, waiting))

    def drop(self, task: Task) -> None:
        self._store.drop(task.id)

    # -- tasks of an earlier worker -----------------------------------------------------------------------------------

    def restore(self, text: str) -> None:
        """A record of a worker that has ended. One that is malformed, or has no room, is dropped."""
        try:
            task, then = _read(json.loads(text))
        except (ValueError, TypeError, KeyError, RemoteProtocolError):
            return
        if not self._tasks.restore(task):
            self._store.drop(task.id)
        elif isinstance(then, LostRun):
            self._waiting.append(then)
            asyncio.get_running_loop().call_later(TOOL_WAIT_S, self._give_up, then)
            self.run_waiting()
        elif then is not None:
            self._tasks.finish(task, _lost(then))
        self.keep(task)  # it is of this worker now

    def run_waiting(self) -> None:
        """Tools are offered, or are not any more."""
        for run in [run for run in self._waiting if self._offers(run.task.tool)]:
            self._waiting.remove(run)
            if not run.task.is_over:
                run.task.call = self._run_again(run)

    def _give_up(self, run: LostRun) -> None:
        if run in self._waiting:
            self._waiting.remove(run)
            self._tasks.finish(run.task, _lost(_NO_TOOL))


def record(task: Task, run: LostRun | None = None) -> str:
    """The task as JSON text. `run`: it waits to be run again."""
    call, error = task.call, task.error
    if call is not None and call.state_to_run_again is not None and len(call.payload) <= MAX_TEXT:
        run = LostRun(task, call.caller, call.payload, call.state_to_run_again)
    fields: dict[str, Any] = {
        "id": task.id,
        "principal": task.principal,
        "tool": task.tool,
        "caller_key": task.caller_key,
        "created_ms": task.created_ms,
        "updated_ms": task.updated_ms,
        "ttl_ms": task.ttl_ms,
        "status": task.status.value,
        "message": task.message,
        "is_error": task.is_error,
    }
    if task.result is not None and len(task.result) <= MAX_TEXT:
        fields["result"] = task.result
    if error is not None:
        fields["error"] = [error.code, error.message, error.data]
    if run is not None and not task.is_over:
        fields |= {"caller": run.caller.to_dict(), "payload": run.payload, "saved": run.saved}
    return dump(fields)


def _read(given: Any) -> tuple[Task, LostRun | str | None]:
    """A task, and what it needs: to be run again, or why it fails. Raises what a record of another form raises."""
    if not isinstance(given, dict):
        raise ValueError("a record of another form")
    texts = [given[name] for name in ("id", "principal", "tool", "caller_key", "message")]
    times = [given[name] for name in ("created_ms", "updated_ms", "ttl_ms")]
    if not all(isinstance(text, str) for text in texts) or not all(type(time) is int for time in times):
        raise ValueError("a record of another form")
    id, principal, tool, caller_key, message = texts
    created_ms, updated_ms, ttl_ms = times
    status, more = TaskStatus(given["status"]), dict[str, Any]()
    if status is TaskStatus.COMPLETED and "result" in given:
        more = {"status": status, "result": str(given["result"]), "is_error": given.get("is_error") is True}
    elif status is TaskStatus.FAILED:
        code, text, data = given["error"]
        more = {"status": status, "error": Refusal(int(code), str(text), data)}
    elif status is TaskStatus.CANCELLED:
        more = {"status": status}
    task = Task(id, principal, tool, caller_key, created_ms, updated_ms, ttl_ms, message=message, **more)
    if status is TaskStatus.COMPLETED and not more:
        return task, _NO_RESULT
    if status in ENDED:
        return task, None
    return task, _read_run(task, given) if "saved" in given else _NO_STATE


def _read_run(task: Task, given: dict[str, Any]) -> LostRun:
    request = json.loads(given["payload"])
    if not isinstance(request, dict) or not isinstance(request.get("params"), dict):
        raise ValueError("a record without a request")
    return LostRun(task, Caller.from_dict(given["caller"]), given["payload"], given["saved"])


def _lost(text: str) -> Refusal:
    return Refusal(GONE, text, {"reason": "browser_gone", "delivered": "unknown", "retryable": False})
