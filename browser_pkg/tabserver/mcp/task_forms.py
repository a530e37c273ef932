"""Wire forms of tasks: the extension `io.modelcontextprotocol/tasks` of 2026-07-28, and the tasks of 2025-11-25.

In the modern form a tool's error result is a completed task, in the handshake form a failed one. Values only: nothing
is sent here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from ..handlers.context import Result
from ..handlers.questions import wire_form
from ..rpc import dump
from ..wire.eras import META_RELATED_TASK, TASKS, TASKS_SINCE, Era
from ..wire.frames import Caller
from .tasks import Task, TaskStatus

# A client asks again after a tenth of the task's age, within these bounds.
MIN_POLL_MS: Final = 500
MAX_POLL_MS: Final = 5000

NEEDED: Final[dict[str, Any]] = {"extensions": {TASKS: {}}}


def declares(caller: Caller) -> bool:
    """Can this modern client get a task as an answer?"""
    extensions = caller.capabilities.get("extensions")
    return isinstance(extensions, dict) and isinstance(extensions.get(TASKS), dict)


def has_tasks(caller: Caller) -> bool:
    """Does the caller's handshake version have tasks?"""
    return caller.era is Era.LEGACY and caller.version >= TASKS_SINCE


def created(task: Task, era: Era, now_ms: int) -> Result:
    """CreateTaskResult."""
    if era is Era.MODERN:
        return {"resultType": "task"} | modern(task, now_ms)
    return {"task": legacy(task, now_ms)}


def modern(task: Task, now_ms: int) -> dict[str, Any]:
    return {
        "taskId": task.id,
        "status": task.status.value,
        **_members(task),
        "ttlMs": task.ttl_ms,
        "pollIntervalMs": _poll_ms(task, now_ms),
    }


def detailed(task: Task, now_ms: int) -> dict[str, Any]:
    """DetailedTask, without the result of a completed one."""
    found = modern(task, now_ms)
    if task.status is TaskStatus.INPUT_REQUIRED:
        found["inputRequests"] = {key: wire_form(asked.question) for key, asked in task.questions.open.items()}
    elif task.error is not None and task.status is TaskStatus.FAILED:
        found["error"] = error_of(task)
    return found


def detailed_text(task: Task, now_ms: int) -> str:
    """DetailedTask as JSON text, with the result, which is not parsed for it."""
    text = dump(detailed(task, now_ms))
    if task.status is not TaskStatus.COMPLETED or task.result is None:
        return text
    return f'{text[:-1]},"result":{{"resultType":"complete",{task.result[1:]}}}'


def error_of(task: Task) -> dict[str, Any]:
    assert task.error is not None
    error: dict[str, Any] = {"code": task.error.code, "message": task.error.message}
    return error if task.error.data is None else error | {"data": task.error.data}


def legacy(task: Task, now_ms: int) -> dict[str, Any]:
    status = TaskStatus.FAILED if task.status is TaskStatus.COMPLETED and task.is_error else task.status
    more = {"ttl": task.ttl_ms, "pollInterval": _poll_ms(task, now_ms)}
    return {"taskId": task.id, "status": status.value, **_members(task), **more}


def related(result: Mapping[str, Any], task: Task) -> Result:
    """The result with the task's id in its `_meta`, which 2025-11-25 requires where nothing else names the task."""
    meta = result.get("_meta")
    about = {META_RELATED_TASK: {"taskId": task.id}}
    return {**result, "_meta": (meta if isinstance(meta, dict) else {}) | about}


def result_of(task: Task) -> Result:
    result: Result = json.loads(task.result or "{}")
    return result


def _members(task: Task) -> dict[str, Any]:
    message = {"statusMessage": task.message} if task.message else {}
    return message | {"createdAt": _time(task.created_ms), "lastUpdatedAt": _time(task.updated_ms)}


def _time(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _poll_ms(task: Task, now_ms: int) -> int:
    return min(max((now_ms - task.created_ms) // 10, MIN_POLL_MS), MAX_POLL_MS)


def tools_for(tools: list[dict[str, Any]], caller: Caller) -> list[dict[str, Any]]:
    """The tools as this caller knows them: only 2025-11-25 says of each tool whether it may be a task."""
    if has_tasks(caller) or not any("execution" in tool for tool in tools):
        return tools
    return [{key: value for key, value in tool.items() if key != "execution"} for tool in tools]
