"""Owners of the tasks of one upstream: the principal that started each of them.

An upstream can't tell the relay's clients apart, so an id alone would open a task to each of them. The relay stores who
got which id, and answers requests about other tasks itself. The table is bounded, and lost when the relay ends. It does
not translate tasks: a client gets those of an upstream of its own era.
"""

from __future__ import annotations

from typing import Any, Final

from tabrelay.calls.calls import Call, Reply
from tabserver.wire import jsonrpc, methods

MOST_TASKS: Final = 4096
MAX_TASK_ID: Final = 1024  # characters; a task with a longer id has no owner
# Methods about one task, which `params.taskId` names.
ABOUT_ONE: Final = frozenset({methods.TASKS_GET, methods.TASKS_UPDATE, methods.TASKS_CANCEL, methods.TASKS_RESULT})
NOT_FOUND: Final = "Task not found: it never existed, its time to live is over, or the relay was restarted."


class TaskOwners:
    """One for all sessions with an upstream."""

    def __init__(self) -> None:
        self._principals: dict[str, str] = {}  # by task, the oldest first

    def refusal(self, call: Call, params: dict[str, Any] | None) -> Reply | None:
        """The answer to a request about a task that the caller has not started."""
        if call.method not in ABOUT_ONE:
            return None
        # defence: tasks of another principal at an upstream
        if self._is_own((params or {}).get("taskId"), call):
            return None
        return Reply.with_error(call.id, jsonrpc.INVALID_PARAMS, NOT_FOUND)

    def received(self, call: Call, result: dict[str, Any]) -> dict[str, Any]:
        """A result for a caller. Returns what the caller may have of it."""
        if call.method == methods.TOOLS_CALL:
            task = result if result.get("resultType") == "task" else result.get("task")
            if isinstance(task, dict) and isinstance(task.get("taskId"), str):
                self._add(task["taskId"], call.caller.principal)
        elif call.method == methods.TASKS_LIST and isinstance(result.get("tasks"), list):
            own = [
                task for task in result["tasks"] if isinstance(task, dict) and self._is_own(task.get("taskId"), call)
            ]
            return {**result, "tasks": own}
        return result

    def _add(self, id: str, principal: str) -> None:
        # defence: bounds: ids of tasks of upstreams
        if len(id) > MAX_TASK_ID:
            return
        self._principals.pop(id, None)
        self._principals[id] = principal
        # defence: bounds: tasks of upstreams
        while len(self._principals) > MOST_TASKS:
            del self._principals[next(iter(self._principals))]

    def _is_own(self, id: object, call: Call) -> bool:
        return isinstance(id, str) and self._principals.get(id) == call.caller.principal
