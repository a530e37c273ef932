"""Filter for the answers to tools/list and its siblings: leaves out what `inspection` finds unsafe.

A long list takes several turns of the event loop: one to parse it, some to inspect its items, one to write it anew. The
call ends after the last of them. Which items are unsafe is decided by `inspection`.
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

SHORT: Final = 16 * 1024
"""Characters of a list that is filtered at once."""
MAX_TEXT: Final = 4 * 1024 * 1024

Sifted = tuple[dict[str, Any] | None, Sequence[Rejection]]


class ListFilter:
    """One per relay."""

    def __init__(self, bounds: ListBounds, max_values: int) -> None:
        self._bounds = bounds
        self._max_values = max_values
        self._max_text = max(MAX_TEXT, bounds.list_bytes)
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, pending: Pending, reply: Reply, on_flaws: Callable[[Sequence[Rejection], str], None]) -> None:
        """Finish a call with what may be believed of the reply. `on_flaws` gets what was left out, and the text."""
        if len(reply.said) <= SHORT:
            try:
                sifted = run_to_end(checking_reply(pending.call.method, reply.message(), self._bounds))
            except (ValueError, AttributeError):
                _fail(pending, reply)
            else:
                self._finish(pending, reply, sifted, on_flaws)
            return
        task = asyncio.create_task(self._filter(pending, reply, on_flaws))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _filter(
        self, pending: Pending, reply: Reply, on_flaws: Callable[[Sequence[Rejection], str], None]
    ) -> None:
        try:
            sifted = await self._sifted(pending, reply)
        except (ValueError, AttributeError):
            _fail(pending, reply)
            return
        if sifted is None:
            reply.release()
            pending.fail(
                ResultTooLarge(
                    f"The list is larger than {self._max_text:,} characters, or has more than {self._max_values:,} "
                    "values, where keys and lists count twice. The server should send it in pages (nextCursor)."
                )
            )
        else:
            self._finish(pending, reply, sifted, on_flaws)

    async def _sifted(self, pending: Pending, reply: Reply) -> Sifted | None:
        """None if the list is too large."""
        # defence: size of a list
        if len(reply.said) > self._max_text or is_heavy(text := reply.payload, self._max_values):
            return None
        await asyncio.sleep(0)
        message = orjson.loads(text) if reply.values is None else reply.values
        del text
        await asyncio.sleep(0)
        sifted = await run_in_turns(checking_reply(pending.call.method, message, self._bounds))
        await asyncio.sleep(0)
        return sifted

    def _finish(
        self,
        pending: Pending,
        reply: Reply,
        sifted: Sifted,
        on_flaws: Callable[[Sequence[Rejection], str], None],
    ) -> None:
        message, flaws = sifted
        if message is not None:
            reply = replace(reply, said=orjson.dumps(message).decode())
        on_flaws(flaws, reply.payload)
        pending.finish(reply)


def _fail(pending: Pending, reply: Reply) -> None:
    reply.release()
    pending.fail(BadAnswer("The server's list is not valid JSON."))
