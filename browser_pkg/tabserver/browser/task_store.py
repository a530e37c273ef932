"""Store of tasks in the browser: records that outlive the worker, in IndexedDB.

JavaScript has the database (`js/worker/task_store.js`); what a record contains is decided in `mcp.kept_tasks`.
"""

from __future__ import annotations

from collections.abc import Callable

from pyodide.ffi import create_proxy

from .python_bridge import PythonBridge, guarded


class BrowserTaskStore:
    """Records of the tasks of one server."""

    def __init__(self, bridge: PythonBridge, server: str) -> None:
        self._bridge, self._server = bridge, server

    def keep(self, id: str, expires_ms: int, text: str) -> None:
        self._bridge.keepTask(self._server, id, expires_ms, text)

    def drop(self, id: str) -> None:
        self._bridge.dropTask(self._server, id)

    async def read(self, restore: Callable[[str], None]) -> None:
        """Call `restore` with each record of a worker that has ended: now, or when it ends."""
        await self._bridge.readTasks(self._server, create_proxy(guarded(restore, "restoring a task failed")))
