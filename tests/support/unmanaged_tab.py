"""A browser tab that Playwright does not manage: it can be hidden and frozen.

Playwright keeps its pages visible and focused, and Chromium never freezes such a page. Tabs here are in the browser's
default profile, the last one opened in front, driven by plain DevTools messages.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

from playwright.async_api import Browser, CDPSession

from tests.support.waiting import BOUND_S

# Polls with a pause, so that a loop of requests does not keep the tab busy.
WHEN = """new Promise((tell) => setTimeout(() => {
    try { tell(Boolean(CONDITION)); } catch { tell(false); }
}, 20))"""


class Tab:
    """One tab, open as long as its browser."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._id = ""
        self._target = ""
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        session.on("Target.receivedMessageFromTarget", self._received)

    @classmethod
    async def open(cls, browser: Browser, url: str) -> Tab:
        session = await browser.new_browser_cdp_session()
        tab = cls(session)
        target = (await session.send("Target.createTarget", {"url": url}))["targetId"]
        tab._target = target
        attached = await session.send("Target.attachToTarget", {"targetId": target, "flatten": False})
        tab._id = attached["sessionId"]
        return tab

    def _received(self, event: dict[str, Any]) -> None:
        message = json.loads(event["message"]) if event["sessionId"] == self._id else {}
        waiting = self._waiting.pop(message.get("id", 0), None)
        if waiting is not None:
            waiting.set_result(message)

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        """One DevTools command; raises RuntimeError with the browser's error."""
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        text = json.dumps({"id": number, "method": method, "params": params})
        await self._session.send("Target.sendMessageToTarget", {"sessionId": self._id, "message": text})
        message = await answer
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']['message']}")
        result: dict[str, Any] = message["result"]
        return result

    async def show(self) -> None:
        """Bring it to the front, as a click on it does."""
        await self._session.send("Target.activateTarget", {"targetId": self._target})

    async def close(self) -> None:
        """Close it as its user does."""
        await self._session.send("Target.closeTarget", {"targetId": self._target})

    async def evaluate(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it gives."""
        result = await self.send("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        return result["result"].get("value")

    async def until(self, condition: str, timeout_s: float = BOUND_S) -> None:
        """Wait for a JavaScript condition, which may raise at first: the page is still loading."""
        async with asyncio.timeout(timeout_s):
            while not await self._is(condition):
                pass  # it paused in the page

    async def _is(self, condition: str) -> bool:
        try:
            return await self.evaluate(WHEN.replace("CONDITION", condition)) is True
        except RuntimeError as error:
            if "context was destroyed" in str(error):
                return False  # it ran in the empty page that the real one replaces
            raise
