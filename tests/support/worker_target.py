"""The shared worker of a page, by the browser's debugging protocol: commands, expressions, size of its heap."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from playwright.async_api import CDPSession


class WorkerTarget:
    """`session`: of the whole browser; `attach` finds its one shared worker. It sets no timers, which would disturb a
    measured event loop: callers set deadlines."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._count = 0
        session.on("Target.receivedMessageFromTarget", self._receive)

    async def attach(self) -> None:
        targets = (await self._session.send("Target.getTargets"))["targetInfos"]
        [worker] = [target["targetId"] for target in targets if target["type"] == "shared_worker"]
        attached = await self._session.send("Target.attachToTarget", {"targetId": worker, "flatten": False})
        self._id = attached["sessionId"]

    async def send(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        self._count += 1
        answer = self._answers[self._count] = asyncio.get_running_loop().create_future()
        message = json.dumps({"id": self._count, "method": method, "params": params or {}})
        await self._session.send("Target.sendMessageToTarget", {"sessionId": self._id, "message": message})
        result: dict[str, Any] = await answer
        return result

    async def evaluate(self, expression: str) -> Any:
        params = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = await self.send("Runtime.evaluate", params)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    async def heap_bytes(self) -> int:
        """JavaScript only, after a garbage collection."""
        await self.send("HeapProfiler.collectGarbage")
        return int((await self.send("Runtime.getHeapUsage"))["usedSize"])

    def _receive(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"])
        if (waiting := self._answers.pop(message.get("id"), None)) is not None:
            waiting.set_result(message["result"])
