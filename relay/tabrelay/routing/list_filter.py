"""Filter for the results of tools/list and the other list methods: leaves out items that the caller must not get.

A long list takes several iterations of the event loop: one to parse it, some to check its items, one to encode it. The
call ends after the last of them. `payloads.list_checks` decides which items are unsafe. Tools for
pages of apps go only to clients that show apps, also if the server does not filter its list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import orjson

from tabrelay.calls.calls import Pending, Reply
from tabrelay.errors import BadAnswer, ResultTooLarge
from tabrelay.payloads.json_limits import is_heavy
from tabrelay.payloads.list_checks import ListBounds, Rejection, checking_reply, run_to_end
from tabrelay.system.loop_turns import run_in_turns
from tabserver.wire import extensions, methods

SHORT_LIST: Final = 16 * 1024
"""Characters of a list that is filtered at once."""
MAX_TEXT: Final = 4 * 1024 * 1024

FilteredList = tuple[dict[str, Any] | None, Sequence[Rejection]]


class ListFilter:
    """One per relay."""

    def __init__(self, bounds: ListBounds, max_values: int) -> None:
        self._bounds = bounds
        self._max_values = max_values
        self._max_text = max(MAX_TEXT, bounds.list_bytes)
        self._tasks: set[asyncio.Task[None]] = set()

    def apply(self, pending: Pending, reply: Reply, on_flaws: Callable[[Sequence[Rejection], str], None]) -> None:
        """Finish a call with the safe items of the reply. `on_flaws` gets what was left out, and the text."""
        if len(reply.raw) <= SHORT_LIST:
            try:
                filtered = run_to_end(checking_reply(pending.call.method, reply.message(), self._bounds))
            except (ValueError, AttributeError):
                _fail(pending, reply)
            else:
                self._finish(pending, reply, filtered, on_flaws)
            return
        task = asyncio.create_task(self._apply_in_steps(pending, reply, on_flaws))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _apply_in_steps(
        self, pending: Pending, reply: Reply, on_flaws: Callable[[Sequence[Rejection], str], None]
    ) -> None:
        try:
            filtered = await self._filtered(pending, reply)
        except (ValueError, AttributeError):
            _fail(pending, reply)
            return
        if filtered is None:
            reply.release()
            pending.end(
                ResultTooLarge(
                    f"The list is larger than {self._max_text:,} characters, or has more than {self._max_values:,} "
                    "values, where keys and lists count twice. The server should send it in pages (nextCursor)."
                )
            )
        else:
            self._finish(pending, reply, filtered, on_flaws)

    async def _filtered(self, pending: Pending, reply: Reply) -> FilteredList | None:
        """None if the list is too large."""
        # defence: size of a list
        if len(reply.raw) > self._max_text or is_heavy(text := reply.payload, self._max_values):
            return None
        await asyncio.sleep(0)
        message = orjson.loads(text) if reply.values is None else reply.values
        del text
        await asyncio.sleep(0)
        filtered = await run_in_turns(checking_reply(pending.call.method, message, self._bounds))
        await asyncio.sleep(0)
        return filtered

    def _finish(
        self,
        pending: Pending,
        reply: Reply,
        filtered: FilteredList,
        on_flaws: Callable[[Sequence[Rejection], str], None],
    ) -> None:
        message, flaws = filtered
        if message is not None:
            call = pending.call
            if call.method == methods.TOOLS_LIST and not extensions.gets_app_tools(call.caller):
                result = message["result"]
                result["tools"] = extensions.without_app_tools(result["tools"])
            reply = replace(reply, raw=orjson.dumps(message).decode())
        on_flaws(flaws, reply.payload)
        pending.end(reply)


def _fail(pending: Pending, reply: Reply) -> None:
    reply.release()
    pending.end(BadAnswer("The server's list is not valid JSON."))
