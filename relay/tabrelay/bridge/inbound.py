"""Messages from the server to the client: each is parsed once, recorded, and passed on unchanged.

A message is changed only where the client could not handle it otherwise: an error without an id, a batch where the
client reads lines, a tool that it must not see. Reading HTTP bodies and event streams is done by the callers.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from tabrelay.bridge.delivery import Delivery
from tabrelay.bridge.messages import BridgeMessage, answered, dump, elements, load, on_one_line
from tabrelay.bridge.parsing import parsed
from tabrelay.bridge.session import ClientSession, SessionSnapshot
from tabrelay.bridge.tool_headers import ToolHeaders
from tabrelay.http.sse_parser import SseEvent
from tabserver.wire import methods

log = logging.getLogger("tabrelay.bridge")

# Some servers still use `completion`, the name in a draft.
EVENT_TYPES: Final = (b"message", b"completion")

Deliver = Callable[[bytes, Any], Awaitable[None]]


class InboundMessages:
    def __init__(self, session: ClientSession, params: ToolHeaders, deliver: Deliver) -> None:
        """`deliver` gets each message as one line and as a value."""
        self._session = session
        self._params = params
        self._deliver = deliver

    async def event(self, event: SseEvent, delivery: Delivery | None, snapshot: SessionSnapshot) -> None:
        """`delivery`: of the request that the stream answers; None for the server's stream."""
        if event.type in EVENT_TYPES:
            await self.body(event.data, delivery, snapshot)

    async def body(self, raw: bytes, delivery: Delivery | None, snapshot: SessionSnapshot) -> bool:
        """Passes on a message or a batch. False if it is neither."""
        try:
            value, parts = await parsed(_read, raw)
        except (ValueError, RecursionError) as problem:
            log.warning("The server sent something that is not JSON (%s): %.80r", problem, raw[:80])
            return False
        if parts is not None:
            for part, item in zip(parts, value, strict=True):
                await self._message(part, item, delivery, snapshot)
            return True
        if not isinstance(value, dict):
            return False
        await self._message(raw, value, delivery, snapshot)
        return True

    async def fault(self, id: Any, error: dict[str, Any]) -> None:
        """Answers a request with an error of the bridge."""
        value = {"jsonrpc": "2.0", "id": id, "error": error}
        await self._deliver(dump(value), value)

    async def _message(self, raw: bytes, value: Any, delivery: Delivery | None, snapshot: SessionSnapshot) -> None:
        key = answered(value)
        if delivery is not None and key is not None:
            if value["id"] is None and "error" in value and len(delivery.waiting) == 1:
                # The server failed before it read the id. Without it the client would wait without a limit.
                [key], [id] = delivery.waiting, delivery.unanswered
                value = {**value, "id": id}
                raw = dump(value)
            if key in delivery.waiting:
                delivery.record_answer(key, value)
                raw = self._record(raw, value, delivery.message, snapshot)
        await self._deliver(on_one_line(raw), value)

    def _record(self, raw: bytes, value: Any, message: BridgeMessage, snapshot: SessionSnapshot) -> bytes:
        """Records what the bridge needs of a response. Returns the response for the client."""
        if "result" not in value:
            return raw
        if message.method == methods.INITIALIZE:
            if self._session.is_current(snapshot):
                self._session.initialized(value["result"])
        elif message.method == methods.TOOLS_LIST and message.is_modern:
            raw, hidden = self._params.learn(raw, value)
            for name in hidden:
                log.warning("The tool %.80r is left out: its x-mcp-header breaks the rules", name)
        else:
            self._session.keep(message)
        return raw


def _read(raw: bytes) -> tuple[Any, list[bytes] | None]:
    """The value of a message; for a batch also the text of each element. Raises ValueError or RecursionError."""
    value = load(raw)
    return value, elements(raw) if isinstance(value, list) else None
