"""Checks of messages about tasks: the extension of 2026-07-28 (SEP-2663), and the tasks of 2025-11-25.

The official package has models of 2025-11-25, but its tables of methods leave tasks out, and it has none of the
extension. Those here follow the schema that the extension's repository publishes. Unknown members are errors: what a
server adds by mistake must not pass.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import mcp_types
from mcp_types.jsonrpc import ErrorData
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

Questions = dict[str, dict[str, Any]]


class _TaskState(BaseModel):
    model_config = ConfigDict(extra="forbid")

    taskId: str
    statusMessage: str | None = None
    createdAt: str = Field(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
    lastUpdatedAt: str
    ttlMs: int | None
    pollIntervalMs: int | None = Field(default=None, gt=0)
    meta: dict[str, Any] | None = Field(default=None, alias="_meta")
    resultType: str | None = None


class WorkingTask(_TaskState):
    status: Literal["working"]


class InputRequiredTask(_TaskState):
    status: Literal["input_required"]
    inputRequests: Questions


class CompletedTask(_TaskState):
    status: Literal["completed"]
    result: dict[str, Any]


class FailedTask(_TaskState):
    status: Literal["failed"]
    error: ErrorData


class CancelledTask(_TaskState):
    status: Literal["cancelled"]


class NewTask(_TaskState):
    """CreateTaskResult."""

    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    resultType: Literal["task"]


DetailedTask = Annotated[
    WorkingTask | InputRequiredTask | CompletedTask | FailedTask | CancelledTask, Field(discriminator="status")
]
_DETAILED: TypeAdapter[DetailedTask] = TypeAdapter(DetailedTask)


MODERN = "2026-07-28"
LEGACY = "2025-11-25"
_LEGACY_RESULTS: dict[str, type[BaseModel]] = {
    "tasks/get": mcp_types.GetTaskResult,
    "tasks/list": mcp_types.ListTasksResult,
    "tasks/cancel": mcp_types.CancelTaskResult,
}


def check_result(version: str, method: str | None, result: dict[str, Any]) -> bool:
    """Check a server's result if it is one about a task."""
    if version == LEGACY:
        return _check_legacy_result(method, result)
    if version != MODERN:
        return False
    if method == "tools/call" and result.get("resultType") == "task":
        NewTask.model_validate(result)
    elif method == "tasks/get":
        assert result["resultType"] == "complete", result
        _DETAILED.validate_python(result)
    elif method in ("tasks/update", "tasks/cancel"):
        assert result.keys() <= {"resultType", "_meta"} and result["resultType"] == "complete", result
    else:
        return False
    return True


def _check_legacy_result(method: str | None, result: dict[str, Any]) -> bool:
    if method == "tools/call" and "task" in result:
        mcp_types.CreateTaskResult.model_validate(result)
    elif method == "tasks/result":
        mcp_types.CallToolResult.model_validate(result)
        assert "io.modelcontextprotocol/related-task" in result["_meta"]
    elif method in _LEGACY_RESULTS:
        _LEGACY_RESULTS[method].model_validate(result)
    else:
        return False
    return True


def check_notification(version: str, method: str, params: dict[str, Any]) -> bool:
    """Check a server's notification if it is one about a task."""
    if (version, method) == (LEGACY, "notifications/tasks/status"):
        mcp_types.TaskStatusNotificationParams.model_validate(params)
    elif (version, method) == (MODERN, "notifications/tasks"):
        assert "resultType" not in params
        _DETAILED.validate_python(params)
    else:
        return False
    return True
