"""Activity messages: what pages that watch calls receive when a call starts, makes progress and ends.

Nearly no page watches calls, so `calls` asks before it calls anything here.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from ..handlers.context import Outcome, Written
from ..mcp.call import RunningCall
from .presence import Presence

WORKER: Final = "worker"
# Pages show progress. A tool that reports it a thousand times a second must not flood them.
PROGRESS_EVERY_MS: Final = 100.0
# Characters of arguments and results.
MAX_SHOWN: Final = 500
# Of a request or a result as JSON text. Longer ones are not shown.
MAX_PARSED: Final = 256 * 1024


class CallActivity:
    """Sends to the watchers of `presence`."""

    def __init__(self, presence: Presence, now_ms: Callable[[], float]) -> None:
        self._presence, self._now_ms = presence, now_ms

    def began(self, call: RunningCall, arguments: Any) -> None:
        is_shown = call.purpose == "tools" and len(call.payload) <= MAX_PARSED
        shown = json.dumps(arguments, ensure_ascii=False) if is_shown else ""
        self.notify(call, "started", **({"arguments": shown[:MAX_SHOWN]} if shown else {}))

    def ended(self, call: RunningCall, phase: str, error: str | None) -> None:
        more = {} if error is None else {"error": error}
        if phase == "done" and call.purpose == "tools" and (shown := _texts(call.outcome)):
            more["result"] = shown[:MAX_SHOWN]
        self.notify(call, phase, ms=round(self._now_ms() - call.began_ms, 1), **more)

    def progressed(self, call: RunningCall, progress: float, total: float | None) -> None:
        now_ms = self._now_ms()
        if now_ms - call.progress_shown_ms >= PROGRESS_EVERY_MS:
            call.progress_shown_ms = now_ms
            self.notify(call, "progress", progress=progress, **({} if total is None else {"total": total}))

    def notify(self, call: RunningCall, phase: str, **more: Any) -> None:
        # Completion is requested with every key that a user presses: too often for activity messages.
        if call.purpose == "completion" or not self._presence.watchers:
            return
        client = (call.caller.client or {}).get("name")
        members = {
            "t": "activity",
            "call": call.number,
            "kind": call.purpose,
            "name": call.name,
            "owner": call.tab.id if call.tab else WORKER,
            "phase": phase,
        }
        message = {**members, **({"client": client} if client else {}), "at_ms": self._now_ms(), **more}
        for port in self._presence.watchers:
            port.send(message)


def _texts(outcome: Outcome | None) -> str:
    """What a result says, for people: its texts, and the types of its other blocks."""
    if isinstance(outcome, Written):
        outcome = json.loads(outcome.text) if len(outcome.text) <= MAX_PARSED else None
    blocks = outcome.get("content") if isinstance(outcome, dict) else None
    if not isinstance(blocks, list):
        return ""
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks if isinstance(block, dict))
