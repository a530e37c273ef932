"""Log messages of a server outside of any call, for the callers that share its connection.

Each caller receives the messages of the level that it set. A caller that set none receives what the server sends by
itself; once another caller has chosen a level, it receives `info` and above. The number of deliveries is limited for
each second. Only sessions of the handshake era can receive such messages: in 2026-07-28 a log message belongs to a
request. Sends no request and has no clock: the time is an argument.
"""

from __future__ import annotations

from typing import Any, Final

from tabrelay.calls.calls import Notice
from tabrelay.translation import messages
from tabrelay.translation.subscribers import MAX_ANNOUNCED, Subscribers
from tabserver.wire import jsonrpc, methods

WINDOW_S: Final = 1.0
MAX_DELIVERIES: Final = 500  # in one window, to all callers of one server together; the first message is for all
DEFAULT_LEVEL: Final = "info"


class BackgroundLogs:
    def __init__(self, subscribers: Subscribers) -> None:
        self._subscribers = subscribers
        self._window_began: float | None = None
        self._delivered = 0
        self._left_out = 0

    def announce(self, params: dict[str, Any], now: float) -> None:
        """Deliver `params` of a `notifications/message` to all callers that want its level."""
        if self._window_began is None or not 0 <= now - self._window_began < WINDOW_S:
            left_out, self._window_began, self._delivered, self._left_out = self._left_out, now, 0, 0
            if left_out:
                text = f"{left_out:,} log messages of this server were left out: there were too many at once."
                self._deliver({"level": "warning", "logger": "tabrelay", "data": text})
        # defence: floods: log messages outside of calls
        if self._delivered >= MAX_DELIVERIES:
            self._left_out += 1
            return
        self._deliver(params)

    def _deliver(self, params: dict[str, Any]) -> None:
        sinks = self._subscribers.sinks_for_level(params, DEFAULT_LEVEL)
        if not sinks:
            return
        self._delivered += len(sinks)
        text = messages.text(jsonrpc.notification(methods.LOG_MESSAGE, params))
        # defence: loop time: long log messages for many callers
        if text is None or len(text) > MAX_ANNOUNCED:
            cut = f"A log message of more than {MAX_ANNOUNCED:,} characters was left out."
            brief = jsonrpc.notification(methods.LOG_MESSAGE, {"level": params["level"], "data": cut})
            text = messages.text(brief) or ""
        notice = Notice(text)
        for sink in sinks:
            sink(notice)
